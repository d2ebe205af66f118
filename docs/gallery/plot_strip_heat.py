"""A text as a heat strip

One cell per token in reading order: the picture of a strip for paper.
"""

import specviz as sv
from specviz.figures import plot_strip_heat

trace = sv.bundled_trace("smollm2-greedy")
text = trace.positions.query("seq == 0")
figure = plot_strip_heat(text["text"].tolist(), text["entropy"].tolist(), colour="ebf")
