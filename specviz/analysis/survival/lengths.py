"""Accepted lengths: how far drafts survive, and what that says of tokens per round.

`survival[j]` is P(accepted >= j); `hazard_accept[j]` is P(token j accepted, given that the
ones before it were). A round that ran out of draft, or reached the output's end, says nothing
of the tokens beyond: it is censored there, not rejected.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    check_resampling,
    percentiles,
    resampled_sums,
    wilson,
)
from specviz.analysis.theory.tau import invert_tau, position_value, tau, tau_iid

__all__ = [
    "accepted_lengths",
    "draft_yield",
    "invert_tau",
    "kaplan_meier",
    "position_value",
    "survival_by",
    "survival_shares",
    "tau",
    "tau_iid",
    "tokens_per_round",
    "wilson",
]

_NEEDED = ("drafted", "accepted", "stop")


def tokens_per_round(accepted: ArrayLike) -> float:
    """Tokens emitted per round, the bonus counted: 1 + mean accepted (F2.5)."""
    a = _counts(accepted)
    return 1.0 + float(a.mean())


def draft_yield(accepted: ArrayLike, drafted: ArrayLike) -> float:
    """Accepted / drafted over all rounds (F2.5); it falls as k rises, drafter unchanged.

    NaN when nothing was drafted. For a fixed number d drafted in every round,
    tokens per round = 1 + d * draft yield.
    """
    a, d = _rounds(accepted, drafted)
    return float(a.sum() / d.sum()) if d.sum() else float("nan")


def survival_shares(accepted: ArrayLike, k: int) -> Floats:
    """Share of rounds that accepted at least j, j = 1..k: vLLM's per-position number (F2.5).

    Counts a round that ran out of draft as if it had been rejected there; see `kaplan_meier`.

    Examples
    --------
    >>> survival_shares([0, 1, 3], 3).round(3).tolist()
    [0.667, 0.333, 0.333]
    """
    a = _counts(accepted)
    return np.asarray((a[:, None] >= np.arange(1, k + 1)).mean(axis=0))


def accepted_lengths(rounds: pd.DataFrame, by: str | None = "content_type") -> pd.DataFrame:
    """Distribution of the accepted length (the bonus not counted).

    Parameters
    ----------
    rounds
        `replay(...).rounds`, or a run's rounds with a column to group by.
    by
        A column of `rounds`; None takes all rounds together.

    Returns
    -------
    DataFrame
        The group, accepted (0..longest), n_rounds, share, censored (how many of these rounds
        ended without a rejection: full, eos or limit).
    """
    frame, key = _grouped(rounds, by, ("accepted", "stop"))
    longest = int(frame["accepted"].max())
    rows = []
    for value, group in frame.groupby(key, sort=False):
        lengths = group["accepted"].to_numpy()
        open_ended = lengths[(group["stop"] != "reject").to_numpy()]
        counts = np.bincount(lengths, minlength=longest + 1)
        rows.append(
            pd.DataFrame(
                {
                    key: value,
                    "accepted": np.arange(longest + 1),
                    "n_rounds": counts,
                    "share": counts / counts.sum(),
                    "censored": np.bincount(open_ended, minlength=longest + 1),
                }
            )
        )
    return _ungrouped(pd.concat(rows, ignore_index=True), by)


def kaplan_meier(accepted: ArrayLike, rejected: ArrayLike, k: int) -> Floats:
    """P(accepted >= j) for j = 1..k with censored rounds, by Kaplan and Meier (F7.3).

    Parameters
    ----------
    accepted
        Accepted tokens per round.
    rejected
        True where the next token was rejected; False where the round ended for another
        reason (the draft was used up, the text or the limit ended), which says nothing
        beyond `accepted`.
    k
        Depth of the curve. Beyond the deepest token ever tried the curve stays flat.

    Returns
    -------
    array
        Shape [k].

    Notes
    -----
    When every round drafts the same k there is no information beyond it; when a policy drafts
    less where it expects rejection, censoring is informative and the curve too high (F7.4).

    Examples
    --------
    >>> a, k = [0, 2, 1, 4, 3, 2, 0, 4], [2, 2, 4, 4, 4, 2, 4, 4]
    >>> kaplan_meier(a, [x < y for x, y in zip(a, k)], 4).round(5).tolist()
    [0.75, 0.625, 0.625, 0.41667]
    """
    a = _counts(accepted)
    event = np.asarray(rejected, dtype=bool)
    if event.shape != a.shape:
        raise ValueError(f"{len(a)} accepted lengths need as many flags, not {event.shape}.")
    data = stats.CensoredData(uncensored=a[event] + 1, right=a[~event])
    return np.asarray(stats.ecdf(data).sf.evaluate(np.arange(1, k + 1)), dtype=float)


def survival_by(
    rounds: pd.DataFrame,
    by: str | None = "content_type",
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Survival and hazard per depth, censoring accounted for, with intervals over prompts.

    Parameters
    ----------
    rounds
        `replay(...).rounds`; needs prompt_id, drafted, accepted and stop.
    by
        A column of `rounds`; None takes all rounds together.
    level, draws, seed
        Of the expanded percentile intervals. A resample in which no round reached a depth is
        left out of that depth's interval; a hazard has one from two prompts that reached it.

    Returns
    -------
    DataFrame
        The group, depth j (1..most drafted), at_risk (rounds whose token j was tried with
        the ones before it accepted), rejected (of those), hazard_accept (the share accepted)
        with hazard_low and hazard_high, survival (Kaplan-Meier, P(accepted >= j)) with low
        and high, survival_share (rounds with accepted >= j / all rounds: censored rounds
        count as rejected), n_rounds, n_prompts. NaN where no round reached the depth.
    """
    check_resampling(level, draws, seed)
    frame, key = _grouped(rounds, by, ("prompt_id", *_NEEDED))
    depths = np.arange(1, max(int(frame["drafted"].max()), 1) + 1)
    rows = []
    for value, group in frame.groupby(key, sort=False):
        a = group["accepted"].to_numpy()
        event = (group["stop"] == "reject").to_numpy()
        codes, prompts = pd.factorize(group["prompt_id"])
        tried, failed = per_prompt_depth(a, event, codes, len(prompts), len(depths))
        found = survival_table(tried, failed, len(a), level=level, draws=draws, seed=seed)
        found.insert(0, key, value)
        rows.append(found)
    return _ungrouped(pd.concat(rows, ignore_index=True), by)


