"""How many tokens at which branching factor

The best step function from branching factor to k, causal and in hindsight.
"""

import specviz as sv
from specviz.figures import plot_k_by_ebf

trace = sv.bundled_trace("smollm2-trees")
figure = plot_k_by_ebf(sv.optimal_k_by_ebf(trace, sv.t4_like(), "lm").table)
