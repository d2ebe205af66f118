"""KExplorer

How many tokens to draft, under a measured cost, a preset or your own.
"""

import specviz as sv
from specviz.widgets import KExplorer

trace = sv.bundled_trace("smollm2-trees")
widget = KExplorer(trace, drafter="lm", kind="prose", k=3, cost=sv.t4_like())
