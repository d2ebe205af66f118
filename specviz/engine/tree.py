"""Token trees: how a drafter grows one, and what can be asked of a tree once it is grown.

There is one tree type, `specviz.engine.protocols.Draft`. The shapes that a tree may have are in
`specviz.engine.tree_shapes`; `trie` is the one for drafters without probabilities.

Most shapes *choose* their tokens (the most probable ones): to an acceptance rule these are point
drafts, without q. Only `SampledTree` draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from specviz.engine.protocols import Draft
from specviz.refuse import whole

Path = tuple[int, ...]

#: Most nodes of a tree.
MAX_NODES = 128


@runtime_checkable
class Grower(Protocol):
    """A drafter at one anchor, asked for whole distributions while a tree grows.

    Rows are ln q over the target's vocabulary (-inf: cannot be said). Every call is one forward
    pass of the drafter. A grower is used for one tree and then thrown away.
    """

    def root(self) -> torch.Tensor:
        """ln q [V] of the token after the anchor."""
        ...

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """ln q [n, V] after each of n new nodes, which see their ancestors and no other node.

        Nodes are numbered 0, 1, ... in the order in which they were extended; parent -1 is the
        anchor. A parent has always been extended by an earlier call.
        """
        ...


def limited(name: str, value: object) -> int:
    """`value` as an int, if it is a size that a tree may have: 1 to `MAX_NODES`."""
    size = whole(name, value, least=1)
    if size > MAX_NODES:
        raise ValueError(f"{name} is {size}, and a tree has at most {MAX_NODES} nodes.")
    return size


def ancestors(parents: Sequence[int]) -> torch.Tensor:
    """Bool [n, n]: whether column's node is row's node or lies on its way to the anchor.

    This is the attention mask among the nodes of one forward pass. `parents` is as in `Draft`.

    Examples
    --------
    >>> ancestors([-1, 0, 0]).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"Node {node} has parent {parent}: parents come before children.")
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def children(parents: Sequence[int]) -> dict[int, list[int]]:
    """The nodes below each node that has any, in order; those below the anchor under -1.

    Examples
    --------
    >>> children([-1, 0, 0, -1])
    {-1: [0, 3], 0: [1, 2]}
    """
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        below.setdefault(parent, []).append(node)
    return below


def chains(draft: Draft) -> list[tuple[int, ...]]:
    """The nodes of every branch, anchor to leaf, in the order of the leaves.

    Examples
    --------
    >>> chains(Draft(9, (1, 2, 3), (-1, 0, -1), (0.0,) * 3))
    [(0, 1), (2,)]
    """
    inner = set(draft.parents)
    way: list[tuple[int, ...]] = []
    for node, parent in enumerate(draft.parents):
        way.append((*(way[parent] if parent >= 0 else ()), node))
    return [path for node, path in enumerate(way) if node not in inner]


def follow(draft: Draft, tokens: Sequence[int]) -> tuple[int, ...]:
    """The nodes that agree with the beginning of `tokens`, as far as the tree goes along.

    Examples
    --------
    >>> follow(Draft(9, (1, 2, 3), (-1, 0, 0), (0.0,) * 3), [1, 3, 3])
    (0, 2)
    """
    below = children(draft.parents)
    path: list[int] = []
    for token in tokens:
        inside = below.get(path[-1] if path else -1, [])
        match = next((node for node in inside if draft.tokens[node] == token), None)
        if match is None:
            break
        path.append(match)
    return tuple(path)


def prune(draft: Draft, kept: Sequence[int]) -> Draft:
    """The tree of some nodes only, renumbered in their old order.

    Parameters
    ----------
    draft
        Any tree.
    kept
        Nodes; with a node, its parent must stay, too.

    Raises
    ------
    ValueError
        When a node is not in the draft, or is kept without its parent.

    Examples
    --------
    >>> tree = Draft(9, (1, 2, 3), (-1, 0, -1), (0.0,) * 3)
    >>> prune(tree, [0, 2]).tokens
    (1, 3)
    """
    nodes = sorted(set(kept))
    number = {-1: -1} | {node: new for new, node in enumerate(nodes)}
    if nodes and not 0 <= nodes[0] <= nodes[-1] < len(draft):
        raise ValueError(f"Nodes to keep are numbered 0 to {len(draft) - 1}, not {nodes}.")
    for node in nodes:
        if draft.parents[node] not in number:
            raise ValueError(
                f"Node {node} cannot stay without its parent {draft.parents[node]}: keep both."
            )

    def some(column: Sequence[float]) -> tuple[float, ...]:
        return tuple(column[node] for node in nodes) if column else ()

    return Draft(
        draft.anchor,
        tuple(draft.tokens[node] for node in nodes),
        tuple(number[draft.parents[node]] for node in nodes),
        some(draft.logq),
        some(draft.entropy),
        some(draft.confidence),
        None if draft.q is None else draft.q[nodes],
    )


def shallow(draft: Draft, depth: int) -> Draft:
    """The nodes of at most this depth: near the limit of a generation, deeper ones are in vain.

    Examples
    --------
    >>> shallow(Draft.chain(9, [1, 2, 3]), 2).tokens
    (1, 2)
    """
    whole("depth", depth, least=0)
    return prune(draft, [node for node, below in enumerate(draft.depths()) if below <= depth])


