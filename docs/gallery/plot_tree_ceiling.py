"""The most that n fixed tokens can bring

Of a sampled target: its own likeliest paths, as a tree and as a chain.
"""

import specviz as sv
from specviz.analysis import drafters_at_anchors
from specviz.bundled import bundled_target_trees
from specviz.figures import plot_tree_ceiling

trees = bundled_target_trees("anchors")
near = drafters_at_anchors(trees, sv.bundled_trace("smollm2-sampled"), k=7)
figure = plot_tree_ceiling(sv.tree_ceiling(trees), near[near["drafter"].isin(["lm", "eagle"])])
