"""Shapes of a token tree, each grown from a drafter's distributions: which nodes are worth it.

A shape is a small frozen object with a budget of `nodes` and a `depth`; its `builder` names it
without that budget. `grow` asks a `Grower` for distributions, one forward pass per level, and
returns a `Draft` whose nodes have their parents before them. Equally probable tokens are taken in
the order of their ids.

Where `nested` is true the nodes stand in the order in which a growing budget admits them, so
that `prune(draft, range(b))` is the tree of budget b, and one captured tree replays at every
budget: see `specviz.engine.tree_drafts.enter_budget`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar, Protocol, runtime_checkable

import torch

from specviz.engine.protocols import Draft
from specviz.engine.tree import MAX_NODES, ROOT, Grower, Growth, Node, Path, best, limited


@runtime_checkable
class Shape(Protocol):
    """What a tree looks like. `nodes` and `depth` are upper limits, `nested` as above."""

    nested: ClassVar[bool]

    @property
    def builder(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def depth(self) -> int: ...
    def grow(self, grower: Grower, anchor: int) -> Draft: ...


@dataclass(frozen=True)
class Chain:
    """The likeliest token after the likeliest token: one branch of `k` nodes.

    Drafter forwards: k.
    """

    k: int
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", limited("k", self.k))

    @property
    def builder(self) -> str:
        return "chain"

    @property
    def nodes(self) -> int:
        return self.k

    @property
    def depth(self) -> int:
        return self.k

    def grow(self, grower: Grower, anchor: int) -> Draft:
        return _grow_ranks(grower, anchor, [(0,) * depth for depth in range(1, self.k + 1)])


@dataclass(frozen=True)
class Cartesian:
    """The likeliest `widths[d - 1]` tokens below every node of depth d - 1.

    The tree of Medusa (Cai et al. 2024, arXiv:2401.10774), whose heads say the same below every
    node of a level. Drafter forwards: one per level.

    Examples
    --------
    >>> Cartesian((4, 2, 1)).nodes
    20
    """

    widths: tuple[int, ...]
    nested: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.widths, Sequence) or len(self.widths) == 0:
            raise ValueError(
                f"widths are one number per depth, such as (4, 2, 1), not {self.widths!r}."
            )
        widths = tuple(limited("A width", width) for width in self.widths)
        object.__setattr__(self, "widths", widths)
        if self.nodes > MAX_NODES:
            raise ValueError(
                f"widths {widths} make {self.nodes} nodes, and a tree has at most {MAX_NODES}."
            )

    @property
    def builder(self) -> str:
        return f"cartesian-{'-'.join(map(str, self.widths))}"

    @property
    def nodes(self) -> int:
        return sum(math.prod(self.widths[:depth]) for depth in range(1, self.depth + 1))

    @property
    def depth(self) -> int:
        return len(self.widths)

    def grow(self, grower: Grower, anchor: int) -> Draft:
        levels = (self.widths[:depth] for depth in range(1, self.depth + 1))
        return _grow_ranks(
            grower, anchor, [path for level in levels for path in product(*map(range, level))]
        )


@dataclass(frozen=True)
class BestFirst:
    """The `budget` nodes of greatest path probability under the drafter, down to `depth`.

    Exact: no tree of so many nodes has more probability in sum (T5.3). OPT-Tree (Wang et al.
    2024, arXiv:2406.17276) does so with an autoregressive drafter, DDTree (arXiv:2604.12989)
    and CAST (Lee 2026, arXiv:2610.00321) with the marginals of a block drafter.

    Drafter forwards: one per level that the tree reaches, at most `depth`. Each takes every
    node that is among the best `budget` found so far and that was not extended yet. A node that
    has fallen behind can never return, so nothing is missed; some nodes extended early fall
    behind later, and those rows are the price of not making one forward pass per node.
    """

    budget: int
    depth: int = 15
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", limited("budget", self.budget))
        object.__setattr__(self, "depth", limited("depth", self.depth))

    @property
    def builder(self) -> str:
        return f"best-first-d{self.depth}"

    @property
    def nodes(self) -> int:
        return self.budget

    def grow(self, grower: Grower, anchor: int) -> Draft:
        growth = Growth(grower, width=self.budget)
        known = growth.below(ROOT)
        while True:
            # The last one admitted has no room for a child.
            fresh = [
                node
                for node in known[: self.budget - 1]
                if len(node.path) < self.depth and not growth.extended(node)
            ]
            if not fresh:
                return growth.draft(anchor, known)
            growth.extend(fresh)
            floor = known[-1].logp if len(known) == self.budget else -math.inf
            known += [child for node in fresh for child in growth.below(node, floor)]
            known = best(known, self.budget)


@dataclass(frozen=True)
class Dynamic:
    """EAGLE-2: expand the best `width` nodes of every level, then keep the `budget` best of all.

    Below each expanded node stand its `width` likeliest tokens; "best" is by path probability.
    With a width of at least the budget this is `BestFirst`; with less it is cheaper and may
    miss nodes. Source: Li et al. 2024, arXiv:2406.16858.

    Drafter forwards: `depth`, of `width` rows each (the first has one).
    """

    width: int = 10
    depth: int = 6
    budget: int = 60
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("width", "depth", "budget"):
            object.__setattr__(self, name, limited(name, getattr(self, name)))

    @property
    def builder(self) -> str:
        return f"dynamic-w{self.width}-d{self.depth}"

    @property
    def nodes(self) -> int:
        return self.budget

    def grow(self, grower: Grower, anchor: int) -> Draft:
        growth = Growth(grower, self.width)
        level = growth.below(ROOT)
        known = list(level)
        for _ in range(1, self.depth):
            if not level:
                break
            growth.extend(level)
            below = [child for node in level for child in growth.below(node)]
            known += below
            level = best(below, self.width)
        return growth.draft(anchor, best(known, self.budget))


@dataclass(frozen=True)
class Sequoia:
    """One shape for every anchor, the best one for how often each rank of the drafter is right.

    Parameters
    ----------
    rank_acceptance
        Entry r: the share of places at which the drafter's candidate of rank r (0 is its
        likeliest token) is the target's token. Shares of different ranks exclude each other,
        so they sum to at most 1.
    budget, depth
        Most nodes, and most levels.

    Notes
    -----
    Sequoia (Chen et al. 2024, arXiv:2402.12374) finds the shape by a dynamic programme. As
    chances depend on the rank only, the nodes of greatest product are the same optimum (T5.3),
    and they are nested by budget. The value of the programme is
    `specviz.analysis.theory.tree.sequoia_tau`; a test holds the two together. Ranks of share 0
    are left out, so that the tree may stay below its budget.

    Drafter forwards: one per level of the shape.

    Examples
    --------
    >>> Sequoia((0.6, 0.3), budget=4).ranks
    ((0,), (0, 0), (1,), (0, 0, 0))
    """

    rank_acceptance: tuple[float, ...]
    budget: int
    depth: int = 15
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        shares = tuple(float(share) for share in self.rank_acceptance)
        if not all(0 <= share <= 1 for share in shares) or not 0 < sum(shares) <= 1 + 1e-9:
            raise ValueError(
                "rank_acceptance holds one share per rank, each between 0 and 1, at least one "
                f"above 0, and at most 1 in sum, not {self.rank_acceptance!r}."
            )
        object.__setattr__(self, "rank_acceptance", shares)
        object.__setattr__(self, "budget", limited("budget", self.budget))
        object.__setattr__(self, "depth", limited("depth", self.depth))

    @property
    def builder(self) -> str:
        return f"sequoia-d{self.depth}-{self._shares_key}"

    @property
    def nodes(self) -> int:
        return self.budget

    @property
    def _shares_key(self) -> str:
        """Two shapes of other shares are two builders."""
        return hashlib.sha256(repr(self.rank_acceptance).encode()).hexdigest()[:4]

    @cached_property
    def ranks(self) -> tuple[Path, ...]:
        """The shape: per node the ranks on its way from the anchor, in order of entry."""
        tree = BestFirst(self.budget, self.depth).grow(_EveryPlaceAlike(self.rank_acceptance), -1)
        ways: list[Path] = []
        for rank, parent in zip(tree.tokens, tree.parents, strict=True):
            ways.append((*(ways[parent] if parent >= 0 else ()), rank))
        return tuple(ways)

    def grow(self, grower: Grower, anchor: int) -> Draft:
        return _grow_ranks(grower, anchor, self.ranks)


class _EveryPlaceAlike:
    """A grower that says the same of every place."""

    def __init__(self, q: Sequence[float]) -> None:
        self.logq = torch.tensor(q, dtype=torch.float64).log()

    def root(self) -> torch.Tensor:
        return self.logq

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        return self.logq.expand(len(parents), -1)


def _grow_ranks(grower: Grower, anchor: int, shape: Sequence[Path]) -> Draft:
    """The tree whose nodes are named by the ranks on their way, parents before children.

    A rank that the drafter has no token for is left out, with all below it.
    """
    growth = Growth(grower, width=1 + max(path[-1] for path in shape))
    inner = {path[:-1] for path in shape}
    found: dict[Path, Node] = {(): ROOT}
    for depth in range(1, 1 + max(map(len, shape))):
        parents = [path for path in found if len(path) == depth - 1 and path in inner]
        if depth > 1 and parents:
            growth.extend([found[path] for path in parents])
        below = {path: growth.below(found[path]) for path in parents}
        for path in shape:
            candidates = below.get(path[:-1], [])
            if len(path) == depth and path[-1] < len(candidates):
                found[path] = candidates[path[-1]]
    return growth.draft(anchor, [found[path] for path in shape if path in found])
