"""What the kind of text still says

Prose against code, given nothing, given entropy, and given more.
"""

import pandas as pd

import specviz as sv
from specviz.figures import plot_type_effect

trace = sv.bundled_trace("smollm2-trees")
tables = {name: sv.hazard_table(trace, 7, name) for name in trace.drafters}
given = [[], ["depth", "entropy"], ["depth", "entropy", "margin", "draft_confidence"]]
effects = [sv.residual_type_effect(t, given).assign(drafter=n) for n, t in tables.items()]
figure = plot_type_effect(pd.concat(effects))
