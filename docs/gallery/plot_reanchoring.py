"""A fresh draft against the old tail

What the target's newer states tell a drafter after j right tokens.
"""

import specviz as sv
from specviz.figures import plot_reanchoring

table = sv.reanchoring_gain(sv.bundled_trace("smollm2-greedy"))
some = table["drafter"].isin(["eagle", "block", "mtp"])
figure = plot_reanchoring(table[some & table["content_type"].isin(["code", "prose"])])
