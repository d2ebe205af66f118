"""EntropyLens

Are drafts short where the target is undecided? Brush the text or the curve.
"""

import specviz as sv
from specviz.widgets import EntropyLens

trace = sv.bundled_trace("smollm2-greedy").select(content_type=["code", "prose"])
widget = EntropyLens(trace, drafter="lm", k=7)
