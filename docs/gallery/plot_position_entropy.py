"""Entropy along one text

A bar per token, coloured by its part in its round.
"""

import specviz as sv
from specviz.figures import plot_position_entropy

trace = sv.bundled_trace("smollm2-trees")
rounds = sv.replay(trace, sv.FixedK(5), "lm").rounds.query("seq == 0")
figure = plot_position_entropy(trace.positions.query("seq == 0"), rounds, name="code-01")
