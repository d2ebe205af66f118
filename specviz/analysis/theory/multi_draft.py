"""Several drafts for one position: what recursive rejection keeps, and what the best rule can.

Exact, from p and q (F3.6). What is left between the two is what a better rule could still bring.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import perm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specviz.analysis.resampling import Floats
from specviz.analysis.theory.acceptance import enumerable, one_row, one_vocabulary
from specviz.refuse import whole

#: Largest vocabulary all sets of which are enumerated: 2^16 sets.
MOST_TOKENS = 16


def recursive_chance(p: ArrayLike, q: ArrayLike, n: int, replacement: bool) -> float:
    """Chance that recursive rejection keeps one of n drafts drawn from q (F3.6).

    Parameters
    ----------
    p, q
        Distributions, [V].
    n
        Drafts for this position; 1 is `rejection_chance`.
    replacement
        True: drawn independently (SpecInfer). False: each without the tokens before it
        (Sequoia).

    Raises
    ------
    ValueError
        When q has fewer than n tokens to draw without replacement, or more than 200 000 ordered
        tuples of them; when p or q is no distribution.

    Examples
    --------
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    >>> [round(recursive_chance(p, q, 2, replacement), 6) for replacement in (True, False)]
    [0.76, 0.82]
    """
    left, law = (row[None] for row in one_vocabulary(one_row("p", p), one_row("q", q)))
    n = _drafts(n, law, replacement)
    mass = np.ones(1)  # of each course that refusals have taken so far
    total = 0.0
    for draft in range(n):
        total += float(mass @ np.minimum(left, law).sum(-1))
        if draft == n - 1:
            break
        refused = np.maximum(law - left, 0.0)
        rest = np.maximum(left - law, 0.0)
        lack = rest.sum(-1, keepdims=True)
        refused[lack[:, 0] == 0] = 0.0  # q covers p: only rounding could refuse
        left = np.divide(rest, lack, out=rest, where=lack > 0)
        if replacement:  # what is left does not depend on the token refused
            mass = mass * refused.sum(-1)
            continue
        at, token = np.nonzero(refused)
        mass, left, law = mass[at] * refused[at, token], left[at], _without(law, at, token)
    return total


def optimal_chance(p: ArrayLike, q: ArrayLike, n: int, replacement: bool) -> float:
    """Chance that the best lossless rule keeps one of n drafts drawn from q (F3.6).

    The minimum over sets H of tokens of 1 + p(H) - F(H), where F(H) = P(every draft is in H). Of
    the 2^V sets it is enough to try the V + 1 that take tokens in order of p / q: per unit of q,
    F gains at least as much when another token joins H as it loses when one of H leaves, so that
    a best H with x in it lacks no y of smaller p / q. With replacement that is the convexity of
    q(H)^n; without, it follows from the race of exponential clocks of rates q that such draws
    are. A test compares both with all sets.

    Parameters, limits and errors as for `recursive_chance`, which it never falls below.

    Examples
    --------
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    >>> [round(optimal_chance(p, q, 2, replacement), 6) for replacement in (True, False)]
    [0.86, 0.985714]
    """
    target, law = one_vocabulary(one_row("p", p), one_row("q", q))
    n = _drafts(n, law, replacement)
    can = np.flatnonzero(law)  # tokens that q never draws only cost
    with np.errstate(over="ignore"):
        order = can[np.argsort(target[can] / law[can], kind="stable")]
    target, law = target[order], law[order]
    inside = law.cumsum() ** n if replacement else _first_in_prefix(law, n)
    return float(min(1.0, (1.0 + target.cumsum() - inside).min()))


def optimal_chance_of_law(p: ArrayLike, drafts: Mapping[tuple[int, ...], float]) -> float:
    """Chance that the best lossless rule keeps a draft, for any law of the drafts (F3.6).

    By enumeration of all sets of tokens, up to 16.

    Parameters
    ----------
    p
        The target's distribution, [V].
    drafts
        Probability of each tuple of drafted tokens; order and repetition do not matter.

    Raises
    ------
    ValueError
        When V is above 16, a token is outside it, or probabilities do not sum to 1.

    Examples
    --------
    The drafter's likeliest token, and one more drawn from the others:

    >>> round(optimal_chance_of_law([0.5, 0.3, 0.2], {(2, 0): 0.4, (2, 1): 0.6}), 6)
    0.9
    """
    target = one_row("p", p)
    size = len(target)
    if size > MOST_TOKENS:
        raise ValueError(
            f"All sets of {size} tokens are too many to enumerate (at most {MOST_TOKENS} tokens): "
            "use optimal_chance for drafts drawn from q."
        )
    if any(whole("A drafted token", token, 0) >= size for tokens in drafts for token in tokens):
        raise ValueError(f"Drafted tokens must be among the {size} tokens of p.")
    law = one_row("The law of the drafts", list(drafts.values()))
    cost, inside = np.zeros((2, 1 << size))  # one entry per set, a bit per token
    for tokens, chance in zip(drafts, law, strict=True):
        inside[sum(1 << token for token in set(tokens))] += chance
    for token, own in enumerate(target):
        cost.reshape(-1, 2, 1 << token)[:, 1] += own
        halves = inside.reshape(-1, 2, 1 << token)
        halves[:, 1] += halves[:, 0]  # in the end all tuples within the set
    return float((1.0 + cost - inside).min())


def _first_in_prefix(law: Floats, n: int) -> Floats:
    """P(n draws without replacement are all among the first i tokens), i = 1..V."""
    mass, latest, left = np.ones(1), np.zeros(1, dtype=int), law[None]
    for draw in range(n):
        at, token = np.nonzero(left)
        mass, latest = mass[at] * left[at, token], np.maximum(latest[at], token)
        if draw < n - 1:
            left = _without(left, at, token)
    newly = np.zeros(len(law))
    np.add.at(newly, latest, mass)
    return np.cumsum(newly)


def _without(law: Floats, at: NDArray[np.intp], token: NDArray[np.intp]) -> Floats:
    """Rows `at` of law, each without its token, rescaled."""
    rest: Floats = law[at]
    rest[np.arange(len(at)), token] = 0.0
    total = rest.sum(-1, keepdims=True)
    np.divide(rest, total, out=rest, where=total > 0)
    return rest


def _drafts(n: int, law: Floats, replacement: bool) -> int:
    """n, if so many drafts can be drawn from law, and enumerated where that is needed."""
    n = whole("n", n, least=1)
    can = int((law > 0).sum())
    if not replacement and n > can:
        raise ValueError(f"q has {can} tokens, so {n} cannot be drawn without replacement.")
    if not replacement:
        enumerable(perm(can, n), f"{n} of {can} tokens in every order", "V or n")
    return n
