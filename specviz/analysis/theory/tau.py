"""Expected tokens per round from the chances that draft tokens are accepted (F2.1 to F2.4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from specviz.analysis.resampling import Floats
from specviz.refuse import whole


def tau(alphas: ArrayLike) -> float:
    """Expected tokens per round, the bonus counted: 1 + sum of S_j (F2.1).

    Exact whatever the dependence: alphas[i-1] is P(token i accepted | i-1 accepted), and S_j
    their product up to j.

    Examples
    --------
    >>> round(tau([0.9, 0.8, 0.5]), 2)
    2.98
    """
    return 1.0 + float(np.cumprod(_chances(alphas)).sum())


def tau_iid(alpha: float, k: int) -> float:
    """Expected tokens per round (bonus counted) when every token is accepted with `alpha`,
    independently: (1 - alpha^(k+1)) / (1 - alpha) (F2.2; Leviathan et al. 2023).

    Real text is not like that: mixtures beat this curve (F2.3).

    Examples
    --------
    >>> round(tau_iid(0.8, 3), 3)
    2.952
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability between 0 and 1, not {alpha!r}.")
    return tau(np.full(whole("k", k, least=0), alpha))


def invert_tau(tokens_per_round: float, k: int) -> float:
    """The alpha at which `tau_iid(alpha, k)` is `tokens_per_round` (F2.2).

    If it rises with k on the same text, acceptance comes in regimes (F2.3).

    Examples
    --------
    >>> round(invert_tau(7.4, 7), 6)
    0.977595
    """
    if k < 1 or not 1 <= tokens_per_round <= k + 1:
        raise ValueError(
            f"A round of k = {k} tokens emits between 1 and k + 1 tokens, the bonus counted; "
            f"{tokens_per_round!r} is not among them."
        )
    return float(brentq(lambda a: tau_iid(a, k) - tokens_per_round, 0.0, 1.0, xtol=1e-14))


def position_value(alphas: ArrayLike) -> Floats:
    """d tau / d alpha_i: what a better chance at depth i is worth, in tokens per round (F2.4).

    The sum of S_j from i on, over alpha_i; shape as `alphas`.

    Examples
    --------
    >>> position_value([0.9, 0.8, 0.5]).round(2).tolist()
    [2.2, 1.35, 0.72]
    """
    chances = _chances(alphas)
    before = np.concatenate([[1.0], np.cumprod(chances)[:-1]])
    # What follows depth i if it is accepted, backwards: robust where a chance is 0.
    after = np.ones(len(chances))
    for i in range(len(chances) - 2, -1, -1):
        after[i] = 1 + chances[i + 1] * after[i + 1]
    return np.asarray(before * after)


def _chances(alphas: ArrayLike) -> Floats:
    chances = np.atleast_1d(np.asarray(alphas, dtype=float))
    if np.any(~((chances >= 0) & (chances <= 1))):
        raise ValueError(f"alphas are probabilities between 0 and 1, not {alphas!r}.")
    return chances
