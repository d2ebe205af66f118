"""CapacityPlanner

What a mix of code and prose gets, and whether a promise is kept.
"""

import specviz as sv
from specviz.widgets import CapacityPlanner

trace, mix = sv.bundled_trace("smollm2-trees"), {"code": 3, "prose": 1}
widget = CapacityPlanner(trace, drafter="lm", mix=mix, k=3, cost=sv.t4_like())
widget.set(speed=30)
