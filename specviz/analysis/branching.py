"""How many next tokens are almost equally plausible: entropy and effective branching factors.

The effective branching factor (EBF) of order a is the Hill number of the target's next-token
distribution: exp(entropy) at order 1, 1 / sum p^2 at order 2, 1 / p_max at infinity. All
logarithms are natural; entropies are in nats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, log_softmax, logsumexp

from specviz.analysis.content import entropy_by
from specviz.refuse import whole

__all__ = [
    "ebf_means",
    "entropy",
    "entropy_bounds",
    "entropy_by",
    "entropy_interval",
    "entropy_slope",
    "gap_count",
    "hill",
    "mean_entropy_floor",
    "nucleus_size",
    "pmax_bounds",
    "ratio_count",
    "renormalised_entropy",
]

#: Slack of a cumulative sum, so that an exact tie is not missed by rounding.
_TINY = 1e-9
#: How far from 1 probabilities may sum that come from rounded numbers.
_SLACK = 1e-3


def hill(p: ArrayLike, order: float) -> Any:
    """Hill number of order `order`, the EBF of that order (F1.1).

    Parameters
    ----------
    p
        Probabilities over the last axis.
    order
        0 counts the support; 1 is exp(entropy); 2 is 1 / sum p^2; inf is 1 / p_max.

    Returns
    -------
    float or array
        Between 1 and V, never larger for a larger order.

    Examples
    --------
    >>> [round(hill([0.5, 0.25, 0.125, 0.125], a), 4) for a in (0, 1, 2, float("inf"))]
    [4.0, 3.3636, 2.9091, 2.0]
    """
    probs = _probabilities(p)
    if not order >= 0:
        raise ValueError(f"The order of a Hill number must be 0 or more, not {order!r}.")
    if order == 1:
        return plain(np.exp(entr(probs).sum(axis=-1)))
    if np.isinf(order):
        return plain(1 / probs.max(axis=-1))
    if order == 0:
        return plain((probs > 0).sum(axis=-1).astype(float))
    # In logarithms: near order 1 the sum of powers is 1 but for rounding, and at high orders
    # every power underflows.
    lp = np.log(np.where(probs > 0, probs, 1.0))
    if abs(order - 1) < 0.1:
        log_sum = np.log1p((probs * np.expm1((order - 1) * lp)).sum(axis=-1))
    else:
        log_sum = logsumexp(np.where(probs > 0, order * lp, -np.inf), axis=-1)
    return plain(np.exp(log_sum / (1 - order)))


def entropy(logits: ArrayLike) -> Any:
    """Entropy in nats of softmax(logits) over the last axis, computed in float64 (F1.5).

    Half-precision logits are safe here; p ln p on a half-precision softmax is not (0 times
    minus infinity). A logit of minus infinity is a token that cannot occur.

    Examples
    --------
    >>> round(entropy([0.0, 0.0, float("-inf")]), 4)
    0.6931
    """
    z = _logits(logits)
    return plain(entr(np.exp(log_softmax(z, axis=-1))).sum(axis=-1))


def entropy_slope(logits: ArrayLike, beta: float = 1.0) -> Any:
    """dH / d beta of softmax(beta * logits): -beta times the variance of the logits (F1.5).

    `beta` is 1 / temperature; sharper text (larger beta) never has more entropy.

    Examples
    --------
    >>> round(entropy_slope([2.0, 1.0, 0.0, -1.0], 1.3), 6)
    -0.553451
    """
    z = _logits(logits)
    p = np.exp(log_softmax(beta * z, axis=-1))
    seen = np.where(p > 0, z, 0.0)
    mean = (p * seen).sum(axis=-1, keepdims=True)
    return plain(-beta * (p * (seen - mean) ** 2).sum(axis=-1))


def nucleus_size(p: ArrayLike, share: float = 0.9) -> Any:
    """Fewest tokens that hold at least `share` of the probability (F1.2).

    Examples
    --------
    >>> nucleus_size([0.5, 0.25, 0.125, 0.125], 0.75)
    2
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share!r}.")
    held = np.cumsum(-np.sort(-_probabilities(p), axis=-1), axis=-1)
    size = (held < share - _TINY).sum(axis=-1) + 1
    return plain(np.minimum(size, held.shape[-1]))


def ratio_count(p: ArrayLike, rho: float) -> Any:
    """Tokens at least `rho` times as likely as the likeliest (F1.2).

    Examples
    --------
    >>> ratio_count([0.5, 0.25, 0.125, 0.125], 0.5)
    2
    """
    if not 0 < rho <= 1:
        raise ValueError(f"rho must be above 0 and at most 1, not {rho!r}.")
    probs = _probabilities(p)
    bar = rho * probs.max(axis=-1, keepdims=True) * (1 - _TINY)
    return plain((probs >= bar).sum(axis=-1))


