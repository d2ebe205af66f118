"""Policies side by side

Tokens per round with its interval, a row per policy.
"""

import specviz as sv
from specviz.figures import plot_policies
from specviz.policies import ConfidenceStop

trace = sv.bundled_trace("smollm2-trees")
policies = {f"chain of {k}": sv.FixedK(k) for k in (1, 3, 7)}
policies["stop below 0.4"] = ConfidenceStop(0.4, 7)
policies |= {f"tree of {n}": sv.FixedTree(sv.BestFirst(n, depth=7)) for n in (16, 64)}
table = sv.compare_policies(trace, policies, [sv.t4_like()], "lm")
figure = plot_policies(table[table["content_type"] != "all"])
