"""What breadth adds to a chain

Tokens per round over verified nodes, for trees and chains.
"""

import specviz as sv
from specviz.analysis import length_by_nodes
from specviz.figures import plot_length_by_nodes

table = length_by_nodes(sv.bundled_trace("smollm2-trees"), "lm")
figure = plot_length_by_nodes(table[table["content_type"] != "all"])
