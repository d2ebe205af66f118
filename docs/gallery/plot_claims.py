"""Public claims and the line none may cross

Above the line a round would cost less than one plain step.
"""

import specviz as sv
from specviz.figures import plot_claims

figure = plot_claims(sv.audit_claims(sv.read_claims()))
