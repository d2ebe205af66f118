"""Rules that keep more than the target's law allows: opt-in, and marked lossy in traces.

Say with every gain what was given up (the share of emitted tokens that are not the target's
argmax, the mean of ln(p_max / p(token)), where the output first leaves the greedy one): after
one swapped token the texts part, so tokens per round are no paired comparison any more.

The relaxations of greedy decoding keep what `allowed(p)` lets pass; on a tree they keep the
longest such path, of several the likeliest. The token after it is the target's argmax, so their
output is a function of the draft: no chance is involved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from specviz.engine.acceptance import check_chain, reject, target_probs
from specviz.engine.picking import Drawn, Pick, TakesChosen
from specviz.engine.protocols import Draft, Rows, Verdict
from specviz.engine.sampling import GREEDY, RAW, TOLERANCE, Dice, Sampling
from specviz.refuse import whole


class Relaxed(TakesChosen):
    """What the relaxations of greedy decoding share: they keep what `allowed(p)` lets pass."""

    sampling: ClassVar[Sampling] = GREEDY
    lossless: ClassVar[bool] = False

    def allowed(self, p: torch.Tensor) -> torch.Tensor:
        """Which tokens pass, a mask like p [rows, vocabulary]."""
        raise NotImplementedError

    def keep(self, draft: Draft, p: torch.Tensor) -> Verdict:
        return longest(draft, p, self.allowed(p))

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.keep(draft, target_probs(draft, rows, RAW))


@dataclass(frozen=True)
class Typical(Relaxed):
    """Keep x when p(x) > min(epsilon, delta exp(-H)) (F3.7).

    The bar sinks with the entropy H of the target's p, as `shape` shapes it: where many tokens
    are plausible, an unlikely one will do. With delta < 1 the argmax always passes. `Greedy`
    when `shape` has temperature 0. Lossy. For chains and trees; q is not used.

    Source: Cai et al. 2024 (Medusa, arXiv 2401.10774); the defaults are those of its code.

    Examples
    --------
    >>> Typical().allowed(torch.tensor([[0.4, 0.3, 0.15, 0.1, 0.05]])).tolist()
    [[True, True, True, True, False]]
    """

    epsilon: float = 0.09
    delta: float = 0.3
    shape: Sampling = RAW

    def __post_init__(self) -> None:
        _share("epsilon", self.epsilon)
        _share("delta", self.delta)

    @property
    def name(self) -> str:
        return f"typical-{self.epsilon:g}-{self.delta:g}"

    def allowed(self, p: torch.Tensor) -> torch.Tensor:
        entropy = -torch.xlogy(p, p).sum(-1, keepdim=True)
        return p > (self.delta * (-entropy).exp()).clamp(max=self.epsilon)

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.keep(draft, target_probs(draft, rows, self.shape))


@dataclass(frozen=True)
class ProbabilityGap(Relaxed):
    """Keep x when p(x) >= p_max - delta, with the raw p (temperature 1) (F3.8).

    delta = 0 is `Greedy` that lets ties pass. Lossy. For chains and trees; q is not used.
    """

    delta: float

    def __post_init__(self) -> None:
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta is a probability between 0 and 1, not {self.delta!r}.")

    @property
    def name(self) -> str:
        return f"gap-{self.delta:g}"

    def allowed(self, p: torch.Tensor) -> torch.Tensor:
        return p >= p.amax(-1, keepdim=True) - self.delta - TOLERANCE


@dataclass(frozen=True)
class ProbabilityRatio(Relaxed):
    """Keep x when p(x) >= rho p_max, with the raw p (temperature 1) (F3.8).

    rho = 1 is `Greedy` that lets ties pass. Lossy. For chains and trees; q is not used.
    """

    rho: float

    def __post_init__(self) -> None:
        _share("rho", self.rho)

    @property
    def name(self) -> str:
        return f"ratio-{self.rho:g}"

    def allowed(self, p: torch.Tensor) -> torch.Tensor:
        return p >= self.rho * (1 - TOLERANCE) * p.amax(-1, keepdim=True)


@dataclass(frozen=True)
class TopM(Relaxed):
    """Keep x when it is among the target's m likeliest tokens, ties by smallest id (F3.8).

    m = 1 is `Greedy`. Lossy. For chains and trees; q is not used.

    Examples
    --------
    >>> rows = Rows(torch.tensor([[0.5, 0.3, 0.2]] * 2).log())
    >>> TopM(2)(Draft.chain(0, [1]), rows, torch.Generator())
    Verdict(path=(0,), token=0, full=True)
    """

    m: int

    def __post_init__(self) -> None:
        whole("m", self.m, least=1)

    @property
    def name(self) -> str:
        return f"top-{self.m}"

    def allowed(self, p: torch.Tensor) -> torch.Tensor:
        best = p.sort(dim=-1, descending=True, stable=True).indices[:, : self.m]
        return torch.zeros_like(p, dtype=torch.bool).scatter(-1, best, True)


@dataclass(frozen=True)
class Lenience:
    """`Rejection` with q made smaller: keep x with probability min(1, p(x) / (l q(x))) (F3.8).

    A rejected token is replaced by a draw from (p - q)+ as in `Rejection`, which it is at
    l = 1. No token is emitted with more than p(x) / l. `Greedy` at temperature 0. Lossy.
    Chains only.

    Source: Leviathan, Kalman and Matias 2023 (arXiv 2211.17192), appendix.
    """

    l: float  # noqa: E741 - the name of the paper
    sampling: Sampling = RAW
    lossless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _share("l", self.l)

    @property
    def name(self) -> str:
        return f"lenience-{self.l:g}"

    def pick(self, seed: int, anchor: int) -> Pick:
        return Drawn(self.sampling, seed, anchor)

    def __call__(self, draft: Draft, rows: Rows, rng: torch.Generator) -> Verdict:
        return self.decide(draft, target_probs(draft, rows, self.sampling), Dice(rng))

    def decide(self, draft: Draft, p: torch.Tensor, dice: Dice) -> Verdict:
        check_chain(draft, self.name)
        return reject(draft, p, dice, self.l)


def longest(draft: Draft, p: torch.Tensor, allowed: torch.Tensor) -> Verdict:
    """The longest path of allowed tokens, the likeliest of several, and the argmax after it."""
    tokens = torch.tensor(draft.tokens, dtype=torch.long, device=p.device)
    above = torch.tensor(draft.parents, dtype=torch.long, device=p.device) + 1
    kept, chance = allowed[above, tokens].tolist(), p[above, tokens].log().tolist()
    paths: dict[int, tuple[int, ...]] = {-1: ()}
    worth = {-1: (0, 0.0)}  # length and ln p of each path
    for node, parent in enumerate(draft.parents):
        if kept[node] and parent in paths:
            paths[node] = (*paths[parent], node)
            worth[node] = (len(paths[node]), worth[parent][1] + chance[node])
    end = max(worth, key=worth.__getitem__)
    return Verdict(paths[end], int(p[end + 1].argmax()), full=end not in draft.parents)


def _share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, not {value!r}.")
