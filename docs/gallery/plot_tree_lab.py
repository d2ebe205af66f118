"""A tree's worth, and one tree

Tokens per round over nodes, beside the tree at one anchor.
"""

import specviz as sv
from specviz.analysis.levers.tree_nodes import captured_nodes
from specviz.analysis.levers.tree_sweep import TreeSweep
from specviz.figures import plot_tree_lab

trace, builder = sv.bundled_trace("smollm2-trees"), "best-first-d7"
shapes = [("chain", k) for k in (1, 2, 4, 7)] + [(builder, n) for n in (1, 4, 16, 64)]
lengths = TreeSweep(trace, "lm", draws=1000).table(shapes, "code")
nodes = captured_nodes(trace, "lm", builder, 0, 20, 16)
figure = plot_tree_lab(lengths, nodes, (builder, 16), kind="code", whose="lm")
