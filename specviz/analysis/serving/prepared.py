"""Loads of replays, and resamples of them, remembered: shares of a mix only weigh them anew."""

from __future__ import annotations

from dataclasses import replace

from specviz.analysis.replays.replay import Replay, replay
from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling
from specviz.analysis.serving.loads import Load, Sums
from specviz.cost import CostModel, need_cost
from specviz.policies import Policy
from specviz.trace import Trace, need_trace

#: Loads, and their resamples, kept for as many kinds, policies and cost models.
_KEPT = 512


class PreparedLoads:
    """What kinds of text under policies load a server with, from one drafter's replays.

    Policies of equal `repr` are one, as are cost models.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        As for `replay`.
    level, draws, seed
        Of the intervals, which resample the prompts of every kind on their own.
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
        self.trace, self.drafter = need_trace(trace), drafter
        self.level, self._draws, self._seed = level, draws, seed
        self._runs: dict[str, Replay] = {}
        self._loads: dict[tuple[str, str, str], Load] = {}
        self._again: dict[tuple[str, str, str, int], Sums] = {}

    def of(
        self, kind: str, share: float, policy: Policy, cost: CostModel, place: int
    ) -> tuple[Load, Sums | None]:
        """A load, and its resamples (None of one prompt); kinds in other places of the mix are
        resampled by other seeds, as their prompts are different ones.

        Raises
        ------
        ValueError
            As `replay`, and when the kind has no round.
        """
        key = kind, repr(policy), repr(need_cost(cost))
        if key not in self._loads:
            if len(self._loads) >= _KEPT:
                self._loads.clear()
            run = self._run(policy)
            found = Load.of_replay(kind, share, run.policy, cost, run)
            if found is None:
                raise ValueError(f"The trace has no round of {kind!r}: its answers have one token.")
            self._loads[key] = found
        load = replace(self._loads[key], share=share)
        if load.n_prompts < 2:
            return load, None
        drawn = *key, place
        if drawn not in self._again:
            if len(self._again) >= _KEPT:
                self._again.clear()
            self._again[drawn] = Sums.of(load, self._draws, self._seed + place)
        return load, replace(self._again[drawn], load=load)

    def _run(self, policy: Policy) -> Replay:
        key = repr(policy)
        if key not in self._runs:
            self._runs[key] = replay(self.trace, policy, self.drafter)
        return self._runs[key]
