"""Rounds as a renewal chain on the anchors of one sampled output (F7.6).

Given the output, the first i drafted tokens are its next i tokens and are kept with chance W_i,
a product of known factors. A round that starts at anchor t therefore leads to t + i + 1 with
chance W_i - W_(i+1), and what is expected of all rounds follows by one pass over the anchors.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from specviz.analysis.anchors import Anchors, Ints, by_position
from specviz.analysis.replays.sampled_policies import Asker
from specviz.analysis.resampling import Floats
from specviz.trace import Trace

#: Which drafted tokens are kept: the factor of one depth of W, for the output's token x there.
RULES = {
    "rejection": "min(1, q(x) / p(x)): drafts drawn from q, rejection sampling (F3.1)",
    "drawn-match": "q(x): drafts drawn from q, kept where the target draws the same (F3.2)",
    "argmax-match": "1 where the drafter's likeliest token is x: SampleMatch, point drafts (F3.2)",
}


def reach(factors: ArrayLike) -> Floats:
    """W: the chance that the first i drafted tokens are the output's and are kept (F7.6).

    Parameters
    ----------
    factors
        Shape [anchors, K], in [0, 1]: of drafted token j at anchor t, about output token
        t + j. For rejection sampling min(1, q(x) / p(x)).

    Returns
    -------
    array
        Shape [anchors, K], column i - 1 is W_i, the product of the first i factors.

    Examples
    --------
    >>> reach([[0.5, 0.5], [1.0, 0.25]]).tolist()
    [[0.5, 0.25], [1.0, 0.25]]
    """
    table = np.asarray(factors, dtype=float)
    if table.ndim != 2 or np.any(~((table >= 0) & (table <= 1))):
        raise ValueError("Factors are chances between 0 and 1, shape [anchors, K].")
    return np.asarray(np.cumprod(table, axis=1))


def round_starts(w: ArrayLike, depth: ArrayLike, start: ArrayLike = (0,)) -> Floats:
    """Chance that a round starts at each anchor, given the output (F7.6).

    Their sum over a sequence is its expected number of rounds: the linear recursion
    S(t) = 1 + sum_i P(advance i + 1) S(t + i + 1), followed forwards.

    Parameters
    ----------
    w
        Shape [anchors, K]: see `reach`.
    depth
        Shape [anchors]: tokens that can be kept there, from 0 to K: at most k, and short of
        the output's last token, which is the target's own.
    start
        First anchor of every sequence.

    Returns
    -------
    array
        Shape [anchors].

    Examples
    --------
    Three anchors, every draft of one token kept with chance one half; the last anchor's draft
    has no room:

    >>> round_starts([[0.5], [0.5], [0.5]], [1, 1, 0]).tolist()
    [1.0, 0.5, 0.75]
    """
    table, cut = np.asarray(w, dtype=float), np.asarray(depth)
    if table.ndim != 2 or cut.shape != table.shape[:1] or cut.dtype.kind not in "iu":
        raise ValueError("Need w of shape [anchors, K] and one whole depth per anchor.")
    if cut.size and not (cut.min() >= 0 and cut.max() <= table.shape[1]):
        raise ValueError(f"Depths lie between 0 and K = {table.shape[1]}.")
    count, wide = table.shape
    # P(kept exactly i), i = 0..K: W_i - W_(i+1), and all of W at the depth itself.
    kept = np.where(np.arange(1, wide + 1) <= cut[:, None], table, 0.0)
    step = np.column_stack([np.ones(count), kept]) - np.column_stack([kept, np.zeros(count)])
    chance = np.zeros(count + wide + 1)
    begins = set(np.asarray(start).tolist())
    for t, (row, last) in enumerate(zip(step, cut.tolist(), strict=True)):
        if t in begins:
            chance[t] = 1.0  # what reached the end of the sequence before arrived here, too
        chance[t + 1 : t + last + 2] += chance[t] * row[: last + 1]
    return chance[:count]


class Reaches:
    """W of every drafter that is used, [anchors, K], and how deep it can be kept."""

    def __init__(self, trace: Trace, rule: str) -> None:
        self._trace, self._rule = trace, rule
        self._known: dict[str, Floats] = {}

    def of(self, anchors: Anchors) -> Floats:
        if anchors.drafter not in self._known:
            self._known[anchors.drafter] = self._read(anchors)
        return self._known[anchors.drafter]

    def _read(self, anchors: Anchors) -> Floats:
        if self._rule == "argmax-match":
            depths = np.arange(1, anchors.k + 1)
            return (depths <= anchors.acceptable[:, None]).astype(float)
        path = self._trace.matrix("path_logq", anchors.drafter)[anchors.row][:, : anchors.k]
        logq = path.astype(float)
        if self._rule == "rejection":
            logp = by_position(self._trace, anchors, "logp_sampled").astype(float)
            first = np.concatenate([[0], np.cumsum(anchors.n)])[anchors.owner]
            t = anchors.anchor[:, None] + np.arange(1, anchors.k + 1)
            inside = np.minimum(t, anchors.n[anchors.owner][:, None] - 1)
            logq = logq - logp[first[:, None] + inside]
        # Where nothing is known nothing is drafted, or the output has ended.
        return reach(np.nan_to_num(np.exp(np.minimum(logq, 0.0)), nan=0.0))


def expected_rounds(
    asker: Asker, reaches: Reaches, who: NDArray[np.object_], drafted: Ints
) -> pd.DataFrame:
    """Rounds of a policy whose drafts follow from committed text: an expectation."""
    anchors = asker.anchors
    depth = np.minimum(drafted, anchors.n[anchors.owner] - 2 - anchors.anchor)
    wide = max((asker.anchors_of(name).k for name in set(who)), default=1)
    w = np.zeros((len(drafted), wide))
    for name in sorted(set(who)):
        mine = who == name
        known = reaches.of(asker.anchors_of(name))
        w[mine, : known.shape[1]] = known[mine]
    weight = round_starts(w, depth, anchors.start[:-1])
    kept = np.where(np.arange(1, wide + 1) <= depth[:, None], w, 0.0).sum(axis=1)
    rows = pd.DataFrame(
        {
            "where": np.arange(len(drafted)),
            "drafter": who,
            "drafted": drafted,
            "accepted": kept,
            "weight": weight,
        }
    )
    return rows[weight > 0]


def drawn_rounds(
    asker: Asker, reaches: Reaches, runs: int, seed: int
) -> tuple[pd.DataFrame, NDArray[np.float64]]:
    """Rounds of a policy that looks at past rounds: drawn `runs` times."""
    anchors, rng = asker.anchors, np.random.default_rng(seed)
    tokens = float((anchors.n - 1).sum())
    rounds: list[tuple[int, str, int, int]] = []
    per_run = []
    for _ in range(runs):
        before = len(rounds)
        for s in range(len(anchors.n)):
            walk = asker.walk(s)
            while walk.anchor < anchors.n[s] - 1:
                name, drafted = asker.ask(walk, tuple(walk.rounds))
                room = min(drafted, int(anchors.n[s]) - 2 - walk.anchor)
                # P(W_i > u) = W_i for u uniform, and W only falls.
                w = reaches.of(asker.anchors_of(name))[walk.here, :room]
                accepted = int((w > rng.random()).sum())
                rounds.append((walk.here, name, drafted, accepted))
                walk.follow(name, drafted, accepted)
        per_run.append(tokens / max(len(rounds) - before, 1))
    frame = pd.DataFrame(rounds, columns=["where", "drafter", "drafted", "accepted"])
    frame["weight"] = 1.0 / runs
    grouped = frame.groupby(["where", "drafter", "drafted"], as_index=False)
    rows = grouped.agg(accepted=("accepted", "mean"), weight=("weight", "sum"))
    return rows, np.array(per_run)
