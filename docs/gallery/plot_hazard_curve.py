"""Accepted, given what was known of the place

The chance of the next drafted token against the target's branching factor.
"""

import specviz as sv
from specviz.figures import plot_hazard_curve

trace = sv.bundled_trace("smollm2-trees")
table = sv.hazard_table(trace, 7, "lm")
figure = plot_hazard_curve(sv.hazard_curve(table, "entropy", by="content_type"), drafter="lm")
