"""What a token tree can give when every path's probability is known (T5.3).

A draft of fixed tokens meets a target that samples, or whatever else decides with known chances
which path is realised. The accepted tokens are the tree's nodes on the realised path, so that
their expected number is the sum of the nodes' path probabilities. Accepted counts leave the
bonus out; tau counts it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specviz.analysis.resampling import Floats
from specviz.refuse import whole

Path = tuple[int, ...]
#: P(next token) after the tokens of a path below the anchor, [V]; `()` is the anchor itself. It
#: may sum to less than 1: some tokens are then never drafted.
Conditional = Callable[[Path], ArrayLike]

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PathTree:
    """A tree as the token paths of its nodes, parents first, with their probabilities.

    Attributes
    ----------
    paths
        Tokens from below the anchor to each node.
    chances
        P(the realised tokens begin with that path), one per node.
    """

    paths: tuple[Path, ...]
    chances: Floats

    @property
    def accepted(self) -> float:
        """Expected accepted tokens per round, the bonus not counted: the sum of `chances`."""
        return float(self.chances.sum())

    @property
    def tau(self) -> float:
        """Expected tokens per round, the bonus counted."""
        return 1.0 + self.accepted


def expected_accepted(parents: Sequence[int], chances: ArrayLike) -> float:
    """Expected accepted tokens of a tree, the bonus not counted (T5.3).

    Parameters
    ----------
    parents
        Index of each node's parent, -1 for the anchor; parents come before children.
    chances
        Per node, P(its token comes next | its parent was realised). With a drafter's own q this
        is what it expects of its tree, and how far it is right shows against the accepted
        tokens that were counted.

    Returns
    -------
    float
        Sum over nodes of the product of chances on the way to it; of a chain, F2.1 less 1.

    Raises
    ------
    ValueError
        When the parents are no tree, or siblings have more than all of the probability.

    Examples
    --------
    >>> expected_accepted([-1, -1, 0], [0.5, 0.25, 0.5])
    1.0
    """
    given = np.asarray(chances, dtype=float)
    if given.shape != (len(parents),):
        raise ValueError(
            f"A tree needs one chance per node: {len(parents)} parents, and chances of shape "
            f"{given.shape}."
        )
    if np.any(~((given >= 0) & (given <= 1))):
        raise ValueError("Chances are probabilities between 0 and 1.")
    below = np.zeros(len(parents) + 1)  # the last entry is the anchor's, index -1
    reached = np.append(np.zeros(len(parents)), 1.0)
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise ValueError(f"Node {node} has parent {parent}: parents come before children.")
        reached[node] = reached[parent] * given[node]
        below[parent] += given[node]
    if below.max() > 1 + _ROUNDING:
        crowded = int(below.argmax())
        where = "the anchor" if crowded == len(parents) else f"node {crowded}"
        raise ValueError(
            f"The children of {where} have chances that sum to {below.max():.6g}: siblings "
            "exclude each other, so it must be at most 1."
        )
    return float(reached[:-1].sum())


def tree_chances(paths: Sequence[Path], conditional: Conditional) -> PathTree:
    """Any tree under the true conditionals.

    A tree that was built from other ones, such as a block drafter's marginals, has another
    value here than the one it was built for (T6.3).

    Parameters
    ----------
    paths
        Token path of every node, parents before children.
    conditional
        True distribution of the next token after a path.

    Raises
    ------
    ValueError
        When a path comes twice or before its parent, or a row is no distribution.

    Examples
    --------
    >>> tree_chances([(0,), (0, 1)], lambda path: [0.75, 0.25]).chances.tolist()
    [0.75, 0.1875]
    """
    reached: dict[Path, float] = {(): 1.0}
    rows: dict[Path, Floats] = {}
    for path in map(tuple, paths):
        above = path[:-1]
        if path in reached or above not in reached:
            raise ValueError(f"Path {path} comes twice, or before its parent {above}.")
        if above not in rows:
            rows[above] = _row(conditional, above)
        if not 0 <= path[-1] < len(rows[above]):
            raise ValueError(f"Path {path} leaves the vocabulary of {len(rows[above])} tokens.")
        reached[path] = reached[above] * float(rows[above][path[-1]])
    del reached[()]
    return PathTree(tuple(reached), np.fromiter(reached.values(), dtype=float))


def best_tree(conditional: Conditional, nodes: int, depth: int | None = None) -> PathTree:
    """The tree of `nodes` nodes with the most expected accepted tokens (T5.3).

    Exact: the most probable paths, found best first. A path is never more probable than its
    beginning, so these paths are a tree. In order of probability, so that the first n paths
    are the best tree of n nodes.

    Parameters
    ----------
    conditional
        Distribution of the next token after a path; asked once for every node.
    nodes
        Nodes wanted; fewer come back where no other path has any probability.
    depth
        Longest path; None for no limit.

    Raises
    ------
    ValueError
        For a size below 1, or when a row is no distribution.

    Examples
    --------
    >>> round(best_tree(lambda path: [1 / 3] * 3, nodes=7).tau, 5)
    2.44444
    """
    whole("nodes", nodes, least=1)
    deepest = nodes if depth is None else whole("depth", depth, least=1)
    kept: list[tuple[Path, float]] = []
    heap: list[tuple[float, int, Path]] = [(-1.0, 0, ())]  # ties: parents, then smaller tokens
    while heap and len(kept) <= nodes:
        minus, length, path = heapq.heappop(heap)
        kept.append((path, -minus))
        if length == deepest or len(kept) > nodes:
            continue
        row = _row(conditional, path)
        for token in np.argsort(-row, kind="stable")[:nodes].tolist():
            if row[token] > 0:
                heapq.heappush(heap, (minus * float(row[token]), length + 1, (*path, token)))
    paths, chances = zip(*kept, strict=True)
    return PathTree(paths[1:], np.array(chances[1:]))


def best_chain(conditional: Conditional, k: int) -> PathTree:
    """The chain of k tokens with the most expected accepted tokens.

    Not always the greedy one: a likely token may lead to where nothing is likely. Exact, by
    depth-first search that gives up a token when even certainty after it would not do; on flat
    distributions that is still about V^k rows, so keep k small there.

    Parameters
    ----------
    conditional
        Distribution of the next token after a path.
    k
        Tokens of the chain; fewer come back where nothing has any probability.

    Raises
    ------
    ValueError
        For k below 1, or when a row is no distribution.

    Examples
    --------
    >>> round(best_chain(lambda path: [1 / 3] * 3, k=7).tau, 5)
    1.49977
    """

    def search(path: Path, left: int) -> tuple[float, Path]:
        if left == 0:
            return 0.0, ()
        row = _row(conditional, path)
        best: float = 0.0
        chosen: Path = ()
        for token in np.argsort(-row, kind="stable").tolist():
            p = float(row[token])
            if p * left <= best:
                break
            value, tail = search((*path, token), left - 1)
            if p * (1 + value) > best:
                best, chosen = p * (1 + value), (token, *tail)
        return best, chosen

    _, tokens = search((), whole("k", k, least=1))
    return tree_chances([tokens[:j] for j in range(1, len(tokens) + 1)], conditional)


def sequoia_tau(rank_acceptance: ArrayLike, nodes: int, depth: int | None = None) -> Floats:
    """Expected tokens per round, bonus counted, of the best tree of 0, 1, ..., `nodes` nodes.

    Sequoia's dynamic programme (Chen et al. 2024, arXiv:2402.12374): a subtree of n nodes gives
    1 + the best split of the other n - 1 over its children, rank r having its share of chances.
    Where chances depend on the rank only, this is the value of the tree of T5.3.

    Parameters
    ----------
    rank_acceptance
        Share of places at which the candidate of each rank is the target's token, [R].
    nodes
        Largest budget.
    depth
        Most levels of nodes; None for no limit.

    Returns
    -------
    array [nodes + 1]
        Divided by the seconds of a round with as many nodes, its maximum is the best budget.

    Raises
    ------
    ValueError
        When the shares are no probabilities of events that exclude each other.

    Examples
    --------
    >>> sequoia_tau([0.5, 0.25], nodes=3).tolist()
    [1.0, 1.5, 1.75, 2.0]
    """
    shares = _distribution(rank_acceptance, "rank_acceptance")
    rows = whole("nodes", nodes, least=0) + 1  # a tree's root is the anchor, and no node
    levels = rows if depth is None else whole("depth", depth, least=1)
    value = np.ones(rows + 1)  # of a subtree with at most n rows, its root being accepted
    value[0] = 0.0
    for _ in range(levels):
        split = np.zeros(rows)  # best sum over the ranks so far, with at most n rows
        for share in shares[shares > 0]:
            with_rank = split.copy()
            for n in range(1, rows):
                np.maximum(with_rank[n:], share * value[n] + split[: rows - n], out=with_rank[n:])
            split = with_rank
        deeper = np.concatenate([[0.0], 1 + split])
        if np.array_equal(deeper, value):
            break
        value = deeper
    return value[1:]


def _row(conditional: Conditional, path: Path) -> Floats:
    return _distribution(conditional(path), f"The row after path {path}")


def _distribution(p: ArrayLike, name: str) -> Floats:
    row: Floats = np.asarray(p, dtype=float)
    if row.ndim != 1 or not len(row):
        raise ValueError(f"{name} must be one list of probabilities, not of shape {row.shape}.")
    if np.any(~(row >= 0)) or row.sum() > 1 + _ROUNDING:
        raise ValueError(
            f"{name} must hold probabilities that sum to at most 1, not {row[:8].tolist()}."
        )
    return row
