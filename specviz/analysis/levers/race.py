"""Policies on the same text, held against the oracle, with every replay remembered.

Which rounds a policy runs does not depend on the cost model (only the oracle's and the best fixed
k's do), so that another cost, or one changed policy, replays little. The numbers are those of
`specviz.regret`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from specviz.analysis.replays.oracle import best_fixed, oracle, regret_intervals, seconds_by_prompt
from specviz.analysis.replays.replay import Replay, replay
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.cost import CostModel
from specviz.policies import FixedK, Policy
from specviz.trace import Trace

#: Sums kept for as many pairs of policy and cost model.
_KEPT = 256


class Race:
    """One drafter's policies on one capture.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        None takes the only one.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts, the same for every policy.
    """

    def __init__(
        self,
        trace: Trace,
        drafter: str | None = None,
        *,
        level: float = LEVEL,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        check_resampling(level, draws, seed)
        self.trace, self.drafter = trace, trace.drafter_name(drafter)
        self._level, self._draws, self._seed = level, draws, seed
        self._runs: dict[str, Replay] = {}
        self._sums: dict[tuple[str, str], pd.DataFrame] = {}
        self._fixed: dict[str, FixedK] = {}

    def run(self, policy: Policy) -> Replay:
        """The replay of a policy; policies of equal `repr` are one.

        Raises
        ------
        ValueError
            As `replay`.
        """
        key = repr(policy)
        if key not in self._runs:
            self._runs[key] = replay(self.trace, policy, self.drafter)
        return self._runs[key]

    def table(
        self, policies: Mapping[str, Policy], cost: CostModel, kind: str | None = None
    ) -> pd.DataFrame:
        """Every policy on one kind of text (None: all), the oracle first, then the best fixed k.

        Parameters
        ----------
        policies
            By label.
        cost
            Seconds of drafting and verifying.
        kind
            A content type.

        Returns
        -------
        DataFrame
            policy; tokens_per_round (bonus counted); tokens_per_second (modelled, prefill left
            out) with tokens_per_second_low and _high; regret (modelled seconds over the oracle's,
            less 1) with regret_low and regret_high; cost, n_rounds, n_prompts. The best fixed k
            is chosen on all prompts of this trace: with hindsight.

        Raises
        ------
        ValueError
            As `regret`, and when no prompt of the kind has a round.
        """
        fixed = self._best_fixed(cost)
        sums = {"oracle": self._summed(None, cost)}
        sums[f"best {fixed.name}"] = self._summed(fixed, cost)
        sums |= {label: self._summed(policy, cost) for label, policy in policies.items()}
        cells = sums["oracle"].index
        mine = cells
        if kind is not None:
            mine = cells[cells.get_level_values("content_type") == kind]
            if not len(mine):
                raise ValueError(f"No text of {kind!r} has a round in this capture.")
        parts = [table.reindex(mine) for table in sums.values()]
        spent = np.column_stack([part["seconds"] for part in parts])
        tokens = parts[0]["tokens"].to_numpy(dtype=float)  # the same text for every policy
        total = spent.sum(axis=0)
        low, high = regret_intervals(spent, self._level, self._draws, self._seed)
        slow = fast = np.full(len(parts), np.nan)
        if len(mine) > 1:
            drawn = resampled_sums(np.column_stack([tokens, spent]), self._draws, self._seed)
            slow, fast = percentiles(drawn[:, :1] / drawn[:, 1:], self._level, len(mine))
        rounds = np.array([part["rounds"].sum() for part in parts])
        return pd.DataFrame(
            {
                "policy": list(sums),
                "tokens_per_round": tokens.sum() / rounds,
                "tokens_per_second": tokens.sum() / total,
                "tokens_per_second_low": slow,
                "tokens_per_second_high": fast,
                "regret": total / total[0] - 1,
                "regret_low": low[0],
                "regret_high": high[0],
                "cost": cost.name,
                "n_rounds": rounds.astype(int),
                "n_prompts": len(mine),
            }
        )

    def _summed(self, policy: Policy | None, cost: CostModel) -> pd.DataFrame:
        """Tokens, rounds and seconds of every prompt; of the oracle, where `policy` is None."""
        key = repr(policy), repr(cost)
        if key not in self._sums:
            if policy is None:
                run = oracle(self.trace, cost, self.drafter, draws=1)
            else:
                run = self.run(policy)
            if len(self._sums) >= _KEPT:
                self._sums.clear()
            self._sums[key] = seconds_by_prompt(run, cost)
        return self._sums[key]

    def _best_fixed(self, cost: CostModel) -> FixedK:
        key = repr(cost)
        if key not in self._fixed:
            self._fixed[key] = best_fixed(self.trace, cost, self.drafter)
        return self._fixed[key]
