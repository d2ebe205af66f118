"""Do drafts survive longer in one group of rounds than in another? Prompts are permuted.

A log-rank test over rounds takes them as independent, and finds differences between any two
sets of prompts. Here the prompt is what could have fallen into the other group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    Interval,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.analysis.survival.lengths import per_prompt_depth
from specviz.markup import counted
from specviz.refuse import listed, one_name, shown, whole
from specviz.trace.schema import STOPS

#: What is compared, and how it reads.
STATISTICS = {
    "tokens": "difference of 1 + sum of survival: tokens per round up to the depth, bonus counted",
    "log-rank": "rejections of the first group less those expected if both had the same hazards",
}


@dataclass(frozen=True, eq=False)
class SurvivalComparison:
    """Two groups' survival side by side.

    Attributes
    ----------
    groups
        Their names; differences are the first less the second.
    depth
        Deepest token compared.
    difference
        Of tokens per round up to that depth, by Kaplan and Meier, the bonus counted; its
        interval resamples prompts (pairs of them where paired).
    statistic, p_value, permutations
        How often prompts that are dealt to the groups at random differ at least as much, both
        signs counted: (1 + that many) / (1 + permutations). No smaller than 1 / (1 +
        permutations).
    paired
        True where every prompt has rounds in both groups: a permutation then swaps a prompt's
        two sides.
    table
        depth, survival of each group (`survival_a`, `survival_b`), difference with low and
        high, at_risk_a, at_risk_b.
    n_rounds, n_prompts
        Per group.
    """

    groups: tuple[str, str]
    depth: int
    difference: Interval
    statistic: str
    p_value: float
    permutations: int
    paired: bool
    table: pd.DataFrame
    n_rounds: tuple[int, int]
    n_prompts: tuple[int, int]

    def __str__(self) -> str:
        a, b = self.groups
        sides = "each in both" if self.paired else f"{self.n_prompts[0]} and {self.n_prompts[1]}"
        return (
            f"{a} less {b}: {self.difference.estimate:+.2f} tokens per round up to depth "
            f"{self.depth}, bonus counted ({100 * self.difference.level:g} % interval "
            f"{self.difference.low:+.2f} to {self.difference.high:+.2f}), p = {self.p_value:.3g} "
            f"by permuting {counted(self.difference.n_prompts, 'prompt')} ({sides}), "
            f"{self.statistic}, {self.permutations:,} permutations."
        )


def compare_survival(
    rounds: pd.DataFrame,
    by: str = "content_type",
    groups: Sequence[str] | None = None,
    *,
    depth: int | None = None,
    statistic: str = "tokens",
    permutations: int = 2000,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> SurvivalComparison:
    """Compare how far drafts survive in two groups, by permuting prompts.

    Parameters
    ----------
    rounds
        `replay(...).rounds` (or several, one below the other); needs prompt_id, drafted,
        accepted and stop.
    by
        The column that tells the groups apart, such as "content_type" (different prompts) or
        "drafter" (the same prompts twice).
    groups
        Two of its values; None takes the only two.
    depth
        Deepest token to compare; None goes as deep as both groups were tried.
    statistic
        "tokens" or "log-rank": see `STATISTICS`.
    permutations
        Random ones.
    level, draws, seed
        Of the intervals; the seed also draws the permutations.

    Returns
    -------
    SurvivalComparison

    Raises
    ------
    ValueError
        When a column is missing, a round accepts more than it drafts or stops for an unknown
        reason, policies are mixed, there are not two groups, one has fewer than 2 prompts, or
        only some prompts are in both.

    Notes
    -----
    Exact in level where prompts are exchangeable under "no difference". A policy that drafts
    less where it expects rejection makes censoring informative, and both curves too high (F7.4);
    no test of them can tell. Source: F7.2, F7.3; permutation tests after Fisher.

    Examples
    --------
    >>> from specviz.analysis.replays.replay import replay
    >>> from specviz.bundled import bundled_trace
    >>> from specviz.policies import FixedK
    >>> rounds = replay(bundled_trace("smollm2-trees"), FixedK(7), "lm").rounds
    >>> found = compare_survival(rounds, permutations=99, draws=200)
    >>> found.groups, found.paired, 0 < found.p_value <= 1
    (('code', 'prose'), False, True)
    """
    check_resampling(level, draws, seed)
    permutations = whole("permutations", permutations, least=1)
    if one_name("statistic", statistic) not in STATISTICS:
        raise ValueError(f"statistic must be one of {', '.join(STATISTICS)}, not {statistic!r}.")
    a, b = _two(rounds, by, groups)
    sides = [rounds[rounds[by] == each] for each in (a, b)]
    named = [list(dict.fromkeys(side["prompt_id"])) for side in sides]
    both = set(named[0]) & set(named[1])
    paired = bool(both)
    if paired and not set(named[0]) == both == set(named[1]):
        raise ValueError(
            f"{len(both)} prompts have rounds in both groups and others in one only: take the "
            "prompts that have both, or groups without a common prompt."
        )
    if min(map(len, named)) < 2:
        raise ValueError("Each group needs two prompts or more: nothing could be permuted.")
    tried = min(_deepest(side) for side in sides)
    depth = tried if depth is None else whole("depth", depth, least=1)
    if depth > tried or not tried:
        raise ValueError(f"Both groups were tried to depth {tried} only: choose depth up to that.")
    order = [named[0], named[0] if paired else named[1]]
    sums = [_sums(side, names, depth) for side, names in zip(sides, order, strict=True)]
    rng = np.random.default_rng(seed)
    observed = _statistic(sums[0].sum(axis=0), sums[1].sum(axis=0), statistic)
    dealt = _dealt(sums, paired, permutations, rng)
    others = _statistic(*dealt, statistic)
    # What only rounding makes smaller counts as equal.
    extreme = int((np.abs(others) >= np.abs(observed) * (1 - 1e-9)).sum())
    gap, table = _differences(sums, paired, level, draws, seed)
    return SurvivalComparison(
        groups=(str(a), str(b)),
        depth=depth,
        difference=gap,
        statistic=statistic,
        p_value=(1 + extreme) / (1 + permutations),
        permutations=permutations,
        paired=paired,
        table=table,
        n_rounds=(len(sides[0]), len(sides[1])),
        n_prompts=(len(named[0]), len(named[1])),
    )


def _two(rounds: pd.DataFrame, by: str, groups: Sequence[str] | None) -> tuple[str, str]:
    _need_rounds(rounds, one_name("by", by))
    known = list(dict.fromkeys(rounds[by]))
    chosen = known if groups is None else listed("groups (two of them)", groups)
    if len(chosen) != 2 or chosen[0] == chosen[1]:
        raise ValueError(f"Name two groups of {by!r} to compare; it has {known}.")
    for each in chosen:
        if each not in known:
            raise ValueError(f"No {by} {each!r} in these rounds; there are {known}.")
    return chosen[0], chosen[1]


def _need_rounds(rounds: object, by: str) -> None:
    if not isinstance(rounds, pd.DataFrame):
        has = isinstance(getattr(type(rounds), "rounds", None), property | cached_property)
        way = "pass its .rounds" if has else "pass replay(trace, policy, drafter).rounds"
        raise ValueError(f"{shown(rounds)} is no table of rounds: {way}.")
    for name in (by, "prompt_id", "drafted", "accepted", "stop"):
        if name not in rounds:
            raise ValueError(
                f"These rounds lack the column {name!r}; they have {list(rounds.columns)}."
            )
    drafted, accepted = rounds["drafted"], rounds["accepted"]
    numbers = is_numeric_dtype(drafted) and is_numeric_dtype(accepted)
    if (
        not numbers
        or rounds[["drafted", "accepted"]].isna().any(axis=None)
        or not np.all((accepted >= 0) & (accepted <= drafted) & (accepted % 1 == 0))
    ):
        raise ValueError("accepted must be a whole number from 0 to drafted in every round.")
    stops = rounds["stop"].isin(STOPS)
    if not stops.all():
        raise ValueError(
            f"A round stops for one of {', '.join(STOPS)}, not for "
            f"{shown(rounds['stop'][~stops].iloc[0])}."
        )
    if rounds[["prompt_id", by]].isna().any(axis=None):
        raise ValueError(f"Some rounds have no prompt_id or no {by!r}: every round needs both.")
    if "policy" in rounds and by != "policy" and rounds["policy"].nunique() > 1:
        names = ", ".join(map(str, dict.fromkeys(rounds["policy"])))
        raise ValueError(
            f"These rounds mix the policies {names}: take those of one, or compare by='policy'."
        )


def _deepest(side: pd.DataFrame) -> int:
    """Deepest token whose fate some round decided."""
    return int((side["accepted"] + (side["stop"] == "reject")).max())


def _sums(side: pd.DataFrame, names: list[str], depth: int) -> Floats:
    """Per prompt: tokens tried and rejected at depths 1..depth. Shape [prompts, 2 depth]."""
    codes = pd.Index(names).get_indexer(pd.Index(side["prompt_id"]))
    event = (side["stop"] == "reject").to_numpy()
    return np.hstack(per_prompt_depth(side["accepted"].to_numpy(), event, codes, len(names), depth))


def _dealt(
    sums: list[Floats], paired: bool, permutations: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Sums of both groups when prompts are dealt at random: [permutations, 2 depth] each."""
    if paired:
        swap = rng.random((permutations, len(sums[0]))) < 0.5
        moved = swap @ (sums[1] - sums[0])
        return sums[0].sum(axis=0) + moved, sums[1].sum(axis=0) - moved
    every = np.vstack(sums)
    mine = np.zeros((permutations, len(every)), dtype=bool)
    mine[:, : len(sums[0])] = True
    mine = rng.permuted(mine, axis=1)
    first = mine @ every
    return first, every.sum(axis=0) - first