def trie(continuations: Sequence[Sequence[int]], anchor: int, budget: int) -> Draft:
    """Several copied continuations merged into one tree, as point drafts.

    Parameters
    ----------
    continuations
        What followed earlier matches, the most recent match first.
    anchor
        Last committed token.
    budget
        Most nodes, 1 to 128.

    Returns
    -------
    Draft
        The nodes that most continuations pass through, of equally supported ones those of the
        more recent continuation. In that order, so that the tree of a smaller budget is its
        beginning. `confidence` is the share of the parent's continuations that go through the
        node: a score, not a probability.

    Raises
    ------
    ValueError
        For a budget that no tree has.

    Examples
    --------
    >>> tree = trie([[5, 6], [7, 6], [7, 8]], anchor=9, budget=4)
    >>> tree.tokens, tree.parents
    ((7, 5, 6, 6), (-1, -1, 1, 0))
    """
    budget = limited("budget", budget)
    support: dict[Path, int] = {(): len(continuations)}
    recency: dict[Path, int] = {}
    for age, continuation in enumerate(continuations):
        path: Path = ()
        for token in continuation:
            path = (*path, int(token))
            support[path] = support.get(path, 0) + 1
            recency.setdefault(path, age)
    # A node has no more support than its parent and is no younger, so parents come first.
    nodes = sorted(recency, key=lambda path: (-support[path], recency[path], len(path)))[:budget]
    number: dict[Path, int] = {(): -1} | {path: node for node, path in enumerate(nodes)}
    n = len(nodes)
    return Draft(
        int(anchor),
        tuple(path[-1] for path in nodes),
        tuple(number[path[:-1]] for path in nodes),
        logq=(0.0,) * n,
        entropy=(0.0,) * n,
        confidence=tuple(support[path] / support[path[:-1]] for path in nodes),
    )


@dataclass(frozen=True)
class Node:
    """A token that may enter the tree; its path of tokens is its name."""

    path: Path
    logp: float  # ln of the product of q along the path
    logq: float
    row: int  # which of the growth's rows it was taken from

    @property
    def order(self) -> tuple[float, int, Path]:
        """Most probable first, parents before children, and no two alike."""
        return -self.logp, len(self.path), self.path


ROOT = Node((), 0.0, 0.0, -1)


def best(nodes: list[Node], n: int) -> list[Node]:
    """The first `n` in `Node.order`."""
    return sorted(nodes, key=lambda node: node.order)[:n]


class Growth:
    """The distributions of a drafter as they come, and the best tokens of each."""

    def __init__(self, grower: Grower, width: int) -> None:
        self.grower, self.width = grower, width
        self._rows: list[torch.Tensor] = []
        self._row: dict[Path, int] = {}  # path of tokens -> number of the row that follows it
        self._best: list[list[tuple[float, int]]] = []  # per row (ln q, token), likeliest first
        self._see([()], grower.root()[None])

    def extended(self, node: Node) -> bool:
        return node.path in self._row

    def extend(self, nodes: Sequence[Node]) -> None:
        """One forward pass. The row after the grower's node i is row i + 1."""
        parents = [self._row[node.path[:-1]] - 1 for node in nodes]
        rows = self.grower.extend(parents, [node.path[-1] for node in nodes])
        self._see([node.path for node in nodes], rows)

    def below(self, node: Node, floor: float = -math.inf) -> list[Node]:
        """The likeliest tokens after an extended node, as far as their path reaches `floor`."""
        row = self._row[node.path]
        nodes: list[Node] = []
        for logq, token in self._best[row]:
            logp = node.logp + min(logq, 0.0)  # rounding must not put a child before its parent
            if logp == -math.inf or logp < floor:
                break
            nodes.append(Node((*node.path, token), logp, logq, row))
        return nodes

    def draft(self, anchor: int, nodes: Sequence[Node]) -> Draft:
        """A tree of some nodes, parents before children."""
        if not nodes:
            return Draft(anchor)
        number: dict[Path, int] = {(): -1} | {node.path: i for i, node in enumerate(nodes)}
        rows = torch.cat(self._rows)
        # Siblings came from one row: reduce it once.
        used, where = torch.tensor([node.row for node in nodes]).unique(return_inverse=True)
        entropy = torch.special.entr(rows[used.to(rows.device)].exp()).sum(-1)
        return Draft(
            int(anchor),
            tuple(node.path[-1] for node in nodes),
            tuple(number[node.path[:-1]] for node in nodes),
            tuple(node.logq for node in nodes),
            tuple(entropy[where.to(entropy.device)].tolist()),
            tuple(math.exp(node.logq) for node in nodes),
        )

    def _see(self, paths: Sequence[Path], rows: torch.Tensor) -> None:
        if rows.ndim != 2 or len(rows) != len(paths):
            raise ValueError(
                f"A grower gives one row of ln q per node: {len(paths)} nodes, and the shape is "
                f"{tuple(rows.shape)}."
            )
        values, ids = _likeliest(rows, self.width)
        for path in paths:
            self._row[path] = len(self._row)
        self._rows.append(rows)
        for logq, tokens in zip(values.tolist(), ids.tolist(), strict=True):
            self._best.append(list(zip(logq, tokens, strict=True)))


def _likeliest(logq: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest entries of every row and where they stand, of equals the first ones first."""
    values, ids = logq.topk(min(width, logq.shape[-1]), -1)
    # topk chooses freely among equals at its edge; a smaller budget must not choose others.
    edge = values[:, -1:]
    torn = ((logq >= edge).sum(-1) > values.shape[-1]) & (edge[:, 0] > -torch.inf)
    if torn.any():
        whole_rows = logq[torn].sort(dim=-1, descending=True, stable=True)
        values[torn] = whole_rows.values[:, : values.shape[-1]]
        ids[torn] = whole_rows.indices[:, : values.shape[-1]]
    by_id = ids.argsort(-1)
    ids, values = ids.gather(-1, by_id), values.gather(-1, by_id)
    by_value = values.argsort(dim=-1, descending=True, stable=True)
    return values.gather(-1, by_value), ids.gather(-1, by_value)
