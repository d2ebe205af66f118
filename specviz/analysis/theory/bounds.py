"""Bounds on what a draft can win, each with what it assumes.

A theorem holds whenever its stated conditions do; a model adds an assumption about text, which a
trace can break (`specviz.iid_check`). p is the target's distribution of the next token and q the
drafter's; entropies and divergences are in nats; tau counts the bonus.

Entropy bounds only drafts that are fixed before a *sampled* target draws, or that are matched
with a sample drawn apart from them (T5.2). A drafter that draws from q = p under lossless
rejection is accepted always, at any entropy (T5.6), and a greedy target has no entropy ceiling
at all (T6.4): `specviz.which_ceiling` says which of these apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from specviz.analysis.branching import mean_entropy_floor, plain, pmax_bounds
from specviz.analysis.resampling import Floats
from specviz.analysis.theory.acceptance import one_row
from specviz.analysis.theory.tree import Conditional, Path, tree_chances
from specviz.refuse import whole

_TINY = 1e-9
#: How far moments that were printed with few digits may contradict each other.
_ROUNDED = 1e-3


@dataclass(frozen=True)
class SpeedOfLight:
    """Upper bound of tau for the best tree of fixed tokens, and what looks like one (T5.5).

    Attributes
    ----------
    tau
        The bound: the least of `explicit` and the most that a round can emit.
    explicit
        Upper bound with all its constants (T5.5'); above k + 1 for heavy tails.
    most
        Depth + 1, the most tokens that a round can emit.
    leading
        (mu + mu2) ln(n + 1) / mu^2, to which T5.5 adds an unknown constant: no bound as it is.
    scaling
        ln(n + 1) / mu, how tau grows with the tree: no bound either.
    """

    tau: float
    explicit: float
    most: int
    leading: float
    scaling: float


@dataclass(frozen=True)
class ExitEntropy:
    """Entropy of the tokens that a round emits, and where it goes (T5.4).

    Attributes
    ----------
    tau
        Expected tokens per round, the bonus counted.
    emitted
        Expected sum of the target's entropies over the emitted tokens; = exit + bonus.
    exit
        Entropy of where the realised text leaves the tree, at most `budget`.
    bonus
        Entropy of the target's own token, given where.
    budget
        ln(n + 1) for n nodes.
    accepted_surprisal, accepted_entropy
        Expected sums of -ln p and of entropy over the accepted tokens alone. The first is at
        most `exit`; the second has no such limit.
    """

    tau: float
    emitted: float
    exit: float
    bonus: float
    budget: float
    accepted_surprisal: float
    accepted_entropy: float


@dataclass(frozen=True)
class Sandwich:
    """What an entropy says of tau for the best chain of fixed tokens (T5.7).

    `crude` <= `low` <= tau <= `high`, the bonus counted: the sums of EBF_1^-j, of the least
    p_max^j and of the largest p_max^j that the entropy allows.
    """

    crude: float
    low: float
    high: float


# ---- what a drafter's inputs allow (greedy target) --------------------------------------


def posterior_entropy_bounds(match: ArrayLike, vocabulary: int) -> tuple[Any, Any]:
    """Least and largest H(Y | F) in nats at a share of matched tokens (T6.4).

    Y is the target's token, F what the drafter sees. The largest (Fano) is a theorem for any
    drafter: so much may at most be unknown of Y if `match` is reached. The least (Feder and
    Merhav) holds for the *best* drafter of its inputs only: a drafter that does not make the
    most of them matches less at the same H(Y | F).

    The way back, from H(Y | F) to the best match, is `branching_bounds.mean_pmax_bounds`.

    Parameters
    ----------
    match
        Shares of positions at which the draft is the target's token, 1 / V to 1.
    vocabulary
        V.

    Examples
    --------
    >>> least, largest = posterior_entropy_bounds(0.607, 151_936)
    >>> round(least, 3), round(largest, 3)
    (0.545, 5.359)
    """
    v = whole("vocabulary", vocabulary, least=2)
    share = np.asarray(match, dtype=float)
    if np.any(~((share >= 1 / v - _TINY) & (share <= 1 + _TINY))):
        raise ValueError(
            f"match must lie between 1 / V = {1 / v:.3g}, what guessing gives, and 1, not "
            f"{match!r}."
        )
    share = np.clip(share, 1 / v, 1.0)
    largest = entr(share) + entr(1 - share) + (1 - share) * np.log(v - 1)
    return mean_entropy_floor(1 - share), plain(largest)


# ---- trees of fixed tokens, sampled target ----------------------------------------------


def speed_of_light(mu: float, mu2: float, nodes: int, depth: int | None = None) -> SpeedOfLight:
    """Upper bound of tau for n nodes of fixed tokens and a sampled target (T5.5, T5.5').

    A model: the target's distributions are the same everywhere, or drawn anew and independently
    after every prefix. Text comes in stretches, and then this bound is too low: of two laws that
    take turns in long runs the best tree won 6.7 tokens where this says 4.6 (a test has it), and
    `best_tree` on the true distributions assumes nothing. The explicit form is

        (ln P - 1) / mu + mu2 / mu^2 + 1 + (1 / mu - mu2 / mu^2) / P,    P = n + 1,

    by counting the paths likelier than 1 / P as renewals of a walk with steps -ln p (Lorden's
    bound). It is loose for heavy tails, so the bound returned is never above depth + 1.

    Parameters
    ----------
    mu
        Mean entropy E[H(p)], nats.
    mu2
        Second log-moment E[sum p ln^2 p], nats^2: `log2_moment` of a trace's positions.
    nodes
        n, draft nodes (the anchor is not one of them).
    depth
        Longest path of the tree; None for no limit but n (the depth of a chain).

    Raises
    ------
    ValueError
        When mu is negative, mu2 below mu^2 (one of them is not in nats), or a size below 1.

    Examples
    --------
    Three equally likely tokens; the best seven nodes give 2.444.

    >>> round(speed_of_light(np.log(3), np.log(3) ** 2, nodes=7).tau, 3)
    2.971
    """
    n = whole("nodes", nodes, least=1)
    most = 1 + (n if depth is None else min(n, whole("depth", depth, least=1)))
    if not (mu >= 0 and np.isfinite(mu2) and mu2 >= mu**2 * (1 - _ROUNDED)):
        raise ValueError(
            f"mu is a mean entropy and mu2 a mean of squared logarithms, so 0 <= mu^2 <= mu2, not "
            f"mu = {mu!r} and mu2 = {mu2!r}: are both in nats?"
        )
    if mu == 0:
        return SpeedOfLight(float(most), np.inf, most, np.inf, np.inf)
    explicit = float(explicit_bound(mu, mu2, n))
    log_rows = float(np.log(n + 1))
    return SpeedOfLight(
        tau=min(explicit, float(most)),
        explicit=explicit,
        most=most,
        leading=(mu + mu2) * log_rows / mu**2,
        scaling=log_rows / mu,
    )


def explicit_bound(mu: ArrayLike, mu2: ArrayLike, nodes: int) -> Any:
    """The formula of T5.5' for arrays of moments, not yet held to depth + 1.

    Examples
    --------
    >>> round(explicit_bound(np.log(3), np.log(3) ** 2, 7), 3)
    2.971
    """
    mean, second = np.asarray(mu, dtype=float), np.asarray(mu2, dtype=float)
    rows = whole("nodes", nodes, least=1) + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = second / mean**2
        found = (np.log(rows) - 1) / mean + excess + 1 + (1 / mean - excess) / rows
    return plain(np.where(mean > 0, found, np.inf))


def exit_identity(paths: Sequence[Path], conditional: Conditional) -> ExitEntropy:
    """Entropy balance of a round with a tree of fixed tokens and a sampled target (T5.4).

    A theorem, whatever the dependence between positions: the emitted tokens carry the entropy
    of where the text leaves the tree, which is at most ln(n + 1), and that of the token after it.

    It does *not* follow that the target's entropy over the accepted tokens is at most ln(n + 1),
    though one finds it written: with one node of p = .9 and the rest spread over 1000 tokens
    that sum is 0.9 H = 0.914, above ln 2 = 0.693. Their surprisal -ln p is what stays below.

    Parameters
    ----------
    paths
        Token path of every node, parents before children.
    conditional
        The target's distribution after a path; it must sum to 1.

    Raises
    ------
    ValueError
        As `tree_chances`, and when a distribution does not sum to 1.

    Examples
    --------
    >>> found = exit_identity([(0,), (0, 0)], lambda path: [0.8, 0.2])
    >>> round(found.tau, 2), round(found.emitted, 6), round(found.exit + found.bonus, 6)
    (2.44, 1.220982, 1.220982)
    """
    tree = tree_chances(paths, conditional)
    reached = {(): 1.0, **dict(zip(tree.paths, tree.chances.tolist(), strict=True))}
    drafted: dict[Path, list[int]] = {path: [] for path in reached}
    for path in tree.paths:
        drafted[path[:-1]].append(path[-1])
    emitted = out = bonus = surprisal = entropy = 0.0
    for path, chance in reached.items():
        row = one_row(f"The row after path {path}", conditional(path))
        kept = row[drafted[path]]
        own = row.copy()
        own[drafted[path]] = 0.0
        leaves = chance * float(own.sum())
        here = chance * float(entr(row).sum())
        emitted += here
        entropy += here * float(kept.sum())
        surprisal += chance * float(entr(kept).sum())
        out += float(entr(leaves))
        # Entropy of the rest, rescaled: -sum w ln w + W ln W over W, weighted by W.
        bonus += chance * float(entr(own).sum() - entr(own.sum()))
    return ExitEntropy(
        tau=tree.tau,
        emitted=emitted,
        exit=out,
        bonus=max(bonus, 0.0),
        budget=float(np.log(len(reached))),
        accepted_surprisal=surprisal,
        accepted_entropy=entropy,
    )


def exit_ceiling(entropy: float, nodes: int, bonus_entropy: float) -> float:
    """Most tokens per round, bonus counted, at one and the same entropy everywhere (T5.4).

    (ln(n + 1) + H(bonus | exit)) / H, never above n + 1. A model in so far as the entropy (not
    the distribution) is the same after every prefix; else a theorem for fixed tokens and a
    sampled target.

    Parameters
    ----------
    entropy
        H of the target after every prefix, nats; 0 gives n + 1.
    nodes
        n, draft nodes.
    bonus_entropy
        Entropy of the target's own token given where the text leaves the tree, nats: at most ln V.
        It can exceed H, as the drafted tokens are not among what it may be.

    Examples
    --------
    >>> round(exit_ceiling(1.0297, nodes=3, bonus_entropy=0.7346), 2)
    2.06
    """
    n = whole("nodes", nodes, least=1)
    if not (0 <= entropy < np.inf and 0 <= bonus_entropy < np.inf):
        raise ValueError(
            f"Entropies are finite, 0 nats or more, not {entropy!r} and {bonus_entropy!r}."
        )
    if entropy == 0:
        return float(n + 1)
    return float(min((np.log(n + 1) + bonus_entropy) / entropy, n + 1))


def entropy_sandwich(entropy: float, k: int, vocabulary: int) -> Sandwich:
    """Range of tau for the best chain of k fixed tokens when only entropy is known (T5.7).

    A model: a sampled target with one and the same distribution at every position, and a drafter
    that knows it. Then tau = sum of p_max^j, j = 0..k, exactly (`tau_iid` at p_max). It says
    nothing of drafters that know less: those may win no token at all, so that the only lower
    bound for every drafter is 1.

    Parameters
    ----------
    entropy
        H in nats, of every position.
    k
        Tokens of the chain.
    vocabulary
        V.

    Examples
    --------
    >>> found = entropy_sandwich(1.088, k=7, vocabulary=151_936)
    >>> round(found.low, 2), round(found.high, 2)
    (1.58, 6.29)
    """
    low, high = pmax_bounds(entropy, vocabulary)
    ends = chain_tau([np.exp(-entropy), low, high], k)
    return Sandwich(*map(float, ends))


def chain_tau(alpha: ArrayLike, k: int) -> Floats:
    """Sum of alpha^j, j = 0..k, for every alpha: `tau_iid` for arrays.

    Examples
    --------
    >>> chain_tau([0.0, 0.5, 1.0], 2).tolist()
    [1.0, 1.75, 3.0]
    """
    powers = np.arange(whole("k", k, least=0) + 1)
    return np.asarray((np.asarray(alpha, dtype=float)[..., None] ** powers).sum(-1))