def gap_count(logits: ArrayLike, delta: float) -> Any:
    """Tokens whose logit is within `delta` nats of the largest: `ratio_count` at exp(-delta).

    Examples
    --------
    >>> gap_count(np.log([0.5, 0.25, 0.125, 0.125]), 0.7)
    2
    """
    if not delta >= 0:
        raise ValueError(f"delta must be 0 nats or more, not {delta!r}.")
    z = _logits(logits)
    return plain((z >= z.max(axis=-1, keepdims=True) - delta - _TINY).sum(axis=-1))


def entropy_bounds(p_max: ArrayLike, vocabulary: int) -> tuple[Any, Any]:
    """Least and largest entropy (nats) of a distribution whose largest entry is `p_max` (F1.3).

    Least: as many entries of p_max as fit, and the rest in one. Largest: the rest spread
    evenly over the other tokens, h(p_max) + (1 - p_max) ln(V - 1), as in Fano's inequality
    (Feder and Merhav 1994).

    Examples
    --------
    >>> least, largest = entropy_bounds(0.5, 4)
    >>> round(least, 4), round(largest, 4)
    (0.6931, 1.2425)
    """
    whole("vocabulary", vocabulary, least=1)
    p = np.asarray(p_max, dtype=float)
    if np.any(~(p >= (1 - _TINY) / vocabulary)) or np.any(p > 1 + _TINY):
        raise ValueError(
            f"p_max must lie between 1 / V = {1 / vocabulary:.3g} and 1: {p_max!r} does not."
        )
    p = np.minimum(p, 1.0)
    return plain(_least(p)), plain(_largest(p, vocabulary))


def pmax_bounds(entropy: ArrayLike, vocabulary: int) -> tuple[Any, Any]:
    """Smallest and largest possible p_max at an entropy in nats (F1.3).

    Entropy alone says little of p_max, hence of what one draft token can win.

    Examples
    --------
    >>> low, high = pmax_bounds(1.0, 151_936)
    >>> round(low, 6), round(high, 6)
    (0.430475, 0.936098)
    """
    whole("vocabulary", vocabulary, least=1)
    h = np.asarray(entropy, dtype=float)
    if np.any(~(h >= 0)) or np.any(h > np.log(vocabulary) + _TINY):
        raise ValueError(
            f"An entropy over {vocabulary} tokens lies between 0 and ln V = "
            f"{np.log(vocabulary):.3f} nats: {entropy!r} does not (is it in bits?)."
        )
    low = _where_falls_to(_least, h, vocabulary)
    high = _where_falls_to(lambda p: _largest(p, vocabulary), h, vocabulary)
    return plain(low), plain(high)


def mean_entropy_floor(error: ArrayLike) -> Any:
    """Least mean entropy (nats) when the mean of 1 - p_max is `error` (F1.3, averaged form).

    Piecewise linear, and below `entropy_bounds` at the mean p_max: that one bounds single
    distributions, not averages, since it is not convex.

    Examples
    --------
    >>> round(mean_entropy_floor(0.4), 6)
    0.554518
    """
    pi = np.asarray(error, dtype=float)
    if np.any(~((pi >= 0) & (pi < 1))):
        raise ValueError(f"error is a mean of 1 - p_max, at least 0 and below 1, not {error!r}.")
    i = np.floor(1 / (1 - pi) + _TINY)
    return plain(np.log(i) + i * (i + 1) * np.log((i + 1) / i) * (pi - (i - 1) / i))


def entropy_interval(top_logprobs: ArrayLike, vocabulary: int) -> tuple[Any, Any]:
    """What the true ln p of the K likeliest tokens say of the entropy (nats, F1.4).

    Parameters
    ----------
    top_logprobs
        ln p over the last axis, normalised over the whole vocabulary (not over the K).
        The K likeliest, in any order: a sampled token that a server adds to them without its
        being one has to be left out.
    vocabulary
        V, the number of tokens that can occur.

    Returns
    -------
    tuple
        Lower and upper bound: the remaining probability in tokens as likely as the last one
        known, or spread evenly over the V - K others.

    Raises
    ------
    ValueError
        When they sum to more than 1, or leave more than V - K tokens as likely as the last can
        hold: V is then too small, or they are not the likeliest.

    See Also
    --------
    specviz.analysis.branching_bounds : other orders, nuclei and means from the same logs.

    Examples
    --------
    >>> low, high = entropy_interval(np.log([0.5, 0.25]), 4)     # the rest: .25, or .125 twice
    >>> round(low, 4), round(high, 4)
    (1.0397, 1.213)
    """
    lp, rest = top_and_rest(top_logprobs, vocabulary)
    known = lp.shape[-1]
    held = entr(np.exp(lp)).sum(axis=-1)
    least = lp.min(axis=-1)
    low = held + np.where(rest > 0, -rest * np.where(np.isneginf(least), 0.0, least), 0.0)
    spread = np.log(max(vocabulary - known, 1)) - np.log(np.where(rest > 0, rest, 1.0))
    return plain(low), plain(np.maximum(held + rest * spread, low))


