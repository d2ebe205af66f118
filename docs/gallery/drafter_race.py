"""DrafterRace

Which family goes furthest, and on what kind of text.
"""

import specviz as sv
from specviz.widgets import DrafterRace

widget = DrafterRace(sv.bundled_trace("smollm2-greedy"), kind="code")
