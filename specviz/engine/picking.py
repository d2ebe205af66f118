"""How a drafter turns its distribution into a token: the acceptance rule says which way.

A rule that compares p with q is lossless only for tokens that were drawn from q; the other
rules keep more when the drafter proposes its likeliest token. So a rule hands out a `Pick`
for every round (`Acceptance.pick`), and drafters ask it for each token. It keeps no state
beyond its round: a round that is interrupted and asked again draws the same draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from specviz.engine.sampling import Dice, Sampling, race, shared_noise


class Pick(Protocol):
    """Chooses the token of one depth of a draft."""

    def __call__(self, logits: torch.Tensor, depth: int) -> tuple[int, torch.Tensor | None]:
        """A token, and the distribution it was drawn from.

        Parameters
        ----------
        logits
            The drafter's, [vocabulary] (-inf: cannot be said).
        depth
            0 for the first token after the anchor.

        Returns
        -------
        tuple
            The token, and q [vocabulary]; None for a token that was chosen, not drawn.
        """
        ...


class Argmax:
    """The likeliest token: a point draft."""

    def __call__(self, logits: torch.Tensor, depth: int) -> tuple[int, None]:
        return int(logits.argmax(-1)), None


ARGMAX = Argmax()


class Drawn:
    """Tokens drawn from q, one after another in a round.

    Parameters
    ----------
    sampling
        The same as the rule's: q is shaped as p is.
    seed, anchor
        Key of the round's own generator; the rule's draws come from another.
    replacement
        Whether siblings of a tree are drawn independently, or each without its elders' tokens.

    Examples
    --------
    >>> pick = Drawn(Sampling(), seed=0, anchor=3)
    >>> token, q = pick(torch.tensor([0.0, -torch.inf]), 0)
    >>> token, q.tolist()
    (0, [1.0, 0.0])
    """

    def __init__(
        self, sampling: Sampling, seed: int, anchor: int, replacement: bool = False
    ) -> None:
        self.sampling, self.replacement = sampling, replacement
        key = int(np.random.SeedSequence((seed, anchor)).generate_state(1, np.uint64)[0])
        self._dice = Dice(torch.Generator().manual_seed(key))

    def __call__(self, logits: torch.Tensor, depth: int) -> tuple[int, torch.Tensor]:
        q = self.sampling.probs(logits[None])[0]
        return self._dice.draw(q), q

    def siblings(self, logits: torch.Tensor, n: int) -> tuple[list[int], torch.Tensor]:
        """Up to `n` tokens for one place of a tree, and the q they were drawn from.

        Without replacement there are fewer where q has fewer tokens.
        """
        q = self.sampling.probs(logits[None])[0]
        left = q.clone()
        tokens: list[int] = []
        while len(tokens) < n and bool(left.any()):
            tokens.append(self._dice.draw(left))
            if not self.replacement:
                left[tokens[-1]] = 0
        return tokens, q


@dataclass(frozen=True)
class Raced:
    """The winner of the race between q and the noise of the token's position (F3.3).

    A target that races p against the same noise often wishes for the same token. The token is
    a function of q and the seed, so it counts as chosen.
    """

    sampling: Sampling
    seed: int
    anchor: int

    def __call__(self, logits: torch.Tensor, depth: int) -> tuple[int, None]:
        q = self.sampling.probs(logits[None])[0]
        return race(q, shared_noise(self.seed, self.anchor + 1 + depth, len(q))), None


class TakesChosen:
    """For rules that keep more of what a drafter is surest of."""

    def pick(self, seed: int, anchor: int) -> Pick:
        return ARGMAX
