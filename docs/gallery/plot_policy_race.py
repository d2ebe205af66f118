"""Policies against the oracle

Modelled speed, and how much longer than the best possible rounds.
"""

import specviz as sv
from specviz.analysis.levers.race import Race
from specviz.figures import plot_policy_race
from specviz.policies import ConfidenceStop

race = Race(sv.bundled_trace("smollm2-trees"), "lm", draws=1000)
policies = {f"fixed k = {k}": sv.FixedK(k) for k in (1, 4, 7)}
policies["stop below 0.4"] = ConfidenceStop(0.4, 7)
figure = plot_policy_race(race.table(policies, sv.t4_like(), "prose"), kind="prose")
