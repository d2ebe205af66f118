"""What a verification rule keeps in expectation, computed exactly from p and q (F3.1 to F3.8).

p is the target's distribution of the next token and q the drafter's. The functions for one
drafted token take rows over the last axis, so that a matrix [positions, V] gives one chance per
position; their mean is the share of first drafted tokens that are kept. Chances and counts here
leave the bonus out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import xlogy

from specviz.analysis.branching import plain
from specviz.analysis.resampling import Floats
from specviz.analysis.theory.tree import Conditional, Path
from specviz.refuse import whole

#: Most paths V^k, or ordered tuples of distinct tokens, that are enumerated.
MOST_PATHS = 200_000
# ---- one drafted token -----------------------------------------------------------------


def rejection_chance(p: ArrayLike, q: ArrayLike) -> Any:
    """Chance that lossless rejection keeps a token drawn from q: sum min(p, q) (F3.1).

    The overlap of p and q, 1 - TV(p, q); no rule for one draft keeps more.

    Parameters
    ----------
    p, q
        Probabilities over the last axis; they broadcast. So for every function of this kind.

    Returns
    -------
    float or array
        One chance per pair of rows.

    Raises
    ------
    ValueError
        When p or q is no distribution, or they differ in vocabulary.

    Examples
    --------
    >>> round(rejection_chance([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), 6)
    0.7
    """
    p, q = _pair(p, q)
    return plain(np.minimum(p, q).sum(-1))


def sample_match_chance(p: ArrayLike, q: ArrayLike) -> Any:
    """Chance that a sample of p equals an independent one of q: sum p q (F3.2).

    With a point mass for q it is p(d), what every lossless rule gives a fixed token d.

    Examples
    --------
    >>> round(sample_match_chance([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), 6)
    0.29
    """
    p, q = _pair(p, q)
    return plain((p * q).sum(-1))


def shared_noise_chance(p: ArrayLike, q: ArrayLike) -> Any:
    """Chance that p and q take the same token when they race on the same noise (F3.3).

    Between `shared_noise_floor` and `rejection_chance`.

    Examples
    --------
    >>> round(shared_noise_chance([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), 6)
    0.630769
    """
    return plain(_shared_wins(*_pair(p, q)).sum(-1))


def shared_noise_floor(p: ArrayLike, q: ArrayLike) -> Any:
    """(1 - TV) / (1 + TV), below which `shared_noise_chance` never falls (F3.3).

    Examples
    --------
    >>> round(shared_noise_floor([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]), 6)
    0.538462
    """
    p, q = _pair(p, q)
    return plain(np.minimum(p, q).sum(-1) / np.maximum(p, q).sum(-1))


def greedy_chance(p: ArrayLike, q: ArrayLike) -> Any:
    """1.0 where p and q have the same argmax, else 0.0; of equals the smallest id (F3.4).

    Examples
    --------
    >>> greedy_chance([[0.51, 0.49], [0.9, 0.1]], [[0.49, 0.51], [0.6, 0.4]]).tolist()
    [0.0, 1.0]
    """
    p, q = _pair(p, q)
    return plain((p.argmax(-1) == q.argmax(-1)).astype(float))


def argmax_certificate(p: ArrayLike) -> Any:
    """Nats of KL(p || q) below which q is sure to have the argmax of p (F3.4).

    The least divergence of a q that puts as much on the second token as on the first. It is
    about half the squared margin over p_1 + p_2, and never less: where the target hesitates, a
    drafter has to be very near.

    Raises
    ------
    ValueError
        When p is no distribution over two tokens or more.

    Examples
    --------
    >>> round(argmax_certificate([0.5, 0.3, 0.2]), 6)
    0.025267
    """
    rows = _law("p", p)
    if rows.shape[-1] < 2:
        raise ValueError("A certificate compares the two likeliest tokens: p has only one.")
    second, first = np.moveaxis(np.partition(rows, -2, axis=-1)[..., -2:], -1, 0)
    return plain(kl_to_tie(first, second))


def kl_to_tie(first: Floats, second: Floats) -> Floats:
    """Least KL(p || q), nats, of a q in which p's two largest entries are equal (F3.4)."""
    middle = (first + second) / 2
    # Above 0 in truth; equal tokens may leave a rounding error.
    found: Floats = xlogy(first, first / middle) + xlogy(second, second / middle)
    return np.maximum(found, 0.0)


def lenient_chance(p: ArrayLike, q: ArrayLike, l: float) -> Any:  # noqa: E741 - the paper's name
    """Chance that rejection with lenience l keeps a token of q (F3.8). Lossy for l < 1.

    sum min(p / l, q); l above 0, at most 1, where it is `rejection_chance`.

    Examples
    --------
    >>> round(lenient_chance([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 0.5), 6)
    0.9
    """
    p, q = _pair(p, q)
    if not 0 < l <= 1:
        raise ValueError(f"l must be above 0 and at most 1, not {l!r}.")
    return plain(np.minimum(p / l, q).sum(-1))


def allowed_chance(q: ArrayLike, allowed: ArrayLike) -> Any:
    """Chance that a token of q is one that a relaxed rule lets pass (F3.7, F3.8). Lossy.

    Parameters
    ----------
    q
        Probabilities over the last axis.
    allowed
        Mask like q, True where the token passes: `allowed(p)` of a rule in
        `specviz.engine.lossy`.

    Raises
    ------
    ValueError
        When q is no distribution, or the mask is none or of another vocabulary.

    Examples
    --------
    >>> round(allowed_chance([0.2, 0.45, 0.2, 0.1, 0.05], [True, True, False, False, False]), 6)
    0.65
    """
    law, mask = _law("q", q), np.asarray(allowed)
    if mask.dtype != bool or mask.ndim == 0 or mask.shape[-1] != law.shape[-1]:
        raise ValueError(
            f"allowed must be True or False for each of the {law.shape[-1]} tokens, not "
            f"{mask.dtype} of shape {mask.shape}."
        )
    return plain((law * mask).sum(-1))


# ---- a chain drawn from q --------------------------------------------------------------


def chain_survival(p: Conditional, q: Conditional, k: int) -> pd.DataFrame:
    """P(accepted >= j) for a chain drawn from q, under each lossless rule (F3.5).

    By enumeration of all V^k chains, so for tiny vocabularies. The columns never fall from left
    to right, and their sums are E[accepted], the bonus not counted.

    Parameters
    ----------
    p, q
        Conditionals of target and drafter: distribution of the next token after a path below
        the anchor, [V]. Asked only after paths that both can take.
    k
        Tokens drafted.

    Returns
    -------
    DataFrame
        One row for each depth j = 1..k, and the columns

        - sample-match: target and drafter draw independently (F3.2);
        - shared-noise: they race on the same noise (F3.3);
        - rejection: token by token (F3.1);
        - block: block verification;
        - ceiling: 1 - TV of the laws of the first j tokens, above every lossless rule.

    Raises
    ------
    ValueError
        When there are more than 200 000 chains, or a row is no distribution.

    Examples
    --------
    >>> table = chain_survival(lambda path: [1 / 3, 2 / 3], lambda path: [2 / 3, 1 / 3], k=2)
    >>> table[["rejection", "block", "ceiling"]].sum().round(4).tolist()
    [1.1111, 1.2222, 1.3333]
    """
    depth = whole("k", k, least=1)
    survival = np.zeros((depth, 5))
    paths: list[Path] = [()]
    # Per path that both can take: P and Q of it, the chances that it is drawn and kept under
    # shared noise and under rejection, and w of block verification.
    path_p, path_q, noisy, kept, weight = np.ones((5, 1))
    for j in range(depth):
        laws = [_rows(name, model, paths) for name, model in (("p", p), ("q", q))]
        law_p, law_q = one_vocabulary(*laws)
        if j == 0:
            enumerable(law_p.shape[-1] ** depth, f"{law_p.shape[-1]}^{depth} chains", "V or k")
        at, token = np.nonzero((law_p > 0) & (law_q > 0))
        if not len(at):
            break
        next_p, next_q = law_p[at, token], law_q[at, token]
        path_p, path_q = path_p[at] * next_p, path_q[at] * next_q
        noisy = noisy[at] * _shared_wins(law_p, law_q)[at, token]
        kept = kept[at] * np.minimum(next_p, next_q)
        weight = np.minimum(1.0, weight[at] * next_p / next_q)
        survival[j] = [
            (path_p * path_q).sum(),
            noisy.sum(),
            kept.sum(),
            (path_q * weight).sum(),
            np.minimum(path_p, path_q).sum(),
        ]
        paths = [(*paths[i], x) for i, x in zip(at.tolist(), token.tolist(), strict=True)]
    rules = ["sample-match", "shared-noise", "rejection", "block", "ceiling"]
    return pd.DataFrame(survival, pd.RangeIndex(1, depth + 1, name="depth"), rules)


def _shared_wins(p: Floats, q: Floats) -> Floats:
    """P(both races are won by x) for each token x: 1 / sum over y of max(p_y/p_x, q_y/q_x).

    In order of p / q the maximum is the first ratio up to x, and the second after it.
    """
    p, q = np.broadcast_arrays(p, q)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(p > 0, p / q, 0.0), axis=-1, kind="stable")
        first = np.take_along_axis(p, order, axis=-1)
        second = np.take_along_axis(q, order, axis=-1)
        after = np.flip(np.flip(second, -1).cumsum(-1), -1) - second
        wins = 1.0 / (first.cumsum(-1) / first + after / second)
    back: Floats = np.zeros(p.shape)
    possible = (first > 0) & (second > 0)
    np.put_along_axis(back, order, np.where(possible, wins, 0.0), axis=-1)
    return back


# ---- what is let in --------------------------------------------------------------------


def one_row(name: str, values: ArrayLike) -> Floats:
    """One distribution, [V]; refuses a matrix of them."""
    law = _law(name, values)
    if law.ndim != 1:
        raise ValueError(f"{name} must be one distribution, not an array of shape {law.shape}.")
    return law


def one_vocabulary(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """p and q, if they are over equally many tokens."""
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"p and q must share one vocabulary, not {p.shape[-1]} and {q.shape[-1]} tokens."
        )
    return p, q


def enumerable(count: int, what: str, smaller: str) -> None:
    """Refuse an enumeration of more than `MOST_PATHS`."""
    if count > MOST_PATHS:
        raise ValueError(
            f"{what} are too many to enumerate (at most {MOST_PATHS}): take a smaller {smaller}."
        )


def _law(name: str, values: ArrayLike) -> Floats:
    """Distributions over the last axis, rescaled to sum to 1 in float64."""
    law: Floats = np.asarray(values, dtype=float)
    if law.ndim == 0 or not law.size or np.any(~(law >= 0)):
        raise ValueError(f"{name} must hold probabilities, at least 0, over the last axis.")
    totals: Floats = law.sum(-1, keepdims=True)
    if np.any(~(np.abs(totals - 1) <= 1e-3)):
        worst = float(totals.flat[np.abs(totals - 1).argmax()])
        raise ValueError(f"{name} must sum to 1 over the last axis, not to {worst:.4f}.")
    return np.divide(law, totals)


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    return one_vocabulary(_law("p", p), _law("q", q))


def _rows(name: str, model: Conditional, paths: list[Path]) -> Floats:
    rows = [one_row(f"{name} after path {path}", model(path)) for path in paths]
    if len({len(row) for row in rows}) > 1:
        raise ValueError(f"{name} must have the same vocabulary after every path.")
    return np.stack(rows)