def renormalised_entropy(top_logprobs: ArrayLike) -> Any:
    """Entropy of the K likeliest tokens rescaled to sum to 1: all that is left without the
    normaliser, and usually far too small (F1.4).

    Examples
    --------
    >>> round(renormalised_entropy(np.log([0.5, 0.25])), 4)      # of four tokens: 1.0397 or more
    0.6365
    """
    return entropy(top_logprobs)


def ebf_means(entropy: ArrayLike) -> tuple[float, float]:
    """Geometric mean exp(mean H) and arithmetic mean of exp(H) of entropies in nats (F1.6).

    Examples
    --------
    >>> geometric, arithmetic = ebf_means([0.0, 0.0, 0.0, 4.0])
    >>> round(geometric, 5), round(arithmetic, 4)
    (2.71828, 14.3995)
    """
    h = np.asarray(entropy, dtype=float).ravel()
    if not h.size or np.any(~np.isfinite(h)):
        raise ValueError("Entropies must be a non-empty list of finite nats.")
    return float(np.exp(h.mean())), float(np.exp(h).mean())


def top_and_rest(top_logprobs: ArrayLike, vocabulary: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """ln p of the K likeliest, and the probability that is left; refused as `entropy_interval`."""
    whole("vocabulary", vocabulary, least=1)
    lp = np.asarray(top_logprobs, dtype=float)
    known = lp.shape[-1] if lp.ndim else 0
    if not known or np.any(np.isnan(lp)):
        raise ValueError("top_logprobs must hold log-probabilities (nats) over the last axis.")
    rest = np.asarray(1 - np.exp(lp).sum(axis=-1))
    if known > vocabulary or np.any(~(rest > -_SLACK)):
        raise ValueError(
            "top_logprobs must be true log-probabilities of at most V tokens: theirs sum to "
            f"{float(np.max(1 - rest)):.4f} over {known} of {vocabulary}."
        )
    if np.any(rest > (vocabulary - known) * np.exp(lp.min(axis=-1)) + _SLACK):
        raise ValueError(
            f"The {vocabulary - known} tokens that are not listed hold {float(rest.max()):.4f}, "
            "more than they can if none is likelier than the last one listed: give the K likeliest "
            "tokens only, and the whole vocabulary's size."
        )
    return lp, np.maximum(rest, 0.0) if known < vocabulary else np.zeros_like(rest)


def _least(p: NDArray[Any]) -> NDArray[Any]:
    m = np.floor(1 / p + _TINY)
    return np.asarray(m * entr(p) + entr(np.maximum(1 - m * p, 0.0)))


def _largest(p: NDArray[Any], vocabulary: int) -> NDArray[Any]:
    return np.asarray(entr(p) + entr(1 - p) + (1 - p) * np.log(max(vocabulary - 1, 1)))


def _where_falls_to(curve: Any, h: NDArray[Any], vocabulary: int) -> NDArray[Any]:
    """The p in [1/V, 1] where a decreasing curve of p meets h, by bisection."""
    low, high = np.full(h.shape, 1 / vocabulary), np.ones(h.shape)
    for _ in range(60):
        middle = (low + high) / 2
        above = curve(middle) > h
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray((low + high) / 2)


def _probabilities(p: ArrayLike) -> NDArray[np.float64]:
    probs = np.asarray(p, dtype=float)
    if probs.ndim == 0 or probs.shape[-1] == 0 or np.any(~(probs >= 0)):
        raise ValueError("Probabilities must be numbers of at least 0 over the last axis.")
    totals = probs.sum(axis=-1)
    if np.any(np.abs(totals - 1) > _SLACK):
        worst = float(np.ravel(totals)[np.argmax(np.abs(np.ravel(totals) - 1))])
        raise ValueError(
            f"Probabilities must sum to 1 over the last axis, not to {worst:.4f}: pass logits "
            "to `entropy` instead, or normalise them."
        )
    return np.asarray(probs / totals[..., None])


def _logits(logits: ArrayLike) -> NDArray[np.float64]:
    z = np.asarray(logits, dtype=float)
    if z.ndim == 0 or z.shape[-1] == 0 or np.any(np.isnan(z)) or np.any(np.isposinf(z)):
        raise ValueError("Logits must be numbers (minus infinity allowed) over the last axis.")
    if np.any(np.isneginf(z).all(axis=-1)):
        raise ValueError("A row of logits forbids every token: at least one must be finite.")
    return z


def plain(values: Any) -> Any:
    """A Python number for a scalar, else the array."""
    return values.item() if np.ndim(values) == 0 else values
