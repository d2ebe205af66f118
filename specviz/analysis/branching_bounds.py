"""What partial knowledge says of branching factors: logs with the top K only, and averages.

A server that returns the 20 likeliest tokens with their true log-probabilities pins down p_max,
and everything else to an interval. Entropies are in nats. An average over positions obeys other
bounds than a single distribution, and the geometric mean of branching factors is another number
than the arithmetic one; neither is ever put in the other's place here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from specviz.analysis.branching import (
    ebf_means,
    entropy_interval,
    plain,
    pmax_bounds,
    top_and_rest,
)

#: Slack of a sum, so that rounding does not add a token.
_TINY = 1e-9
#: How far rounding may move the probability that is left.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class MeansInterval:
    """Both means of EBF_1 over positions whose entropies are known to intervals (F1.6).

    Attributes
    ----------
    geometric_low, geometric_high
        exp of the mean entropy: what multiplies up along a text.
    arithmetic_low, arithmetic_high
        Mean of exp(entropy), which a few wide-open positions dominate.
    n_positions
        How many positions.
    """

    geometric_low: float
    geometric_high: float
    arithmetic_low: float
    arithmetic_high: float
    n_positions: int


def hill_interval(top_logprobs: ArrayLike, vocabulary: int, order: float) -> tuple[Any, Any]:
    """Smallest and largest EBF of an order that the K likeliest tokens allow (F1.4).

    The tail is at its least spread when its tokens are as likely as the last one known, at its
    widest when they are all alike; at order infinity the two meet, as p_max is known.

    Parameters
    ----------
    top_logprobs
        ln p of the K likeliest tokens over the last axis, normalised over the whole vocabulary.
    vocabulary
        V, the number of tokens that can occur.
    order
        As in `hill`: 0 or more, infinity included.

    Returns
    -------
    tuple
        Lower and upper bound, one per row. They need not be reached.

    Raises
    ------
    ValueError
        As `entropy_interval`, and for an order below 0.

    Examples
    --------
    >>> low, high = hill_interval(np.log([0.5, 0.25]), 4, 2)     # the rest: .25, or .125 twice
    >>> round(low, 4), round(high, 4)
    (2.6667, 2.9091)
    """
    if not order >= 0:
        raise ValueError(f"The order of a Hill number must be 0 or more, not {order!r}.")
    if order == 1:
        low, high = entropy_interval(top_logprobs, vocabulary)
        return plain(np.exp(low)), plain(np.exp(high))
    lp, rest = top_and_rest(top_logprobs, vocabulary)
    if np.isinf(order):
        exact = np.exp(-lp.max(axis=-1))
        return plain(exact), plain(exact)
    left = vocabulary - lp.shape[-1]
    # What is left is a difference: each end takes it so that rounding cannot make it wrong.
    least, most = np.maximum(rest - _ROUNDING, 0.0), rest + (_ROUNDING if left else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        known = logsumexp(np.where(np.isfinite(lp), order * lp, -np.inf), axis=-1)
        narrow = np.where(least > 0, np.log(least) + (order - 1) * lp.min(axis=-1), -np.inf)
        even = np.where(most > 0, order * np.log(most) + (1 - order) * np.log(left), -np.inf)
    ends = [np.exp(np.logaddexp(known, tail) / (1 - order)) for tail in (narrow, even)]
    return plain(ends[0]), plain(np.maximum(*ends))


def nucleus_interval(
    top_logprobs: ArrayLike, vocabulary: int, share: float = 0.9
) -> tuple[Any, Any]:
    """Fewest and most tokens that a nucleus may have, from the K likeliest (F1.2, F1.4).

    Both are the nucleus itself where the known tokens hold the share.

    Parameters, returns and errors as `hill_interval`, with the share of `nucleus_size`.

    Examples
    --------
    >>> top = np.log([0.5, 0.25])
    >>> nucleus_interval(top, 10, 0.75), nucleus_interval(top, 10, 0.9)
    ((2, 2), (3, 7))
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share!r}.")
    lp, rest = top_and_rest(top_logprobs, vocabulary)
    known = lp.shape[-1]
    held = np.cumsum(np.exp(-np.sort(-lp, axis=-1)), axis=-1)
    within = (held < share - _TINY).sum(axis=-1) + 1
    lack = np.maximum(share - _TINY - held[..., -1], 0.0)  # the slack of `nucleus_size`
    with np.errstate(divide="ignore", invalid="ignore"):
        fewest = np.ceil(lack / np.exp(lp.min(axis=-1)))
        most = np.ceil(lack / rest * (vocabulary - known))
    ends = [
        np.where(within <= known, within, np.clip(known + np.maximum(extra, 1), 1, vocabulary))
        for extra in (np.nan_to_num(fewest), np.nan_to_num(most))
    ]
    return plain(ends[0].astype(int)), plain(np.maximum(*ends).astype(int))


