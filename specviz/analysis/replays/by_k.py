"""Tokens per round and modelled speed-up against k, every k replayed exactly.

Intervals resample prompts within a group, and one resample serves every k, so that a
resample has one best k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, anchors_of, fixed_rounds
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.cost import CostModel, need_cost
from specviz.trace import Trace


def length_by_k(
    trace: Trace,
    drafter: str | None = None,
    by: str = "content_type",
    ks: Sequence[int] | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per round against k, replayed exactly.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        May be left out when the trace has only one.
    by
        "content_type" or "prompt_id".
    ks
        Lengths; by default 1..K of the drafter.
    level, draws, seed
        Of the expanded percentile interval over resampled prompts.

    Returns
    -------
    DataFrame
        The group, k, tokens_per_round (bonus counted) with low and high, accepted_per_round
        (bonus not counted), draft_yield (accepted / drafted; NaN where nothing is drafted),
        n_rounds, n_prompts.

    Raises
    ------
    ValueError
        As `replay`, and when `by` is not one of the two or no interval can be made of
        `level`, `draws` and `seed`.
    """
    check_resampling(level, draws, seed)
    anchors = anchors_of(trace, drafter)
    rows = []
    for sweep in sweeps_of(anchors, None, by, lengths(ks, anchors, 1)):
        low, high = sweep.interval(sweep.draws(sweep.rounds, draws, seed), level)
        rounds, tokens = sweep.rounds.sum(axis=0), sweep.tokens.sum()
        drafted = sweep.drafted.sum(axis=0)
        accepted = tokens - rounds
        rows.append(
            pd.DataFrame(
                {
                    by: sweep.group,
                    "k": sweep.ks,
                    "tokens_per_round": tokens / rounds,
                    "low": low,
                    "high": high,
                    "accepted_per_round": accepted / rounds,
                    "draft_yield": accepted / np.where(drafted > 0, drafted, np.nan),
                    "n_rounds": rounds.astype(int),
                    "n_prompts": len(sweep.tokens),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def speedup_by_k(
    trace: Trace,
    cost: CostModel,
    drafter: str | None = None,
    by: str = "content_type",
    ks: Sequence[int] | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Modelled speed-up over plain decoding against k.

    The tokens of all rounds times the seconds of a plain step, over the modelled seconds of
    the rounds: a ratio of total times, as F7.2 asks. Prefill is in neither. Parameters as for
    `length_by_k`, with the cost model; `ks` is 0..K by default, and k = 0 is exactly 1.

    Returns
    -------
    DataFrame
        The group, k, speedup with low and high, tokens_per_round (bonus counted), cost (the
        model's name), n_rounds, n_prompts. The interval covers the choice of prompts, not the
        noise of the timings behind `cost`.

    Raises
    ------
    ValueError
        As `length_by_k`, and when `cost` is no cost model or does not price the drafter.
    """
    check_resampling(level, draws, seed)
    need_cost(cost)
    anchors = anchors_of(trace, drafter)
    frames = [
        speedups(sweep, by, cost, sweep.draws(sweep.seconds, draws, seed), level)
        for sweep in sweeps_of(anchors, cost, by, lengths(ks, anchors, 0))
    ]
    return pd.concat(frames, ignore_index=True)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Per-prompt sums of one group: tokens [P]; rounds, drafted and seconds [P, len(ks)]."""

    group: Any
    ks: list[int]
    tokens: Floats
    rounds: Floats
    drafted: Floats
    seconds: Floats

    def draws(self, below: Floats, draws: int, seed: int) -> Floats:
        """Tokens over `below` for every resample of the prompts: [draws, len(ks)]."""
        if len(self.tokens) < 2:  # every resample of one prompt is that prompt
            return np.asarray(self.tokens[:, None] / below)
        sums = resampled_sums(np.column_stack([self.tokens, below]), draws, seed)
        return np.asarray(sums[:, :1] / sums[:, 1:])

    def interval(self, resampled: Floats, level: float) -> tuple[Floats, Floats]:
        """Ends of the interval from `draws`; NaN with one prompt."""
        if len(self.tokens) < 2:
            nothing = np.full(len(self.ks), np.nan)
            return nothing, nothing
        return percentiles(resampled, level, len(self.tokens))


def sweeps_of(anchors: Anchors, cost: CostModel | None, by: str, ks: list[int]) -> Iterator[Sweep]:
    """Replay every k once and add up per prompt, group after group."""
    groups = anchors.labels(by)
    pairs = pd.MultiIndex.from_arrays([groups, anchors.prompt_id])
    codes, cells = pd.factorize(pairs)  # one cell per group and prompt
    cell_of = codes[anchors.owner]

    def per_cell(where: NDArray[Any], weights: NDArray[Any] | None = None) -> Floats:
        found = np.bincount(cell_of[where], weights=weights, minlength=len(cells))
        return found.astype(float)

    shape = (len(cells), len(ks))
    rounds, drafted, seconds = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for j, k in enumerate(ks):
        where, drafts, _ = fixed_rounds(anchors, k)
        rounds[:, j], drafted[:, j] = per_cell(where), per_cell(where, drafts)
        if cost is not None:
            priced = cost.round_seconds(anchors.drafter, np.arange(k + 1))
            seconds[:, j] = per_cell(where, np.asarray(priced)[drafts])
    tokens = np.bincount(codes, weights=anchors.n - 1, minlength=len(cells)).astype(float)
    owned: dict[Any, list[int]] = {}
    for row, (group, _) in enumerate(cells):
        if tokens[row] > 0:  # a one-token output has no round
            owned.setdefault(group, []).append(row)
    for group, mine in owned.items():
        yield Sweep(group, ks, tokens[mine], rounds[mine], drafted[mine], seconds[mine])


def lengths(ks: Sequence[int] | None, anchors: Anchors, least: int) -> list[int]:
    chosen = list(range(least, anchors.k + 1)) if ks is None else [int(k) for k in ks]
    if not chosen or min(chosen) < 0 or max(chosen) > anchors.k:
        raise ValueError(
            f"ks must name lengths from 0 to K = {anchors.k}, the longest draft of "
            f"{anchors.drafter!r} in this capture, not {chosen}."
        )
    return chosen


def speedups(
    sweep: Sweep, by: str, cost: CostModel, resampled: Floats, level: float
) -> pd.DataFrame:
    step = cost.plain_seconds
    low, high = sweep.interval(resampled, level)
    tokens, rounds = sweep.tokens.sum(), sweep.rounds.sum(axis=0)
    return pd.DataFrame(
        {
            by: sweep.group,
            "k": sweep.ks,
            "speedup": tokens * step / sweep.seconds.sum(axis=0),
            "low": low * step,
            "high": high * step,
            "tokens_per_round": tokens / rounds,
            "cost": cost.name,
            "n_rounds": rounds.astype(int),
            "n_prompts": len(sweep.tokens),
        }
    )
