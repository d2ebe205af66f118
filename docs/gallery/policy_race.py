"""PolicyRace

Does a clever policy beat a fixed k, and how far is the oracle?
"""

import specviz as sv
from specviz.widgets import PolicyRace

trace = sv.bundled_trace("smollm2-trees")
widget = PolicyRace(trace, drafter="lm", kind="prose", cost=sv.t4_like())
