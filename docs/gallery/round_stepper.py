"""RoundStepper

One round at a time: draft, verify, accept, bonus, rewind.
"""

import specviz as sv
from specviz.widgets import RoundStepper

widget = RoundStepper(sv.bundled_trace("smollm2-trees"), drafter="lm", k=5)
widget.set(round=2, step="accept")
