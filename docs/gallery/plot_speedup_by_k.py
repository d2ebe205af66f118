"""Speed-up for every k, under two costs

The best k, and whether to draft at all, depends on whose cost it is.
"""

import pandas as pd

import specviz as sv
from specviz.figures import plot_speedup_by_k

trace = sv.bundled_trace("smollm2-trees")
costs = [sv.CostModel.from_dict(trace.meta.cost_models[0]), sv.t4_like()]
found = [sv.optimal_k(trace, cost, drafter="lm") for cost in costs]
curves, best = pd.concat([f.curve for f in found]), pd.concat([f.table for f in found])
sources = {cost.name: cost.provenance for cost in costs}
figure = plot_speedup_by_k(
    curves[curves["content_type"] != "all"],
    best[best["content_type"] != "all"],
    provenance=sources,
    drafter="lm",
)
