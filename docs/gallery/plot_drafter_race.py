"""Drafter families

Tokens per round by kind of text, and how far each drafter's drafts survive.
"""

import pandas as pd

import specviz as sv
from specviz.analysis import family_table, survival_by
from specviz.figures import plot_drafter_race

trace = sv.bundled_trace("smollm2-trees")
lengths, parts = family_table(trace, k=7), []
for name in trace.drafters:
    rounds = sv.replay(trace, sv.FixedK(7), name).rounds
    parts.append(survival_by(rounds, None, draws=1000).assign(drafter=name))
figure = plot_drafter_race(lengths, pd.concat(parts), k=7)
