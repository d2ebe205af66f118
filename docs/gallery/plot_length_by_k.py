"""Tokens per round for every k

What a longer draft still brings, per kind of text, under the ceiling k + 1.
"""

import specviz as sv
from specviz.analysis import length_by_k
from specviz.figures import plot_length_by_k

trace = sv.bundled_trace("smollm2-trees")
figure = plot_length_by_k(length_by_k(trace, "lm"), drafter="lm")
