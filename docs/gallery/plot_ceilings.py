"""What a drafter's own candidates allow

The chain beside a perfect choice among the first m candidates.
"""

import specviz as sv
from specviz.figures import plot_ceilings

trace = sv.bundled_trace("smollm2-greedy").select(content_type=["code", "prose"])
table = sv.recall_lengths(trace, tops=(1, 2, 4, 16))
figure = plot_ceilings(table[table["drafter"].isin(["lm", "eagle", "block", "mtp"])])