def _survival(sums: Floats) -> Floats:
    """Kaplan-Meier of tried and rejected tokens over the last axis; flat where none was tried."""
    tried, failed = np.split(sums, 2, axis=-1)
    share = np.divide(failed, tried, out=np.zeros_like(tried), where=tried > 0)
    return np.cumprod(1 - share, axis=-1)


def _statistic(a: Floats, b: Floats, statistic: str) -> NDArray[np.float64]:
    if statistic == "tokens":
        return np.asarray((_survival(a) - _survival(b)).sum(axis=-1))
    (tried_a, failed_a), (tried_b, failed_b) = (np.split(each, 2, axis=-1) for each in (a, b))
    tried = tried_a + tried_b
    share = np.divide(tried_a, tried, out=np.zeros_like(tried), where=tried > 0)
    return np.asarray((failed_a - share * (failed_a + failed_b)).sum(axis=-1))


def _differences(
    sums: list[Floats], paired: bool, level: float, draws: int, seed: int
) -> tuple[Interval, pd.DataFrame]:
    """The difference of tokens per round, and of survival at every depth, with intervals."""
    depth = sums[0].shape[1] // 2
    totals = [each.sum(axis=0) for each in sums]
    if paired:
        both = resampled_sums(np.hstack(sums), draws, seed)
        drawn = [both[:, : 2 * depth], both[:, 2 * depth :]]
    else:
        drawn = [resampled_sums(each, draws, seed + i) for i, each in enumerate(sums)]
    curves, gaps = [_survival(each) for each in totals], _survival(drawn[0]) - _survival(drawn[1])
    fewest = min(map(len, sums))
    low, high = percentiles(gaps, level, fewest)
    table = pd.DataFrame(
        {
            "depth": np.arange(1, depth + 1),
            "survival_a": curves[0],
            "survival_b": curves[1],
            "difference": curves[0] - curves[1],
            "low": low,
            "high": high,
            "at_risk_a": totals[0][:depth].astype(int),
            "at_risk_b": totals[1][:depth].astype(int),
        }
    )
    ends = percentiles(gaps.sum(axis=1), level, fewest)
    prompts = len(sums[0]) if paired else len(sums[0]) + len(sums[1])
    estimate = float((curves[0] - curves[1]).sum())
    return Interval(estimate, float(ends[0]), float(ends[1]), level, prompts, draws, seed), table
