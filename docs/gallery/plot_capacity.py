"""What a mix of texts gets

Speed and waiting per kind of text and for the mix, against a promise.
"""

import specviz as sv
from specviz.figures import plot_capacity

trace, cost = sv.bundled_trace("smollm2-trees"), sv.t4_like()
promise = sv.SLA(tokens_per_second=30)
mix = {"code": 3, "prose": 1}
found = sv.capacity(trace, mix, cost, sv.FixedK(3), "lm", sla=promise, draws=2000)
figure = plot_capacity(found.table, cost.plain_seconds, speed=30, cost=cost.name)
