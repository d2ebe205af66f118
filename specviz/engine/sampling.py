"""From logits to tokens: one module for the target's p and the drafter's q, and every draw.

A rule that compares p with q is lossless only for the q a token was really drawn from, so
both sides go through the same `Sampling`. What a rule leaves to chance goes through `Dice`:
nothing else in it is random, and a test can put every outcome in their place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from specviz.refuse import whole

#: A share counts as reached when fp32 rounding alone keeps it away.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Sampling:
    """How a distribution is shaped before a token is drawn from it.

    Parameters
    ----------
    temperature
        Logits are divided by it; 0 puts everything on the argmax.
    top_k
        Keep the `top_k` likeliest tokens, 0 keeps all; ties go to the smallest id.
    top_p
        Then keep the likeliest tokens up to and including the one that brings their
        probability to `top_p`, 1 keeps all.

    Raises
    ------
    ValueError
        When a setting is outside its range.

    Examples
    --------
    >>> logits = torch.tensor([[0.5, 0.3, 0.2]]).log()
    >>> Sampling(top_p=0.6).probs(logits).round(decimals=3).tolist()
    [[0.625, 0.375, 0.0]]
    >>> Sampling(temperature=0).probs(logits).tolist()
    [[1.0, 0.0, 0.0]]
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be 0 (greedy) or a positive number, not {self.temperature!r}."
            )
        whole("top_k (0 keeps every token)", self.top_k, least=0)
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p!r}.")

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return self.temperature == 0

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """Probabilities [n, vocabulary] of logits [n, vocabulary], on their device.

        In fp32, whatever the logits' precision; float64 stays float64.

        Raises
        ------
        ValueError
            When the logits are not a floating-point matrix.
        """
        if logits.ndim != 2 or not logits.is_floating_point():
            raise ValueError(
                "Logits are a floating-point matrix [rows, vocabulary], not "
                f"{logits.dtype} {tuple(logits.shape)}."
            )
        wide = in_full(logits)
        if self.greedy:
            return one_hot(wide.argmax(-1), wide.shape[-1]).to(wide)
        # The maximum goes first: a tiny temperature would overflow.
        p = ((wide - wide.amax(-1, keepdim=True)) / self.temperature).softmax(-1)
        if self.top_k == 0 and self.top_p == 1:
            return p
        falling, ids = p.sort(dim=-1, descending=True, stable=True)
        if self.top_k:
            falling[:, self.top_k :] = 0
            falling = falling / falling.sum(-1, keepdim=True)
        if self.top_p < 1:
            before = falling.cumsum(-1) - falling
            falling = falling.masked_fill(before >= self.top_p * (1 - TOLERANCE), 0)
            falling = falling / falling.sum(-1, keepdim=True)
        return torch.zeros_like(p).scatter(-1, ids, falling)


#: The distribution as the model gives it.
RAW = Sampling()
#: The likeliest token only.
GREEDY = Sampling(temperature=0)


def in_full(logits: torch.Tensor) -> torch.Tensor:
    """Logits in fp32, or in float64 if that is what they are: nothing is reduced in less."""
    return logits if logits.dtype == torch.float64 else logits.float()


def one_hot(tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Point masses [n, vocabulary] on tokens [n], as integers."""
    return torch.nn.functional.one_hot(tokens, vocab_size)


class Dice:
    """The chance in a rule: coins and draws from a CPU generator.

    Rows may live on another device; what is drawn from comes to the CPU, in float64, so that
    one seed gives the same tokens everywhere (as long as the probabilities are the same).

    Examples
    --------
    >>> dice = Dice(torch.Generator().manual_seed(0))
    >>> dice.draw(torch.tensor([0.0, 2.0, 0.0])), dice.coin(1.0), dice.coin(0.0)
    (1, True, False)
    """

    def __init__(self, rng: torch.Generator) -> None:
        self._rng = rng

    def coin(self, chance: float) -> bool:
        """True with probability `chance`."""
        return self._uniform() < chance

    def draw(self, weights: torch.Tensor) -> int:
        """A token with probability proportional to its weight; weights [vocabulary]."""
        held = weights.to("cpu", torch.float64).cumsum(-1)
        total = float(held[-1])
        if not 0 < total < math.inf:
            raise ValueError(f"Nothing can be drawn from weights that sum to {total}.")
        token = int(torch.searchsorted(held, self._uniform() * total, right=True))
        # Rounding may put the mark at the very end: the last token with any weight then.
        return min(token, int(torch.searchsorted(held, total)))

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self._rng, dtype=torch.float64))


def race(p: torch.Tensor, noise: torch.Tensor) -> int:
    """The token that wins the exponential race argmax p / noise; p and noise [vocabulary].

    With independent unit exponentials as noise the winner has law p: this is the Gumbel
    trick, argmax ln p + g, without its logarithms.
    """
    return int((p.to("cpu", torch.float64) / noise).argmax())


def next_noise(keys: torch.Generator, vocab_size: int) -> torch.Tensor:
    """Noise of the next output position, [vocabulary] in float64: takes one key of `keys`."""
    key = int(torch.randint(1 << 62, (), generator=keys))
    return torch.from_numpy(np.random.default_rng(key).standard_exponential(vocab_size))


def shared_noise(seed: int, position: int, vocab_size: int) -> torch.Tensor:
    """Noise that `SharedNoise` uses for output token y[position] in a run with this seed (F3.3).

    A drafter that shares it proposes `race(q, shared_noise(seed, position, vocab_size))` for
    y[position], with q its own distribution there and position 0 the token that prefill
    emits. The noise depends on seed and position only: not on the text, the draft or k.

    Examples
    --------
    >>> noise = shared_noise(seed=0, position=3, vocab_size=4)
    >>> race(torch.tensor([0.0, 0.0, 1.0, 0.0]), noise)
    2
    """
    seed, position = whole("seed", seed, least=0), whole("position", position, least=0)
    keys = torch.Generator().manual_seed(seed)
    torch.randint(1 << 62, (position,), generator=keys)
    return next_noise(keys, whole("vocab_size", vocab_size, least=1))
