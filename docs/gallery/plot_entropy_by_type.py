"""How widely the target branches

Entropy and effective branching factor at every position, by kind of text.
"""

import specviz as sv
from specviz.analysis import entropy_by
from specviz.figures import plot_entropy_by_type

trace = sv.bundled_trace("smollm2-greedy")
kinds = trace.sequences[["seq", "content_type"]]
figure = plot_entropy_by_type(trace.positions.merge(kinds, on="seq"), entropy_by(trace))
