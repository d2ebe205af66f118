"""How far drafts survive

P(accepted >= j), and how often the token at depth j is right once it is reached.
"""

import specviz as sv
from specviz.analysis import survival_by
from specviz.figures import plot_survival

trace = sv.bundled_trace("smollm2-trees")
rounds = sv.replay(trace, sv.FixedK(7), "lm").rounds
figure = plot_survival(survival_by(rounds), k=7, drafter="lm")
