"""One round with a tree

Every node by its depth, the accepted path drawn through.
"""

import specviz as sv
from specviz.figures import plot_round_tree
from specviz.widgets import RoundStepper

trace = sv.bundled_trace("smollm2-trees")
stepper = RoundStepper(trace, drafter="lm", builder="best-first-d7", budget=16)
figure = plot_round_tree(stepper.picture, "accept", finding="One path of sixteen nodes is kept")
