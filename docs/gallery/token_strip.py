"""TokenStrip

What happened at this very token: p, q, rank, alternatives, round.
"""

import specviz as sv
from specviz.widgets import TokenStrip

widget = TokenStrip(sv.bundled_trace("smollm2-trees"), drafter="lm", k=5)
