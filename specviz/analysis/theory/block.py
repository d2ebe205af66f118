"""What a drafter of whole blocks loses by drawing its tokens apart from one another (T6.1, T6.2).

Such a drafter has one distribution per depth, and its draft follows their product: it knows no
pairs of tokens. Exact, from the target's joint law of the next k tokens, for laws small enough to
write down. Accepted counts leave the bonus out. A draft of *fixed* tokens loses nothing by being
made all at once (T6.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.special import entr

from specviz.analysis.resampling import Floats
from specviz.analysis.theory.acceptance import enumerable
from specviz.analysis.theory.divergence import bretagnolle_huber_floor
from specviz.analysis.theory.tree import best_chain
from specviz.refuse import whole

_ROUNDING = 1e-9
_MOST_PASSES = 50


@dataclass(frozen=True, eq=False)
class Factorised:
    """Accepted tokens per block of k, by kind of drafter; a sampled target, bonus not counted.

    Attributes
    ----------
    survival
        [k]: 1 - TV of the target's law of the first j tokens and the product of its marginals,
        j = 1..k. No lossless rule accepts j tokens more often, and at j = 2 rejection token by
        token does as often.
    total_correlation
        [k]: KL of the same two laws, nats: how much the first j tokens tell of one another.
    floor
        [k]: 1 - sqrt(1 - e^-total_correlation), never above `survival`.
    exact_marginals
        Sum of `survival`: the ceiling of a drafter that knows every marginal exactly.
    best_product
        The same sum for the best product found, at least `exact_marginals`.
    best_laws
        That product, one distribution per depth.
    argmax_of_marginals
        What the likeliest token of every marginal is worth as a fixed draft.
    best_chain
        What the best fixed draft is worth (T5.3).
    autoregressive
        k: a drafter that draws each token given those before it, with q = p, loses none.
    """

    survival: Floats
    total_correlation: Floats
    floor: Floats
    exact_marginals: float
    best_product: float
    best_laws: tuple[Floats, ...]
    argmax_of_marginals: float
    best_chain: float
    autoregressive: float


def factorised(joint: ArrayLike, starts: int = 4, seed: int = 0) -> Factorised:
    """Compare drafters of a block whose joint law under the target is known (T6.1 to T6.3).

    Theorems, but for the best product: it is climbed to, depth by depth, each step a linear
    programme that is solved exactly. That ends at a product that no change of one distribution
    betters; from several starts it is mostly the best one, and always a valid lower bound of it.

    Parameters
    ----------
    joint
        P(x_1, ..., x_k) with one axis per depth, all probabilities at once.
    starts, seed
        Random products to climb from, beside the exact marginals and the best chain.

    Raises
    ------
    ValueError
        When the joint is no distribution, or has more than 200 000 entries.

    Examples
    --------
    New York, San Francisco and San Diego: rows New and San, columns York, Francisco and Diego.

    >>> found = factorised([[0.4, 0, 0], [0, 0.35, 0.25]])
    >>> round(found.exact_marginals, 2), round(found.best_product, 2)
    (1.52, 1.6)
    >>> round(found.argmax_of_marginals, 2), round(found.best_chain, 2)
    (0.6, 0.95)
    """
    law = _joint(joint)
    k = law.ndim
    heads = [law.sum(axis=tuple(range(j, k))) for j in range(1, k + 1)]
    marginals = [law.sum(axis=tuple(a for a in range(k) if a != j)) for j in range(k)]
    survival = _survival(heads, marginals)
    own = np.array([entr(m).sum() for m in marginals]).cumsum()
    correlation = np.maximum(own - [entr(head).sum() for head in heads], 0.0)
    correlation[0] = 0.0  # one token has none to tell of

    def conditional(path: tuple[int, ...]) -> Floats:
        rest = law[path]
        following: Floats = rest.sum(axis=tuple(range(1, rest.ndim)))
        total = following.sum()
        return following / total if total > 0 else following

    chain = best_chain(conditional, k)
    guess = tuple(int(m.argmax()) for m in marginals)
    laws, value = _best_product(heads, marginals, chain.paths[-1], starts, seed)
    return Factorised(
        survival=survival,
        total_correlation=correlation,
        floor=np.asarray(bretagnolle_huber_floor(correlation)),
        exact_marginals=float(survival.sum()),
        best_product=value,
        best_laws=laws,
        argmax_of_marginals=float(sum(heads[j][guess[: j + 1]] for j in range(k))),
        best_chain=chain.accepted,
        autoregressive=float(k),
    )


def product_survival(joint: ArrayLike, laws: Sequence[ArrayLike]) -> Floats:
    """1 - TV of the target's first j tokens and the product of `laws`, j = 1..k (T6.1, T6.2).

    The most often that any lossless rule can accept j tokens drawn from that product.

    Parameters
    ----------
    joint
        As in `factorised`.
    laws
        One distribution per depth.

    Raises
    ------
    ValueError
        As `factorised`, and when a distribution does not fit its axis.

    Examples
    --------
    >>> product_survival([[0.5, 0], [0, 0.5]], [[0.5, 0.5], [0.5, 0.5]]).tolist()
    [1.0, 0.5]
    """
    law = _joint(joint)
    rows = [np.asarray(each, dtype=float) for each in laws]
    for j, row in enumerate(rows):
        if j < law.ndim and (
            row.shape != (law.shape[j],) or np.any(~(row >= 0)) or abs(row.sum() - 1) > 1e-6
        ):
            raise ValueError(
                f"The distribution of depth {j + 1} must hold {law.shape[j]} probabilities."
            )
    if len(rows) != law.ndim:
        raise ValueError(f"{law.ndim} depths need as many distributions, not {len(rows)}.")
    heads = [law.sum(axis=tuple(range(j, law.ndim))) for j in range(1, law.ndim + 1)]
    return _survival(heads, rows)


def _survival(heads: list[Floats], laws: Sequence[Floats]) -> Floats:
    product: Floats = np.ones(())
    found = []
    for head, law in zip(heads, laws, strict=True):
        product = np.multiply.outer(product, law)
        found.append(float(np.minimum(head, product).sum()))
    return np.array(found)


def _best_product(
    heads: list[Floats], marginals: list[Floats], chain: tuple[int, ...], starts: int, seed: int
) -> tuple[tuple[Floats, ...], float]:
    """The best product found by turns from every start, and its sum of survival."""
    rng = np.random.default_rng(whole("seed", seed, least=0))
    points = [np.eye(len(m))[token] for m, token in zip(marginals, chain, strict=True)]
    first = [list(marginals), points]
    for _ in range(whole("starts", starts, least=0)):
        first.append([rng.dirichlet(np.ones(len(m))) * (m > 0) for m in marginals])
        first[-1] = [row / row.sum() for row in first[-1]]
    best, reached = list(marginals), -1.0
    for laws in first:
        value = float(_survival(heads, laws).sum())
        for _ in range(_MOST_PASSES):
            before = value
            for j in range(len(laws)):
                laws[j] = _best_law(heads, laws, j)
            value = float(_survival(heads, laws).sum())
            if value <= before + _ROUNDING:
                break
        if value > reached + _ROUNDING:
            best, reached = list(laws), value
    return tuple(best), reached


def _best_law(heads: list[Floats], laws: list[Floats], j: int) -> Floats:
    """The distribution of depth j (from 0) that is best with the others as they are.

    Variables are q_j, and for every possible path x that reaches depth j what is kept of it,
    t_x <= P(x) and t_x <= q_j(x_j) times the others' probability.
    """
    size = len(laws[j])
    room: list[NDArray[np.float64]] = []
    other: list[NDArray[np.float64]] = []
    token: list[NDArray[np.intp]] = []
    for depth in range(j, len(heads)):
        where = np.nonzero(heads[depth])
        room.append(heads[depth][where])
        token.append(where[j])
        product = np.ones(len(where[0]))
        for i in range(depth + 1):
            if i != j:
                product = product * laws[i][where[i]]
        other.append(product)
    kept, share, at = np.concatenate(room), np.concatenate(other), np.concatenate(token)
    n = len(kept)
    rows = np.arange(n)
    limits = csr_array(
        (
            np.concatenate([-share, np.ones(n)]),
            (np.concatenate([rows, rows]), np.concatenate([at, size + rows])),
        ),
        shape=(n, size + n),
    )
    found = linprog(
        np.concatenate([np.zeros(size), -np.ones(n)]),
        A_ub=limits,
        b_ub=np.zeros(n),
        A_eq=csr_array(np.concatenate([np.ones(size), np.zeros(n)])[None]),
        b_eq=[1.0],
        bounds=[(0, None)] * size + [(0, limit) for limit in kept],
        method="highs",
    )
    law = np.maximum(found.x[:size], 0.0)
    return np.asarray(law / law.sum())


def _joint(joint: ArrayLike) -> Floats:
    law: Floats = np.asarray(joint, dtype=float)
    if law.ndim == 0 or not law.size or np.any(~(law >= 0)) or abs(law.sum() - 1) > 1e-6:
        raise ValueError(
            "joint must hold the probabilities of all blocks, one axis per depth, and sum to 1."
        )
    enumerable(law.size, f"{law.size} blocks", "V or k")
    return np.asarray(law / law.sum())
