"""How far a drafter's confidence can be taken at its word, and policies fitted to a capture.

A confidence is the drafter's own score of a drafted token; what a policy needs is the chance
that the token matches, given that all before it in the draft did. Fit on other prompts than
the policy is judged on.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from specviz.analysis.anchors import Ints, anchors_of, fixed_rounds
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, ratio_interval
from specviz.analysis.survival.lengths import kaplan_meier
from specviz.cost import CostModel
from specviz.policies import CostOptimal
from specviz.refuse import whole
from specviz.trace import Trace

Pairs = tuple[tuple[float, float], ...]


def reliability(
    trace: Trace,
    drafter: str | None = None,
    bins: int = 10,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Confidence against the share of drafted tokens that match.

    Counts, at every anchor, the drafted tokens whose elders all match, up to and including the
    first that does not: what a stopping rule is asked about.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        None takes the trace's only one.
    bins
        Groups of equally many tokens, by confidence; ties stay together, so there may be fewer.
    level, draws, seed
        Of the intervals.

    Returns
    -------
    DataFrame
        confidence (mean of the group), match (share that equals the target's token) with low
        and high (interval over resampled prompts, NaN with one prompt), n (tokens), n_prompts.

    Raises
    ------
    ValueError
        When the trace is no greedy capture, or nothing was drafted.
    """
    whole("bins", bins, least=1)
    score, match, prompt = _asked(trace, drafter)
    edges = np.unique(np.quantile(score, np.linspace(0, 1, bins + 1)))
    group = np.clip(np.searchsorted(edges, score, side="right") - 1, 0, max(len(edges) - 2, 0))
    rows = []
    for g in np.unique(group):
        mine = group == g
        _, own = np.unique(prompt[mine], return_inverse=True)
        hits = np.bincount(own, match[mine]).astype(float)
        found = ratio_interval(hits, np.bincount(own).astype(float), level, draws, seed)
        rows.append(
            {
                "confidence": float(score[mine].mean()),
                "match": found.estimate,
                "low": found.low,
                "high": found.high,
                "n": int(mine.sum()),
                "n_prompts": found.n_prompts,
            }
        )
    return pd.DataFrame(rows)


def calibrate(trace: Trace, drafter: str | None = None, knots: int = 12) -> Pairs:
    """Pairs (confidence, chance of a match) for `CostOptimal`, rising in both.

    The shares of `reliability` made monotone by isotonic regression, weighted by their counts.
    """
    table = reliability(trace, drafter, knots, draws=1)
    order = np.argsort(table["confidence"].to_numpy(), kind="stable")
    scores = table["confidence"].to_numpy()[order]
    fitted = isotonic_regression(
        table["match"].to_numpy()[order], weights=table["n"].to_numpy(dtype=float)[order]
    ).x
    keep = np.r_[True, np.diff(scores) > 0]
    return tuple(
        (float(np.clip(score, 0, 1)), float(np.clip(chance, 0, 1)))
        for score, chance in zip(scores[keep], fitted[keep], strict=True)
    )


def fit_cost_optimal(
    trace: Trace, cost: CostModel, drafter: str | None = None, dynamic: bool = True
) -> CostOptimal:
    """`CostOptimal` with the survival and the calibration of a capture (F4.3, F4.4).

    Survival is the Kaplan-Meier curve of rounds of the longest draft, as live they start where
    the last one ended.

    Parameters
    ----------
    trace
        A greedy capture of prompts that the policy will not be judged on.
    cost
        Seconds of drafting and verifying.
    drafter
        None takes the trace's only one.
    dynamic
        False fits the best fixed k.

    Examples
    --------
    >>> sv.replay(held_out, fit_cost_optimal(train, cost, "lm"))             # doctest: +SKIP
    """
    anchors = anchors_of(trace, drafter)
    where, drafted, accepted = fixed_rounds(anchors, anchors.k)
    last = anchors.anchor[where] + accepted + 1 == anchors.n[anchors.owner[where]] - 1
    survival = kaplan_meier(accepted, (accepted < drafted) & ~last, anchors.k)
    pairs = calibrate(trace, anchors.drafter) if dynamic else None
    return CostOptimal(cost, survival.tolist(), anchors.drafter, pairs, dynamic)


def _asked(trace: Trace, drafter: str | None) -> tuple[Floats, NDArray[np.bool_], Ints]:
    """Confidence, match and prompt of every drafted token that a rule may be asked about."""
    anchors = anchors_of(trace, drafter)
    score = trace.matrix("confidence", anchors.drafter)[anchors.row].astype(float)
    depth = np.arange(score.shape[1])
    # Up to the first mismatch; at the output's end the rest is unknown.
    known = depth < np.minimum(anchors.offered, anchors.acceptable + 1)[:, None]
    inside = (anchors.anchor + 2)[:, None] + depth < anchors.n[anchors.owner][:, None]
    known &= inside & np.isfinite(score)
    if not known.any():
        raise ValueError(f"{anchors.drafter!r} drafted nothing in this trace: nothing to fit.")
    match = depth < anchors.acceptable[:, None]
    prompt = np.broadcast_to(anchors.owner[:, None], known.shape)
    return score[known], match[known], prompt[known]
