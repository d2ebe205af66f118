"""Drafters as they learn

Tokens per round on held-out prompts against training tokens seen.
"""

import specviz as sv
from specviz.figures import plot_learning

figure = plot_learning(sv.learning_log("lm", "eagle", "block", "mtp"))
