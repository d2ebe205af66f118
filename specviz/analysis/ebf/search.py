"""Families of policies against the best fixed k: fitted, held out by prompt, resampled.

A family is a table of modelled seconds, one row per policy of the family (a candidate) and one
column per prompt, each entry replayed exactly. Choosing the fastest candidate is then a sum and
an argmin, and can be repeated for every fold and every resample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from specviz.analysis.anchors import Anchors, Ints
from specviz.analysis.ebf.steps import seconds_of, visited
from specviz.analysis.folds import prompt_folds
from specviz.analysis.replays.oracle import oracle
from specviz.analysis.resampling import Floats, ratio_interval, resampled_sums
from specviz.cost import CostModel
from specviz.trace import Trace

#: Most seconds of resampled prompts held at once.
_CHUNK = 4_000_000


@dataclass(frozen=True, eq=False)
class Family:
    """Step functions over bins of anchors.

    Attributes
    ----------
    place
        Bin of every anchor, shape [A].
    ks
        k per candidate and bin, [C, bins].
    seconds
        Modelled, per candidate and prompt, [C, P].
    """

    place: Ints
    ks: Ints
    seconds: Floats

    @property
    def best(self) -> Ints:
        """The ks of the candidate that is fastest over all prompts."""
        return np.asarray(self.ks[int(np.argmin(self.seconds.sum(axis=1)))])


@dataclass(frozen=True, eq=False)
class Contest:
    """The prompts that policies are compared on: all to fit on, held out in folds, resampled.

    Attributes
    ----------
    prompt
        Code of every sequence's prompt, shape [S]; -1 where it has no round.
    kinds, fold
        Code of the content type, and the fold in which it is held out, [P] each.
    counts
        How often each prompt is in each resample, [draws, P].
    """

    anchors: Anchors
    cost: CostModel
    prompt: NDArray[np.intp]
    kinds: Ints
    fold: Ints
    counts: Floats
    level: float
    draws: int
    seed: int

    @classmethod
    def of(
        cls,
        trace: Trace,
        anchors: Anchors,
        cost: CostModel,
        folds: int | None,
        level: float,
        draws: int,
        seed: int,
    ) -> Contest:
        some = anchors.n > 1  # an output of one token has no round
        prompt = np.full(len(anchors.n), -1)
        prompt[some] = pd.factorize(anchors.prompt_id[some])[0]
        size = int(prompt.max(initial=-1)) + 1
        if size < 2:
            raise ValueError("Need two prompts or more: some to fit on, others to judge on.")
        kinds = np.array([anchors.content_type[prompt == each][0] for each in range(size)], object)
        fold = prompt_folds(kinds, size if folds is None else folds, seed)
        counts = resampled_sums(np.eye(size), draws, seed)  # of each prompt, per draw
        codes = pd.factorize(kinds)[0].astype(np.int64)
        return cls(anchors, cost, prompt, codes, fold, counts, level, draws, seed)

    @property
    def size(self) -> int:
        return len(self.fold)

    @property
    def folds(self) -> int:
        return int(self.fold.max()) + 1

    def family(self, place: Ints, ks: Ints) -> Family:
        return Family(place, ks, self._per_prompt(seconds_of(self.anchors, self.cost, place, ks)))

    def winners(self, seconds: Floats) -> NDArray[np.intp]:
        """The fastest candidate of every resample of the prompts."""
        block = max(1, _CHUNK // len(seconds))
        parts = [self.counts[low : low + block] for low in range(0, self.draws, block)]
        return np.concatenate([np.argmin(part @ seconds.T, axis=1) for part in parts])

    def row(
        self, policy: str, hindsight: bool, family: Family, fixed: Family, groups: Ints
    ) -> dict[str, object]:
        """One family against the best fixed k, each group of prompts with a choice of its own."""
        everyone = np.ones(self.size, bool)
        picks = _picks(family.seconds, groups, everyone)
        k = family.ks[picks[self.prompt[self.anchors.owner]], family.place]
        fitted = family.seconds[picks, np.arange(self.size)]
        rounds = len(visited(self.anchors, k))
        return self._row(policy, hindsight, fixed, fitted, self._held_out(family, groups), rounds)

    def oracle_row(self, trace: Trace, fixed: Family) -> dict[str, object]:
        """The least seconds there could be: no fitting, so nothing to hold out."""
        found = oracle(trace, self.cost, self.anchors.drafter, draws=1)
        place = np.searchsorted(self.anchors.seq, found.rounds["seq"].to_numpy())
        every = np.bincount(place, found.seconds(self.cost), len(self.anchors.seq))
        least = self._per_prompt(every)
        return self._row("oracle", True, fixed, least, least, found.n_rounds)

    def _per_prompt(self, values: ArrayLike) -> Floats:
        """Sums over the sequences (the last axis) of every prompt."""
        order = np.argsort(self.prompt, kind="stable")[(self.prompt < 0).sum() :]
        starts = np.searchsorted(self.prompt[order], np.arange(self.size))
        by_prompt = np.asarray(values, dtype=float)[..., order]
        return np.asarray(np.add.reduceat(by_prompt, starts, axis=-1))

    def _held_out(self, family: Family, groups: Ints) -> Floats:
        """Seconds of every prompt, the choice made on the prompts of other folds."""
        found = np.empty(self.size)
        for each in range(self.folds):
            out = np.flatnonzero(self.fold == each)
            picks = _picks(family.seconds, groups, self.fold != each)
            found[out] = family.seconds[picks[out], out]
        return found

    def _row(
        self,
        policy: str,
        hindsight: bool,
        fixed: Family,
        fitted: Floats,
        held_out: Floats,
        rounds: int,
    ) -> dict[str, object]:
        tokens, alike = self._per_prompt(self.anchors.n - 1.0), np.zeros(self.size, np.int64)
        best = _picks(fixed.seconds, alike, np.ones(self.size, bool))
        rivals = {
            "fitted": (fixed.seconds[best, np.arange(self.size)], fitted),
            "held_out": (self._held_out(fixed, alike), held_out),
        }
        row: dict[str, object] = {
            "policy": policy,
            "hindsight": hindsight,
            "speedup": float(tokens.sum() * self.cost.plain_seconds / fitted.sum()),
            "tokens_per_round": float(tokens.sum() / rounds),
        }
        for how, (theirs, mine) in rivals.items():
            found = ratio_interval(theirs, mine, self.level, self.draws, self.seed)
            row[f"gain_{how}"] = found.estimate - 1
            row[f"{how}_low"], row[f"{how}_high"] = found.low - 1, found.high - 1
        return {**row, "cost": self.cost.name, "n_rounds": rounds, "n_prompts": self.size}


def _picks(seconds: Floats, groups: Ints, fit: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Per prompt, its group's fastest candidate on the prompts to fit on. Shape [P].

    A group none of whose prompts is fitted on takes the candidate that is fastest on all that are.
    """
    picks = np.zeros(seconds.shape[1], dtype=np.intp)
    for group in range(int(groups.max()) + 1):
        mine = groups == group
        known = mine & fit if (mine & fit).any() else fit
        picks[mine] = np.argmin(seconds[:, known].sum(axis=1))
    return picks
