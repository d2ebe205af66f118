"""What a round with a captured tree would accept at every anchor, at any budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from specviz.analysis.anchors import Ints, anchors_of
from specviz.refuse import whole
from specviz.trace import Trace
from specviz.trace.remembered import per_trace


@dataclass(frozen=True)
class TreeRounds:
    """Per anchor of `Anchors`, shape [A]: what the tree of one budget gives there.

    Attributes
    ----------
    drafted
        Depth of the tree, cut at the limit as the live loop cuts it.
    accepted
        Nodes on the realised path, short of the output's last token.
    nodes
        Nodes that are verified.
    """

    drafted: Ints
    accepted: Ints
    nodes: Ints


def tree_rounds(trace: Trace, drafter: str, builder: str, budget: int) -> TreeRounds:
    """Rounds of one captured tree, cut to its first `budget` nodes.

    Raises
    ------
    ValueError
        When the capture has no such tree, or not at this budget; the sentence says which it has.

    Examples
    --------
    >>> tree_rounds(trace, "lm", "best-first-d7", 32).accepted.mean()        # doctest: +SKIP
    """
    known = trace.meta.trees.get(drafter, {})
    if builder not in known:
        raise ValueError(
            f"This capture has no {builder} trees by {drafter!r}; it has "
            f"{', '.join(known) or 'none'}: capture again with trees=[...]."
        )
    size, nested = int(known[builder]["nodes"]), bool(known[builder]["nested"])
    if budget < 1 or budget > size or (budget != size and not nested):
        most = f"1 to {size}" if nested else f"exactly {size}"
        raise ValueError(
            f"{builder} trees by {drafter!r} were captured with {size} nodes and replay at "
            f"{most}, not at {budget}."
        )
    anchors = anchors_of(trace, drafter)
    grown = _grown(trace, drafter, builder)
    drafted, nodes = (many[:, budget - 1].astype(np.int64) for many in (grown.deep, grown.nodes))
    held = ((grown.enter > 0) & (grown.enter <= budget)).sum(axis=1)
    left = anchors.n[anchors.owner] - 2 - anchors.anchor
    accepted = np.minimum(np.minimum(held, drafted), left)
    return TreeRounds(drafted, accepted.astype(np.int64), nodes)


@dataclass(frozen=True)
class _Grown:
    """One builder's trees at every anchor and budget b = 1..size, in column b - 1.

    `deep` is how deep the tree is, `nodes` how many nodes it has: near the limit the loop grows
    the whole tree and leaves out what is too deep. `enter` is the trace's column [A, K].
    """

    enter: NDArray[np.int16]
    deep: NDArray[np.int8]
    nodes: NDArray[np.int16]


@per_trace
def _grown(trace: Trace, drafter: str, builder: str) -> _Grown:
    anchors, size = anchors_of(trace, drafter), int(trace.meta.trees[drafter][builder]["nodes"])
    columns = ["seq", "anchor", "drafter", "builder", "node_depth", "enter_budget"]
    trees = trace.table("trees", columns)
    mine = pc.and_(pc.equal(trees["drafter"], drafter), pc.equal(trees["builder"], builder))
    trees = trees.filter(mine)
    trees = trees.take(np.lexsort((trees["anchor"].to_numpy(), trees["seq"].to_numpy())))
    if len(trees) != len(anchors.owner):
        raise ValueError(
            f"{builder} trees by {drafter!r} are missing at some anchors: see trace.validate()."
        )
    column = trees["enter_budget"].combine_chunks()
    enter = column.flatten().to_numpy(zero_copy_only=False).reshape(len(trees), -1)
    depths = trees["node_depth"].combine_chunks()
    many = np.asarray(pc.list_value_length(depths).to_numpy(), np.int64)
    there = np.arange(size) < many[:, None]
    depth = np.zeros((len(trees), size), np.int8)
    depth[there] = depths.flatten().to_numpy(zero_copy_only=False)
    depth[depth > anchors.room[:, None]] = 0
    return _Grown(
        enter,
        np.maximum.accumulate(depth, axis=1),
        np.cumsum(depth > 0, axis=1, dtype=np.int16),
    )


def rank_acceptance(trace: Trace, drafter: str | None = None, ranks: int = 8) -> tuple[float, ...]:
    """How often the drafter's candidate of each rank is the target's token: what Sequoia needs.

    Entry r is the share of places at which the target's token has rank r (0 is the drafter's
    likeliest), given the output up to there; pooled over anchors and depths. Take it from other
    prompts than those the tree is judged on.

    Parameters
    ----------
    trace
        A capture.
    drafter
        None takes the trace's only one.
    ranks
        How many ranks to return.

    Raises
    ------
    ValueError
        When the trace has no drafts, or the drafter's ranks are unknown (point drafts know one).

    Examples
    --------
    >>> Sequoia(rank_acceptance(trace, "lm"), budget=32)                     # doctest: +SKIP
    """
    whole("ranks", ranks, least=1)
    rank = trace.matrix("path_rank", drafter)
    offered = ~np.isnan(trace.matrix("overlap", drafter))
    seen = rank[offered]
    if not len(seen):
        raise ValueError("This trace has no drafts whose ranks are known: capture with a drafter.")
    return tuple(float(np.mean(seen == r)) for r in range(ranks))