def survival_table(
    tried: Floats, failed: Floats, n_rounds: int, *, level: float, draws: int, seed: int
) -> pd.DataFrame:
    """The rows of `survival_by` of one group, from its sums per prompt and depth [prompts, k].

    `tried` and `failed` are those of `per_prompt_depth`: all that survival rests on.
    """
    prompts, k = tried.shape
    at_risk, rejected = tried.sum(axis=0), failed.sum(axis=0)
    with np.errstate(invalid="ignore"):
        hazard = 1 - rejected / at_risk
    survived = np.where(at_risk > 0, np.cumprod(hazard), np.nan)
    ends = np.full((4, k), np.nan)
    if prompts > 1:
        ends = _ends(np.hstack([tried, failed]), k, level, draws, seed)
    return pd.DataFrame(
        {
            "depth": np.arange(1, k + 1),
            "at_risk": at_risk.astype(int),
            "rejected": rejected.astype(int),
            "hazard_accept": hazard,
            "hazard_low": ends[0],
            "hazard_high": ends[1],
            "survival": survived,
            "low": np.where(at_risk > 0, ends[2], np.nan),
            "high": np.where(at_risk > 0, ends[3], np.nan),
            "survival_share": (at_risk - rejected) / n_rounds,  # accepted >= j: tried, not rejected
            "n_rounds": n_rounds,
            "n_prompts": prompts,
        }
    )


def per_prompt_depth(
    a: NDArray[np.int64], event: NDArray[np.bool_], codes: NDArray[np.intp], prompts: int, k: int
) -> tuple[Floats, Floats]:
    """Per prompt and depth 1..k: tokens tried, and tokens rejected. [prompts, k] each."""
    tried, failed = np.zeros((prompts, k)), np.zeros((prompts, k))
    last = a + event  # the deepest token whose fate is known
    for j in range(1, k + 1):
        tried[:, j - 1] = np.bincount(codes[last >= j], minlength=prompts)
        failed[:, j - 1] = np.bincount(codes[event & (a + 1 == j)], minlength=prompts)
    return tried, failed


def _ends(sums: Floats, k: int, level: float, draws: int, seed: int) -> Floats:
    """Low and high of the hazard, then of the survival: [4, k]."""
    resampled = resampled_sums(sums, draws, seed)
    tried, failed = resampled[:, :k], resampled[:, k:]
    accept = 1 - np.divide(failed, tried, out=np.zeros_like(tried), where=tried > 0)
    curve = np.cumprod(accept, axis=1)
    ends = np.full((4, k), np.nan)
    reached = (sums[:, :k] > 0).sum(axis=0)  # prompts that have a say in each hazard
    if k and np.all(tried > 0) and np.all(reached == len(sums)):
        both = percentiles(np.hstack([accept, curve]), level, len(sums))
        return np.vstack([both[0][:k], both[1][:k], both[0][k:], both[1][k:]])
    for j in range(k):
        seen = tried[:, j] > 0
        if seen.any():
            ends[0, j], ends[1, j] = percentiles(accept[seen, j], level, reached[j])
            ends[2, j], ends[3, j] = percentiles(curve[seen, j], level, len(sums))
    return ends


def _grouped(
    rounds: pd.DataFrame, by: str | None, needed: tuple[str, ...]
) -> tuple[pd.DataFrame, str]:
    missing = [c for c in (*needed, *([by] if by else [])) if c not in rounds.columns]
    if missing:
        raise ValueError(f"These rounds lack the column {missing[0]!r}: replay a capture first.")
    if rounds.empty:
        raise ValueError("There are no rounds to count.")
    return (rounds, by) if by else (rounds.assign(_all="all"), "_all")


def _ungrouped(frame: pd.DataFrame, by: str | None) -> pd.DataFrame:
    return frame if by else frame.drop(columns="_all")


def _counts(accepted: ArrayLike) -> NDArray[np.int64]:
    a = np.asarray(accepted)
    if a.ndim != 1 or not a.size or a.dtype.kind not in "iu" or a.min() < 0:
        raise ValueError("Accepted lengths must be a non-empty list of whole numbers from 0 on.")
    return a.astype(np.int64)


def _rounds(accepted: ArrayLike, drafted: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    a, d = _counts(accepted), _counts(drafted)
    if a.shape != d.shape or np.any(a > d):
        raise ValueError("Every round needs a drafted length of at least its accepted length.")
    return a, d
