"""One claim among public ones

Where speed-up and tokens per round put it, and what the audit says.
"""

import specviz as sv
from specviz.figures import plot_claim_check

found = sv.audit(tokens_per_round=7.4, k=7, tokens_per_second=154, baseline_tokens_per_second=18.5)
figure = plot_claim_check(sv.audit_claims(), found.verdict, 7.4, 154 / 18.5)
