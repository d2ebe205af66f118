"""Measured, floors and ceilings

Each bound with what it assumes; greedy and sampled targets apart.
"""

import specviz as sv
from specviz.figures import plot_bounds

panels = {}
for setting in ("greedy", "sampled"):
    table = sv.measured_bounds(sv.bundled_trace(f"smollm2-{setting}"), "lm", k=7).table
    rows = table[(table["content_type"] == "prose") & (table["quantity"] == "tokens per round")]
    panels[f"{setting} target, lm, prose"] = rows
figure = plot_bounds(panels)
