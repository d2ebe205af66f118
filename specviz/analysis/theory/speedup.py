"""Formulas for the best number of tokens to draft, given survival and cost (F4.1 to F4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from specviz.analysis.resampling import Floats
from specviz.analysis.theory.tau import tau_iid


def iid_speedup(alpha: float, k: int, c: float) -> float:
    """Speed-up when every draft token is accepted alike and verification is free (F4.1).

    Parameters
    ----------
    alpha
        Probability that a draft token is accepted given the ones before it, in [0, 1].
    k
        Tokens drafted per round.
    c
        Seconds to draft one token / seconds of one plain step.

    Returns
    -------
    float
        (1 - alpha^(k+1)) / ((1 - alpha) (k c + 1)); Leviathan, Kalman and Matias 2023.

    Examples
    --------
    >>> round(iid_speedup(0.8, 5, 0.0), 2)
    3.69
    """
    if not c >= 0:
        raise ValueError(f"c must be 0 or more plain steps per drafted token, not {c!r}.")
    return tau_iid(alpha, k) / (k * c + 1)


def iid_best_k(alpha: float, c: float, longest: int = 1000) -> tuple[int, float]:
    """The k with the largest `iid_speedup`, and that speed-up; (0, 1.0) when none gains.

    There is a gain for some k exactly when alpha > c, and then for k = 1 (F4.1).

    Raises
    ------
    ValueError
        When a longer draft than `longest` would still be better.

    Examples
    --------
    >>> iid_best_k(0.5, 0.5)
    (0, 1.0)
    """
    iid_speedup(alpha, 1, c)  # refuses what is no chance, or no cost
    if alpha <= c:
        return 0, 1.0
    best = 1  # the curve over k rises to one peak, so the first fall is past it
    while best < longest and iid_speedup(alpha, best + 1, c) > iid_speedup(alpha, best, c):
        best += 1
    if c == 0 or best == longest:
        raise ValueError(
            f"With alpha = {alpha:g} and c = {c:g} longer drafts are better without end (or "
            f"beyond {longest} tokens): the formula has no best k here."
        )
    return best, iid_speedup(alpha, best, c)


def iid_operations(alpha: float, k: int, c: float) -> float:
    """Arithmetic of speculative over plain decoding, per token (F4.1).

    `c` is the arithmetic of one drafted token / that of one target token.

    Examples
    --------
    >>> round(iid_operations(0.6, 2, 0.0), 2)
    1.53
    """
    return (k * c + k + 1) / tau_iid(alpha, k)


def rates(survival: ArrayLike, verify: ArrayLike, draft: ArrayLike) -> Floats:
    """Tokens per second at k = 0..K: E[tokens of a round] / seconds of a round (F4.2).

    Parameters
    ----------
    survival
        S_1..S_K, the probability that at least j drafts are accepted; shape [K].
    verify
        Seconds to verify 1..K+1 rows; shape [K + 1].
    draft
        Seconds to draft 0..K tokens; shape [K + 1], or one number d for d * k.

    Returns
    -------
    array
        Shape [K + 1].

    Examples
    --------
    >>> rates([0.5, 0.25], verify=[1.0, 1.0, 1.0], draft=0.25).round(3).tolist()
    [1.0, 1.2, 1.167]
    """
    tokens, seconds = _curves(survival, verify, draft)
    return tokens / seconds


def best_k(survival: ArrayLike, verify: ArrayLike, draft: ArrayLike) -> tuple[int, float]:
    """The k that emits the most tokens per second, and its speed-up over k = 0 (F4.2).

    Parameters are those of `rates`. On ties the shorter draft wins.

    Examples
    --------
    A block drafter has a fixed charge of 0.25 plain steps, whatever its k:

    >>> import numpy as np
    >>> survival, verify = 0.6 ** np.arange(1, 11), 1 + 0.02 * np.arange(11)
    >>> k, gain = best_k(survival, verify, np.r_[0, np.full(10, 0.25)])
    >>> k, round(gain, 6)
    (6, 1.773734)
    """
    all_rates = rates(survival, verify, draft)
    best = int(np.argmax(all_rates))
    return best, float(all_rates[best] / all_rates[0])


def marginal_gain(survival: ArrayLike, verify: ArrayLike, draft: ArrayLike) -> Floats:
    """What the j-th draft token adds beyond what its time costs, at the best rate (F4.3).

    Entry j - 1 is S_j - R* (T_j - T_(j-1)), in tokens per round: draft on while it is not
    negative. Exact for j >= 2 when S_j over its extra time decreases; k = 0 is compared on
    its own, since a block drafter's fixed charge falls on j = 1. Shape [K].

    Examples
    --------
    >>> marginal_gain([0.5, 0.25], verify=[1.0, 1.0, 1.0], draft=0.25).round(2).tolist()
    [0.2, -0.05]
    """
    tokens, seconds = _curves(survival, verify, draft)
    return np.asarray(np.diff(tokens) - np.max(tokens / seconds) * np.diff(seconds))


def dinkelbach(survival: ArrayLike, verify: ArrayLike, draft: ArrayLike) -> tuple[int, float, int]:
    """`best_k` by iterating R <- R(argmax_k E[tokens] - R seconds) from k = 0 (F4.3).

    Returns
    -------
    tuple
        k, its rate in tokens per second, and how often the rate rose before it stood still.

    Examples
    --------
    >>> dinkelbach([0.5, 0.25], verify=[1.0, 1.0, 1.0], draft=0.25)
    (1, 1.2, 1)
    """
    tokens, seconds = _curves(survival, verify, draft)
    rate, rises = float(tokens[0] / seconds[0]), 0
    while True:
        k = int(np.argmax(tokens - rate * seconds))
        found = float(tokens[k] / seconds[k])
        if found <= rate:
            return k, rate, rises
        rate, rises = found, rises + 1


def _curves(survival: ArrayLike, verify: ArrayLike, draft: ArrayLike) -> tuple[Floats, Floats]:
    """Expected tokens and seconds of a round for k = 0..K."""
    alive, rows = np.asarray(survival, dtype=float), np.asarray(verify, dtype=float)
    k = len(alive) if alive.ndim == 1 else -1
    drafts = np.asarray(draft, dtype=float)
    drafts = drafts * np.arange(k + 1) if drafts.ndim == 0 else drafts
    if k < 0 or rows.shape != (k + 1,) or drafts.shape != (k + 1,):
        raise ValueError(
            f"For K = {k} survivals, verify and draft need K + 1 entries (1..K+1 rows, 0..K "
            f"tokens); their shapes are {rows.shape} and {drafts.shape}."
        )
    steps = np.diff(np.concatenate([[1.0], alive]))
    if np.any(steps > 1e-12) or np.any(alive < 0):
        raise ValueError("survival must lie in [0, 1] and not increase with depth.")
    if np.any(rows + drafts <= 0):
        raise ValueError("Every round must take more than 0 seconds.")
    return 1 + np.concatenate([[0.0], np.cumsum(alive)]), rows + drafts
