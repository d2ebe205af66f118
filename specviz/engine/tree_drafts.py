"""Trees that are not chosen by probability, and the one way from a plan's shape to a draft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.picking import ARGMAX, Drawn, Pick
from specviz.engine.protocols import Draft
from specviz.engine.tree import Grower, limited
from specviz.engine.tree_shapes import Cartesian, Shape
from specviz.policies import Plan, TreeSpec


@dataclass(frozen=True)
class SampledTree:
    """`widths[d - 1]` tokens *drawn* from q below every node of depth d - 1.

    Its q rows come with it, for `RecursiveRejection`, which also says whether siblings are drawn
    with replacement. SpecInfer (Miao et al. 2023, arXiv:2305.09781) draws them so, Sequoia
    (arXiv:2402.12374) without. Drafter forwards: one per level.

    Examples
    --------
    >>> SampledTree((2, 2)).nodes
    6
    """

    widths: tuple[int, ...]
    nested: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", Cartesian(self.widths).widths)

    @property
    def builder(self) -> str:
        return f"sampled-{'-'.join(map(str, self.widths))}"

    @property
    def nodes(self) -> int:
        return Cartesian(self.widths).nodes

    @property
    def depth(self) -> int:
        return len(self.widths)

    def draw(self, grower: Grower, anchor: int, pick: Drawn) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        logq: list[torch.Tensor] = []
        entropy: list[torch.Tensor] = []
        rows: list[torch.Tensor] = []
        level, said = [-1], grower.root()[None]
        for depth, width in enumerate(self.widths):
            new: list[int] = []
            for parent, row in zip(level, said, strict=True):
                drawn, q = pick.siblings(row, width)
                new += range(len(tokens), len(tokens) + len(drawn))
                tokens += drawn
                parents += [parent] * len(drawn)
                logq += list(row[drawn])
                entropy += [torch.special.entr(row.exp()).sum()] * len(drawn)
                rows += [q] * len(drawn)
            level = new
            if depth + 1 < self.depth:
                said = grower.extend([parents[n] for n in new], [tokens[n] for n in new])
        own = torch.stack(logq)
        return Draft(
            int(anchor),
            tuple(tokens),
            tuple(parents),
            tuple(own.tolist()),
            tuple(torch.stack(entropy).tolist()),
            tuple(own.exp().tolist()),
            torch.stack(rows),
        )


@dataclass(frozen=True)
class Trie:
    """What an n-gram drafter copies from several places, merged: see `tree.trie`.

    The only shape for a drafter without distributions, and for no other.
    """

    budget: int
    depth: int = 15
    nested: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", limited("budget", self.budget))
        object.__setattr__(self, "depth", limited("depth", self.depth))

    @property
    def builder(self) -> str:
        return f"trie-d{self.depth}"

    @property
    def nodes(self) -> int:
        return self.budget


def enter_budget(shape: Shape | Trie, draft: Draft) -> tuple[int, ...]:
    """Per node of a tree that `shape` grew: the smallest budget at which it belongs to the tree.

    Node i of a nested shape enters at i + 1; a shape that is not nested has one budget.

    Examples
    --------
    >>> from specviz.engine.tree_shapes import Chain
    >>> enter_budget(Chain(3), Draft.chain(9, [5, 6, 7]))
    (1, 2, 3)
    """
    if shape.nested:
        return tuple(range(1, len(draft) + 1))
    return (shape.nodes,) * len(draft)


def grow_tree(spec: TreeSpec, grower: Grower, anchor: int, pick: Pick = ARGMAX) -> Draft:
    """The tree of a plan, from a drafter with distributions.

    Raises
    ------
    ValueError
        When the shape is for n-gram drafters, is none that the engine knows, or is to be drawn
        under a rule that does not draw.
    """
    if isinstance(spec, SampledTree):
        if not isinstance(pick, Drawn):
            raise ValueError(
                "A sampled tree needs a rule for drawn siblings: use acceptance=RecursiveRejection"
                "(replacement), or a shape that chooses its tokens, such as BestFirst."
            )
        return spec.draw(grower, anchor, pick)
    if not isinstance(spec, Shape):
        raise ValueError(
            f"{spec.builder} cannot be grown from a drafter's distributions: use a shape such as "
            "BestFirst(32, depth=7)."
        )
    return spec.grow(grower, anchor)


def refuse_tree(plan: Plan, name: str, instead: str = "no tree (drafts are chains)") -> None:
    """Raise ValueError when a plan asks a drafter without distributions for a tree."""
    if plan.tree is not None:
        raise ValueError(
            f"{name} has no distributions to grow a {plan.tree.builder} tree from: ask it for "
            f"{instead}, or use a drafter such as lm or eagle."
        )
