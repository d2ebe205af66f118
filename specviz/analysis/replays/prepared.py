"""Every k of one drafter, counted once, so that another cost or kind of text takes milliseconds.

What a round costs depends on how much it drafts, so rounds are counted per prompt, k and drafted
tokens; a cost model then only weighs these counts. The resamples of prompts are drawn once, too.
The numbers are those of `length_by_k`, `speedup_by_k` and `optimal_k`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.anchors import anchors_of, fixed_rounds
from specviz.analysis.replays.by_k import Sweep, speedups
from specviz.analysis.replays.optimal_k import best_of_curve
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, check_resampling, resampled_sums
from specviz.cost import CostModel, need_cost
from specviz.trace import Trace


@dataclass(frozen=True, eq=False)
class Chances:
    """One kind of text under one cost model.

    Attributes
    ----------
    curve
        One row per k = 0..K: k, tokens_per_round (bonus counted) with tokens_low and tokens_high,
        speedup with low and high, step_ratio (mean seconds of a round over those of a plain step:
        the tokens per round from which drafting pays) with ratio_low and ratio_high, cost,
        n_rounds, n_prompts.
    best
        The row of `OptimalK.table`: k (0: do not draft), speedup, low, high, k_low, k_high,
        k_share, ...
    """

    curve: pd.DataFrame
    best: dict[str, Any]


class PreparedK:
    """All rounds of every fixed k, ready to be priced.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        None takes the only one.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts.

    Raises
    ------
    ValueError
        As `replay`, and when no interval can be made of `level`, `draws` and `seed`.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> from specviz.presets import t4_like
    >>> found = PreparedK(bundled_trace("smollm2-trees"), "lm", draws=100).priced(t4_like(), "code")
    >>> found.best["k"]
    3
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
        anchors = anchors_of(trace, drafter)
        self.drafter, self.k = anchors.drafter, anchors.k
        self.level, self._draws, self._seed = level, draws, seed
        many = self.k + 1
        codes, cells = anchors.cells
        cell_of = codes[anchors.owner]
        counts = np.empty((len(cells), many, many))
        for k in range(many):
            where, drafted, _ = fixed_rounds(anchors, k)
            place = cell_of[where] * many + drafted
            counts[:, k] = np.bincount(place, minlength=len(cells) * many).reshape(-1, many)
        self._tokens = np.bincount(cell_of, minlength=len(cells)).astype(float)
        self._counts = counts
        self._kinds = cells.get_level_values("content_type").to_numpy(dtype=object)
        self._drawn = lru_cache(maxsize=16)(self._resample)

    @property
    def kinds(self) -> list[str]:
        """The kinds of text that have a round, in the order of the trace."""
        return list(dict.fromkeys(self._kinds))

    def priced(self, cost: CostModel, kind: str | None = None) -> Chances:
        """Every k of one kind of text (None: of all together) under a cost model.

        Raises
        ------
        ValueError
            When no such text has a round, `cost` is no cost model, or does not price the drafter.
        """
        known = self._drawn(kind)
        step, prices = cost.plain_seconds, self._prices(cost)
        sweep = known.sweep(known.counts @ prices)
        drawn_seconds = known.drawn_counts @ prices
        resampled = known.drawn_tokens[:, None] / drawn_seconds
        curve = speedups(sweep, "content_type", cost, resampled, self.level)
        ratio = sweep.seconds.sum(axis=0) / sweep.rounds.sum(axis=0) / step
        around = sweep.interval(drawn_seconds / known.drawn_rounds / step, self.level)
        curve = curve.assign(
            tokens_low=known.low,
            tokens_high=known.high,
            step_ratio=ratio,
            ratio_low=around[0],
            ratio_high=around[1],
        )
        return Chances(curve, best_of_curve(curve, resampled, self.level))

    def points(self, cost: CostModel) -> pd.DataFrame:
        """Estimates alone, of every kind: content_type, k, tokens_per_round, speedup."""
        prices, parts = self._prices(cost), []
        for kind in self.kinds:
            tokens, counts = self._of(kind)
            rounds, seconds = counts.sum(axis=(0, 2)), (counts @ prices).sum(axis=0)
            parts.append(
                pd.DataFrame(
                    {
                        "content_type": kind,
                        "k": np.arange(self.k + 1),
                        "tokens_per_round": tokens.sum() / rounds,
                        "speedup": tokens.sum() * cost.plain_seconds / seconds,
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def _prices(self, cost: CostModel) -> Floats:
        priced = need_cost(cost).round_seconds(self.drafter, np.arange(self.k + 1))
        return np.asarray(priced, dtype=float)

    def _of(self, kind: str | None) -> tuple[Floats, Floats]:
        mine = np.full(len(self._kinds), True) if kind is None else self._kinds == kind
        if not mine.any():
            raise ValueError(
                f"No text of {kind!r} has a round here; there is {', '.join(self.kinds)}."
            )
        return self._tokens[mine], self._counts[mine]

    def _resample(self, kind: str | None) -> _Drawn:
        """What no cost model changes: the rounds of one kind of text, and resamples of them."""
        tokens, counts = self._of(kind)
        drawn_tokens, drawn_counts = tokens, counts  # every resample of one prompt is that prompt
        if len(tokens) > 1:
            flat = counts.reshape(len(tokens), -1)
            used = np.flatnonzero(flat.any(axis=0))  # few lengths occur besides k itself
            table = np.column_stack([tokens, flat[:, used]])
            sums = resampled_sums(table, self._draws, self._seed)
            drawn = np.zeros((len(sums), flat.shape[1]))
            drawn[:, used] = sums[:, 1:]
            drawn_tokens, drawn_counts = sums[:, 0], drawn.reshape(len(sums), *counts.shape[1:])
        drawn_rounds = drawn_counts.sum(axis=2)
        nothing = np.full(self.k + 1, np.nan)
        known = _Drawn(
            kind or "all",
            tokens,
            counts,
            drawn_tokens,
            drawn_counts,
            drawn_rounds,
            nothing,
            nothing,
        )
        lengths = known.sweep(np.zeros_like(counts[:, :, 0]))
        low, high = lengths.interval(drawn_tokens[:, None] / drawn_rounds, self.level)
        return replace(known, low=low, high=high)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Of P prompts and B resamples: tokens [P], [B]; rounds by k and drafted tokens [P, k, d]."""

    kind: str
    tokens: Floats
    counts: Floats
    drawn_tokens: Floats
    drawn_counts: Floats
    drawn_rounds: Floats
    low: Floats
    high: Floats

    def sweep(self, seconds: Floats) -> Sweep:
        many = self.counts.shape[1]
        return Sweep(
            self.kind,
            [*range(many)],
            self.tokens,
            self.counts.sum(axis=2),
            self.counts @ np.arange(many),
            seconds,
        )
