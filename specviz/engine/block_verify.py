"""Block verification: how much of the whole draft to keep, decided from its end (F3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.acceptance import (
    check_chain,
    draft_probs,
    likelihood_ratios,
    residual,
    target_probs,
)
from specviz.engine.picking import Drawn, Pick
from specviz.engine.protocols import Draft, Rows, Verdict
from specviz.engine.sampling import RAW, Dice, Sampling


@dataclass(frozen=True)
class BlockVerify:
    """Keep i tokens with probability w_i = min(1, w_(i-1) p(x_i) / q(x_i)), w_0 = 1 (F3.5).

    Token-level rejection multiplies min(1, p / q): what one token has to spare is lost. Here
    it makes up for a later one that falls short, so on average at least as many tokens are
    kept. Lossless when every token was drawn from its q row; when to stop drafting may depend
    on what was drafted. For point drafts it keeps as many as `Rejection`. Chains only;
    `Greedy` at temperature 0.

    Source: Sun et al. 2024 (arXiv 2403.10444).

    Examples
    --------
    >>> rows = Rows(torch.tensor([[0.8, 0.2]] * 3).log())
    >>> draft = Draft.chain(0, [0, 1], q=torch.tensor([[0.5, 0.5]] * 2))
    >>> rng = torch.Generator().manual_seed(0)
    >>> BlockVerify()(draft, rows, rng)          # both with .4: min(1, 1.6) x .4
    Verdict(path=(0,), token=0, full=False)
    """

    sampling: Sampling = RAW
    name: ClassVar[str] = "block"
    lossless: ClassVar[bool] = True

    def pick(self, seed: int, anchor: int) -> Pick:
        return Drawn(self.sampling, seed, anchor)

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.decide(draft, target_probs(draft, rows, self.sampling), Dice(rng))

    def decide(self, draft: Draft, p: torch.Tensor, dice: Dice) -> Verdict:
        check_chain(draft, self.name)
        q = draft_probs(draft, p)
        weights = [1.0]
        for ratio in likelihood_ratios(draft, p, q):
            weights.append(min(1.0, weights[-1] * ratio))
        k = len(draft)
        if dice.coin(weights[k]):
            return Verdict(tuple(range(k)), dice.draw(p[k]), full=True)
        for kept in range(k - 1, 0, -1):
            if dice.coin(_stop_chance(weights[kept], p[kept], q[kept])):
                return _stopped(kept, weights[kept], p, q, dice)
        return _stopped(0, 1.0, p, q, dice)


def _stop_chance(weight: float, p: torch.Tensor, q: torch.Tensor) -> float:
    """Chance to keep exactly these tokens, given that no longer block is kept.

    A longer one is kept with probability 1 - lost - (1 - weight), so that this chance makes
    it `weight` for these tokens or more.
    """
    lost = float((weight * p - q).clamp(min=0).sum())
    missing = lost + 1 - weight
    return lost / missing if missing > 0 else 1.0


def _stopped(kept: int, weight: float, p: torch.Tensor, q: torch.Tensor, dice: Dice) -> Verdict:
    token = dice.draw(residual(weight * p[kept], q[kept]))
    return Verdict(tuple(range(kept)), token, full=False)
