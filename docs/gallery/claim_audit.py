"""ClaimAudit

Type in reported numbers, see whether they can be true together.
"""

from specviz.widgets import ClaimAudit

widget = ClaimAudit("t4-code")
