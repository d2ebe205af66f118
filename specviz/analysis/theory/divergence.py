"""How near a drafter is to its target, and what that promises of acceptance.

Theorems on one drafted token: p is the target's distribution and q the drafter's. Lossless
rejection keeps a token of q with the overlap sum min(p, q) = 1 - TV(p, q) (F3.1), which a
divergence in nats bounds from below (T5.1); a greedy target keeps the drafter's likeliest token
for certain where the two are near enough (F3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from specviz.analysis.branching import plain
from specviz.analysis.resampling import Floats
from specviz.analysis.theory.acceptance import kl_to_tie, one_row, one_vocabulary

_TINY = 1e-9


@dataclass(frozen=True)
class DivergenceBounds:
    """Bounds of the overlap sum min(p, q) from how far q is from p (T5.1).

    Attributes
    ----------
    overlap
        What is bounded: the chance that lossless rejection keeps a token of q.
    kl
        KL(p || q) in nats; infinite where q lacks a token of p.
    pinsker, bretagnolle_huber, half_exponential, hellinger_low
        Lower bounds; Pinsker's falls below 0, and says nothing, from 2 nats on.
    hellinger_high
        Upper bound: sum sqrt(p q).
    """

    overlap: float
    kl: float
    pinsker: float
    bretagnolle_huber: float
    half_exponential: float
    hellinger_low: float
    hellinger_high: float


def pinsker_floor(kl: ArrayLike) -> Any:
    """Least chance that lossless rejection keeps a token of q: 1 - sqrt(KL / 2), or 0 (T5.1).

    A theorem, for KL of p and q in either direction, in nats; infinity is allowed. Of a mean
    KL it bounds the mean chance.

    Examples
    --------
    >>> round(pinsker_floor(0.274887), 4), pinsker_floor(3.0)
    (0.6293, 0.0)
    """
    return plain(np.maximum(1 - np.sqrt(_divergence(kl) / 2), 0.0))


def bretagnolle_huber_floor(kl: ArrayLike) -> Any:
    """Least chance that lossless rejection keeps a token of q: 1 - sqrt(1 - e^-KL) (T5.1).

    A theorem, as `pinsker_floor`; the larger of the two above some 1.6 nats, and 0 only where KL
    is infinite: a drafter that leaves out tokens of the target gets no promise from KL(p || q).

    Examples
    --------
    >>> round(bretagnolle_huber_floor(0.274887), 4), bretagnolle_huber_floor(float("inf"))
    (0.5098, 0.0)
    """
    return plain(1 - np.sqrt(-np.expm1(-_divergence(kl))))


def divergence_bounds(p: ArrayLike, q: ArrayLike) -> DivergenceBounds:
    """Every bound of T5.1 for one pair of distributions; theorems all.

    Raises
    ------
    ValueError
        When p or q is no distribution, or they differ in vocabulary.

    Examples
    --------
    >>> found = divergence_bounds([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    >>> round(found.hellinger_low, 4), round(found.overlap, 4), round(found.hellinger_high, 4)
    (0.6387, 0.7, 0.9325)
    """
    a, b = one_vocabulary(one_row("p", p), one_row("q", q))
    kl = float(max(rel_entr(a, b).sum(), 0.0))  # rounding may leave -1e-17
    high = min(float(np.sqrt(a * b).sum()), 1.0)
    return DivergenceBounds(
        overlap=float(np.minimum(a, b).sum()),
        kl=kl,
        pinsker=float(1 - np.sqrt(kl / 2)),
        bretagnolle_huber=float(bretagnolle_huber_floor(kl)),
        half_exponential=float(np.exp(-kl) / 2),
        hellinger_low=float(1 - np.sqrt(1 - high**2)),
        hellinger_high=high,
    )


def kl_certificate(first: ArrayLike, second: ArrayLike) -> Any:
    """Nats of KL(p || q) below which q has the argmax of p, from p's two largest entries (F3.4).

    As `acceptance.argmax_certificate`, for those who have p_max and the margin only.

    Examples
    --------
    >>> round(kl_certificate(0.5, 0.3), 6)
    0.025267
    """
    return plain(kl_to_tie(*_two_largest(first, second)))


def overlap_certificate(first: ArrayLike, second: ArrayLike) -> Any:
    """Overlap sum min(p, q) above which q has the argmax of p: 1 - (p_1 - p_2) / 2 (F3.4).

    A theorem: if q prefers d to p's argmax y, then TV >= (|p_y - q_y| + |q_d - p_d|) / 2
    >= (p_y - p_d + q_d - q_y) / 2 >= (p_1 - p_2) / 2. It still works where KL is infinite, as
    for a drafter with a reduced vocabulary.

    Examples
    --------
    >>> round(overlap_certificate(0.5, 0.3), 6)
    0.9
    """
    a, b = _two_largest(first, second)
    return plain(1 - (a - b) / 2)


def _divergence(kl: ArrayLike) -> Floats:
    nats: Floats = np.asarray(kl, dtype=float)
    if np.any(~(nats >= -_TINY)):
        raise ValueError(f"A divergence is 0 nats or more (infinity allowed), not {kl!r}.")
    return np.maximum(nats, 0.0)


def _two_largest(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if np.any(~((a >= b) & (b >= 0) & (a + b <= 1 + 1e-3) & (a > 0))):
        raise ValueError(
            "first and second are the two largest probabilities of one distribution: above 0, at "
            "most 1 together, the first not below the second."
        )
    return a, b
