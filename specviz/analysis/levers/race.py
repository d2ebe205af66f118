"""Policies on the same text, held against the oracle, with every replay remembered.

Which rounds a policy runs does not depend on the cost model (only the oracle's and the best fixed
k's do), so that another cost, or one changed policy, replays little. The numbers are those of
`specviz.regret`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.replays.oracle import best_fixed, oracle, seconds_by_prompt
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

#: Sums, and rows of the table, kept for as many policies and cost models.
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
        self._rows: dict[tuple[str, str, str | None], dict[str, Any]] = {}
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
        racers: dict[str, Policy | None] = {"oracle": None, f"best {fixed.name}": fixed}
        racers |= policies
        return pd.DataFrame(
            [{"policy": name, **self._row(racer, cost, kind)} for name, racer in racers.items()]
        )

    def _row(self, policy: Policy | None, cost: CostModel, kind: str | None) -> dict[str, Any]:
        """What the table says of one policy; of the oracle, where `policy` is None."""
        key = repr(policy), repr(cost), kind
        if key in self._rows:
            return self._rows[key]
        best = self._summed(None, cost)
        mine = best.index
        if kind is not None:
            mine = mine[mine.get_level_values("content_type") == kind]
            if not len(mine):
                raise ValueError(f"No text of {kind!r} has a round in this capture.")
        part = self._summed(policy, cost).reindex(mine)
        tokens = part["tokens"].to_numpy(dtype=float)
        spent = np.column_stack([best["seconds"].reindex(mine), part["seconds"]])
        total, rounds = spent.sum(axis=0), int(part["rounds"].sum())
        (slow, regret_low), (fast, regret_high) = np.full((2, 2), np.nan)
        if len(mine) > 1:
            drawn = resampled_sums(np.column_stack([tokens, spent]), self._draws, self._seed)
            ratios = [drawn[:, 0] / drawn[:, 2], drawn[:, 2] / drawn[:, 1] - 1]
            (slow, regret_low), (fast, regret_high) = percentiles(
                np.column_stack(ratios), self._level, len(mine)
            )
        if len(self._rows) >= _KEPT:
            self._rows.clear()
        self._rows[key] = {
            "tokens_per_round": tokens.sum() / rounds,
            "tokens_per_second": tokens.sum() / total[1],
            "tokens_per_second_low": slow,
            "tokens_per_second_high": fast,
            "regret": total[1] / total[0] - 1,
            "regret_low": regret_low,
            "regret_high": regret_high,
            "cost": cost.name,
            "n_rounds": rounds,
            "n_prompts": len(mine),
        }
        return self._rows[key]

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