def truncated_branching(top_logprobs: ArrayLike, vocabulary: int) -> pd.DataFrame:
    """Everything that the K likeliest tokens of every position say of its branching.

    Parameters
    ----------
    top_logprobs
        [positions, K]: ln p, true log-probabilities (before any temperature, unless that is
        the distribution meant); the sampled token left out where it is not among the K.
    vocabulary
        V.

    Returns
    -------
    DataFrame
        One row per position: known (probability of the K), p_max and ebf_inf (exact), margin
        (nats; NaN with one token known), and for entropy (nats), ebf, ebf2 and n90 the two
        ends of what is possible, as `_low` and `_high`.

    Raises
    ------
    ValueError
        As `entropy_interval`, or when the array is no matrix.

    Examples
    --------
    >>> truncated_branching(np.log([[0.5, 0.25]]), 4)[["p_max", "ebf_low", "ebf_high"]].round(4)
       p_max  ebf_low  ebf_high
    0    0.5   2.8284    3.3636
    """
    lp, rest = top_and_rest(top_logprobs, vocabulary)
    if lp.ndim != 2:
        raise ValueError(f"top_logprobs must be [positions, K], not of shape {lp.shape}.")
    best = -np.sort(-lp, axis=-1)
    columns: dict[str, Any] = {"known": 1 - rest, "p_max": np.exp(best[:, 0])}
    columns["ebf_inf"] = 1 / columns["p_max"]
    columns["margin"] = best[:, 0] - best[:, 1] if lp.shape[1] > 1 else np.full(len(lp), np.nan)
    for name, (low, high) in {
        "entropy": entropy_interval(lp, vocabulary),
        "ebf": hill_interval(lp, vocabulary, 1),
        "ebf2": hill_interval(lp, vocabulary, 2),
        "n90": nucleus_interval(lp, vocabulary),
    }.items():
        columns |= {f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns)


def ebf_means_interval(low: ArrayLike, high: ArrayLike) -> MeansInterval:
    """Geometric and arithmetic mean of EBF_1 from the ends of the entropies (nats; F1.4, F1.6).

    Where the true log-probabilities are known, this replaces exp of the mean of renormalised
    entropies, which is far too small.

    Parameters
    ----------
    low, high
        Per position, as `entropy_interval` gives them.

    Raises
    ------
    ValueError
        When they differ in shape, are empty or not finite, or an end is on the wrong side.

    Examples
    --------
    >>> means = ebf_means_interval([0.0, 3.0], [0.0, 4.0])
    >>> round(means.geometric_high, 2), round(means.arithmetic_high, 1)
    (7.39, 27.8)
    """
    ends = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    if ends[0].shape != ends[1].shape or np.any(ends[0] > ends[1] + _TINY):
        raise ValueError("low and high must have one entry per position, low never above high.")
    (geometric_low, arithmetic_low), (geometric_high, arithmetic_high) = map(ebf_means, ends)
    return MeansInterval(
        geometric_low, geometric_high, arithmetic_low, arithmetic_high, ends[0].size
    )


def mean_pmax_bounds(mean_entropy: ArrayLike, vocabulary: int) -> tuple[Any, Any]:
    """Smallest and largest mean p_max over positions with this mean entropy (nats; F1.3).

    For averages, where `pmax_bounds` at the mean entropy would be too high at its lower end:
    the least entropy at a given p_max is no convex function. The upper end is the same.

    With the entropy of the target's token given what a drafter sees in place of H, this is the
    range of the best match that those inputs permit (T6.4).

    Examples
    --------
    >>> low, high = mean_pmax_bounds(0.554518, 151_936)
    >>> round(low, 4), round(high, 4)
    (0.6, 0.966)
    """
    _, high = pmax_bounds(mean_entropy, vocabulary)
    h = np.asarray(mean_entropy, dtype=float)
    i = np.floor(np.exp(h) + _TINY)
    error = (i - 1) / i + (h - np.log(i)) / (i * (i + 1) * np.log((i + 1) / i))
    return plain(1 - error), high
