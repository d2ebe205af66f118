"""Rounds that are alike, counted together: what a slider needs of them, in a few hundred numbers.

A hundred thousand rounds differ in little: whose prompt, what was drafted, what was accepted.
Seconds under any cost model, tokens per round and survival follow from how often each case occurs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, Ints
from specviz.analysis.replays.simulate import Rounds, priced
from specviz.analysis.resampling import Floats
from specviz.cost import CostModel


@dataclass(frozen=True, eq=False)
class Tally:
    """The cases of a replay's rounds, G of them in P cells (a kind of text and a prompt).

    Attributes
    ----------
    cells
        (content_type, prompt_id) of every cell that has a round, in order of appearance.
    cell, drafter, builder
        Per case, its cell and its indices into `drafters` and `builders`, shape [G].
    drafted, nodes, accepted, rejected
        What the case is: depth, verified draft nodes, accepted tokens, whether the next token
        was rejected (rather than the draft or the text over).
    rounds
        How many rounds are so.
    """

    cells: pd.MultiIndex
    drafters: tuple[str, ...]
    builders: tuple[str, ...]
    cell: Ints
    drafter: Ints
    builder: Ints
    drafted: Ints
    nodes: Ints
    accepted: Ints
    rejected: NDArray[np.bool_]
    rounds: Ints

    @classmethod
    def of(cls, anchors: Anchors, played: Rounds) -> Tally:
        """Count the rounds of a replay."""
        owner, accepted = anchors.owner[played.where], played.accepted
        last = anchors.anchor[played.where] + accepted + 1 == anchors.n[owner] - 1
        codes, cells = anchors.cells
        columns = [
            codes[owner],
            played.drafter,
            played.builder,
            played.drafted,
            played.nodes,
            accepted,
            ((accepted != played.drafted) & ~last).astype(np.int64),
        ]
        if played.nodes is played.drafted:  # chains
            columns[4] = np.zeros(len(owner), dtype=np.int64)
        shape = tuple(int(column.max(initial=0)) + 1 for column in columns)
        key, size = np.ravel_multi_index(columns, shape), int(np.prod(shape, dtype=float))
        if size < 4 * len(key) + 100_000:
            every = np.bincount(key, minlength=size)
            found = np.flatnonzero(every)
            many = every[found]
        else:
            found, many = np.unique(key, return_counts=True)
        case = [np.asarray(column) for column in np.unravel_index(found, shape)]
        if played.nodes is played.drafted:
            case[4] = case[3]
        cell, drafter, builder, drafted, nodes, kept, rejected = case
        return cls(
            cells=cells,
            drafters=played.drafters,
            builders=played.builders,
            cell=cell,
            drafter=drafter,
            builder=builder,
            drafted=drafted,
            nodes=nodes,
            accepted=kept,
            rejected=rejected > 0,
            rounds=many,
        )

    def seconds(self, cost: CostModel) -> Floats:
        """Modelled seconds of one round of each case, shape [G]."""
        names = self.drafters, self.builders
        return priced(names, self.drafter, self.builder, self.drafted, self.nodes, cost)

    def by_cell(self, weights: Floats | Ints) -> Floats:
        """Sum over the rounds of every cell of a number of each case, shape [P]."""
        sums = np.bincount(self.cell, self.rounds * weights, len(self.cells))
        return np.asarray(sums, dtype=float)

    def prompts(self, kind: str | None) -> tuple[NDArray[np.bool_], NDArray[np.intp], int]:
        """Of one kind of text (None: all), its cases [G], their prompts, and how many prompts."""
        kinds = self.cells.get_level_values("content_type").to_numpy()
        some = np.full(len(kinds), True) if kind is None else kinds == kind
        codes = np.full(len(kinds), -1)
        codes[some], names = pd.factorize(self.cells.get_level_values("prompt_id")[some])
        mine = some[self.cell]
        return mine, codes[self.cell[mine]], len(names)
