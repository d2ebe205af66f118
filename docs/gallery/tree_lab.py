"""TreeLab

Builder and node budget against tokens per round, and the tree itself.
"""

import specviz as sv
from specviz.bundled import bundled_target_trees
from specviz.widgets import TreeLab

trace, sampled = sv.bundled_trace("smollm2-trees"), sv.bundled_trace("smollm2-sampled")
trees = bundled_target_trees()  # of the sampled texts
widget = TreeLab(trace, sampled, trees=trees, drafter="lm", kind="prose", nodes=32)
