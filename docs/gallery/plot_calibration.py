"""Predicted against what came true

A model of acceptance is worth its calibration on prompts it was not fitted on.
"""

import specviz as sv
from specviz.figures import plot_calibration

trace = sv.bundled_trace("smollm2-trees")
model = sv.hazard_model(sv.hazard_table(trace, 7, "lm"), draws=200)
figure = plot_calibration(model.calibration, model="lm, out of prompt")
