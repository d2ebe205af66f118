"""One k: what it gives and what it costs

Tokens per round over the break-even line, and the speed-up.
"""

import specviz as sv
from specviz.analysis.replays.prepared import PreparedK
from specviz.figures import plot_k_choice

prepared, cost = PreparedK(sv.bundled_trace("smollm2-trees"), "lm"), sv.t4_like()
found, points = prepared.priced(cost, "prose"), prepared.points(cost)
others = points[points["content_type"] != "prose"]
figure = plot_k_choice(found.curve, found.best, 3, others, kind="prose", drafter="lm")
