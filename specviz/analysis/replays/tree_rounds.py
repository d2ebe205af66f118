"""What a round with a captured tree would accept at every anchor, at any budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from specviz.analysis.anchors import Ints, anchors_of
from specviz.refuse import whole
from specviz.trace import Trace


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
    trees = trace.table("trees")
    mine = pc.and_(pc.equal(trees["drafter"], drafter), pc.equal(trees["builder"], builder))
    trees = trees.filter(mine)
    order = np.lexsort((trees["anchor"].to_numpy(), trees["seq"].to_numpy()))
    trees = trees.take(order)
    if len(trees) != len(anchors.owner):
        raise ValueError(
            f"{builder} trees by {drafter!r} are missing at some anchors: see trace.validate()."
        )
    column = trees["enter_budget"].combine_chunks()
    enter = column.flatten().to_numpy(zero_copy_only=False).reshape(len(trees), -1)
    depths = trees["node_depth"].combine_chunks()
    owner = np.asarray(pc.list_parent_indices(depths), dtype=np.int64)
    depth = depths.flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.searchsorted(owner, np.arange(len(trees)))
    place = np.arange(len(owner)) - first[owner]
    # Near the limit the loop grows the whole tree and leaves out what is too deep.
    kept = (place < budget) & (depth <= anchors.room[owner])
    nodes = np.bincount(owner[kept], minlength=len(trees))
    drafted = np.zeros(len(trees), dtype=np.int64)
    np.maximum.at(drafted, owner[kept], depth[kept])
    held = ((enter > 0) & (enter <= budget)).sum(axis=1)
    left = anchors.n[anchors.owner] - 2 - anchors.anchor
    accepted = np.minimum(np.minimum(held, drafted), left)
    return TreeRounds(drafted, accepted.astype(np.int64), nodes.astype(np.int64))


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
