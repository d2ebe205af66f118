"""Accepted length against branching

The mean per step of EBF, and every anchor of one text as a point.
"""

import specviz as sv
from specviz.figures import plot_lens_curve
from specviz.widgets import EntropyLens

trace = sv.bundled_trace("smollm2-trees")
lens = EntropyLens(trace, drafter="lm", k=7)
points = lens.own.join(trace.positions.set_index(["seq", "t"])["text"], on=["seq", "t"])
figure = plot_lens_curve(lens.curve, points, k=7, drafter="lm")
