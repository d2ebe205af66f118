"""Several drafts for one position: recursive rejection down a tree (F3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.acceptance import draft_probs, residual, target_probs
from specviz.engine.picking import Drawn, Pick
from specviz.engine.protocols import Draft, Rows, Verdict
from specviz.engine.sampling import RAW, Dice, Sampling
from specviz.engine.tree import children


@dataclass(frozen=True)
class RecursiveRejection:
    """Offer a node's children one after another, each against what is left of p (F3.6).

    A child x is kept with probability min(1, p(x) / q(x)); otherwise p becomes (p - q)+
    rescaled, and the next child is tried. Lossless under the way of drawing that
    `replacement` states, where siblings share one q row:

    - True (SpecInfer): siblings were drawn from it independently;
    - False (Sequoia): each was drawn from it without its elder siblings' tokens, rescaled.

    Siblings with rows of their own are lossless, too, under True, if each row is the law of
    its token given its elder siblings. Point drafts (distinct siblings) keep each position
    with the probability of all the tokens drafted there, under either; a tree that was pruned
    by the tokens in it must be given as one, without q. On a chain this is `Rejection`; at
    temperature 0 it is `Greedy`.

    Source: Miao et al. 2023 (SpecInfer, arXiv 2305.09781); Chen et al. 2024 (Sequoia, arXiv
    2402.12374).

    Examples
    --------
    >>> rows = Rows(torch.tensor([[0.7, 0.3, 0.0]] * 3).log())
    >>> both = Draft(0, (0, 1), (-1, -1), (0.0, 0.0))        # point drafts that hold all of p
    >>> RecursiveRejection(True)(both, rows, torch.Generator().manual_seed(0)).full
    True
    """

    replacement: bool
    sampling: Sampling = RAW
    lossless: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"recursive-{'with' if self.replacement else 'without'}-replacement"

    def pick(self, seed: int, anchor: int) -> Pick:
        return Drawn(self.sampling, seed, anchor, self.replacement)

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.decide(draft, target_probs(draft, rows, self.sampling), Dice(rng))

    def decide(self, draft: Draft, p: torch.Tensor, dice: Dice) -> Verdict:
        q, below = draft_probs(draft, p), children(draft.parents)
        path: list[int] = []
        here = -1
        while True:
            siblings = below.get(here, [])
            node, left = self._offer(draft, siblings, p[here + 1], q, dice)
            if node is None:
                return Verdict(tuple(path), dice.draw(left), full=not siblings)
            path.append(node)
            here = node

    def _offer(
        self, draft: Draft, siblings: list[int], p: torch.Tensor, q: torch.Tensor, dice: Dice
    ) -> tuple[int | None, torch.Tensor]:
        """The sibling that is kept, if one is, and what is left of p."""
        refused: list[int] = []
        for node in siblings:
            token = draft.tokens[node]
            law = q[node] if self.replacement else _without(q[node], refused)
            own = float(law[token])
            if not own > 0:
                raise ValueError(
                    f"Drafted token {token} (node {node}) has q = {own:g} among its siblings: it "
                    f"cannot have been drawn from it {'with' if self.replacement else 'without'} "
                    "replacement."
                )
            if dice.coin(min(1.0, float(p[token]) / own)):
                return node, p
            rest = residual(p, law)
            p = rest / rest.sum()
            refused.append(token)
        return None, p


def _without(q: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """q without some tokens, rescaled; all zero when nothing is left."""
    if not tokens:
        return q
    rest = q.clone()
    rest[tokens] = 0
    total = rest.sum()
    return rest / total if total > 0 else rest
