"""TreeLab

Builder and node budget against tokens per round, and the tree itself.
"""

import specviz as sv
from specviz.bundled import bundled_target_trees
from specviz.widgets import TreeLab

trace, trees = sv.bundled_trace("smollm2-trees"), bundled_target_trees()
widget = TreeLab(trace, trees=trees, drafter="lm", kind="prose", nodes=32)
