"""One drafter's captured trees at any budget, counted per prompt and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd

from specviz.analysis.anchors import anchors_of, fixed_rounds
from specviz.analysis.replays.tree_rounds import tree_rounds
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.trace import Trace

CHAIN = "chain"


class TreeSweep:
    """Tokens per round and verified rows of every builder and budget: what `length_by_nodes` tells.

    Parameters
    ----------
    trace
        A greedy capture with trees.
    drafter
        None takes the only one.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts.

    Raises
    ------
    ValueError
        When the capture has no trees by this drafter.
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
        self._trace, self._anchors = trace, anchors_of(trace, drafter)
        self.drafter, self.k = self._anchors.drafter, self._anchors.k
        self.builders = dict(trace.meta.trees.get(self.drafter, {}))
        if not self.builders:
            raise ValueError(
                f"This capture has no trees by {self.drafter!r}: capture with trees=[...]."
            )
        self._level, self._draws, self._seed = level, draws, seed
        codes, cells = self._anchors.cells
        self._cell = codes[self._anchors.owner]
        self._kinds = cells.get_level_values("content_type").to_numpy(dtype=object)
        self._sums = lru_cache(maxsize=None)(self._replayed)

    @property
    def kinds(self) -> list[str]:
        """The kinds of text that have a round, in the order of the trace."""
        return list(dict.fromkeys(self._kinds))

    def budgets(self, builder: str, wanted: Sequence[int]) -> list[int]:
        """Those of `wanted` at which this builder replays."""
        if builder == CHAIN:
            return [n for n in wanted if n <= self.k]
        size = int(self.builders[builder]["nodes"])
        return [n for n in wanted if n <= size] if self.builders[builder]["nested"] else [size]

    def table(self, shapes: Sequence[tuple[str, int]], kind: str | None = None) -> pd.DataFrame:
        """One row per (builder, nodes), "chain" for a chain of as many tokens.

        Returns
        -------
        DataFrame
            builder, nodes, tokens_per_round (bonus counted), low, high, rows_per_round (rows the
            target verifies, the anchor's among them), n_rounds, n_prompts.

        Raises
        ------
        ValueError
            When no text of the kind has a round, or the capture has no such tree.
        """
        mine = np.full(len(self._kinds), True) if kind is None else self._kinds == kind
        if not mine.any():
            raise ValueError(f"No text of {kind!r} has a round in this capture.")
        sums = np.stack([self._sums(builder, nodes)[mine] for builder, nodes in shapes], axis=1)
        prompts, many, _ = sums.shape
        total = sums.sum(axis=0)
        low = high = np.full(many, np.nan)
        if prompts > 1:
            pair = np.ascontiguousarray(sums[:, :, :2]).reshape(prompts, -1)
            drawn = resampled_sums(pair, self._draws, self._seed).reshape(-1, many, 2)
            low, high = percentiles(drawn[..., 0] / drawn[..., 1], self._level, prompts)
        return pd.DataFrame(
            {
                "builder": [builder for builder, _ in shapes],
                "nodes": [nodes for _, nodes in shapes],
                "tokens_per_round": total[:, 0] / total[:, 1],
                "low": low,
                "high": high,
                "rows_per_round": total[:, 2] / total[:, 1],
                "n_rounds": total[:, 1].astype(int),
                "n_prompts": prompts,
            }
        )

    def _replayed(self, builder: str, nodes: int) -> Floats:
        """Per prompt: tokens, rounds, rows. [prompts, 3]"""
        if builder == CHAIN:
            where, drafted, accepted = fixed_rounds(self._anchors, nodes)
            verified = drafted + 1
        else:
            found = tree_rounds(self._trace, self.drafter, builder, nodes)
            # A tree's rounds follow one another as a chain's do, with its own lengths.
            grown = replace(self._anchors, acceptable=found.accepted, offered=found.drafted)
            where, _, accepted = fixed_rounds(grown, int(self.builders[builder]["depth"]))
            verified = found.nodes[where] + 1
        cell, many = self._cell[where], len(self._kinds)
        return np.stack(
            [np.bincount(cell, w, many) for w in (accepted + 1, np.ones(len(where)), verified)],
            axis=1,
        ).astype(float)
