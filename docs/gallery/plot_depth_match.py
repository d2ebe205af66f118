"""How often right at every depth

Given the text's own tokens before it: what looking further ahead costs.
"""

import specviz as sv
from specviz.figures import plot_depth_match

table = sv.depth_match(sv.bundled_trace("smollm2-greedy"))
learned = table["drafter"].isin(["lm", "eagle", "block", "mtp"])
figure = plot_depth_match(table[learned & table["content_type"].isin(["code", "prose"])])
