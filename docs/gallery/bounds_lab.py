"""BoundsLab

What was measured against every bound that applies, its assumption beside it.
"""

import specviz as sv
from specviz.bundled import bundled_target_trees
from specviz.widgets import BoundsLab

kinds = ["code", "prose"]
greedy = sv.bundled_trace("smollm2-greedy").select(content_type=kinds)
sampled = sv.bundled_trace("smollm2-sampled").select(content_type=kinds)
widget = BoundsLab(greedy, sampled, trees=bundled_target_trees(), drafter="lm", k=7, kind="prose")
