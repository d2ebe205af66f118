"""P(accept) against one covariate, and how well predictions of it do; prompts are resampled.

Without a model of the shape: shares in bins, the best falling (or rising) curve, rank
correlations, and the chance that a prediction orders an accepted and a rejected token rightly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import spearmanr

from specviz.analysis.hazards.tokens import need_tokens
from specviz.analysis.resampling import (
    DRAWS,
    LEVEL,
    Floats,
    Interval,
    check_resampling,
    percentiles,
    resampled_sums,
)
from specviz.refuse import one_name, whole


def hazard_curve(
    table: pd.DataFrame,
    x: str = "entropy",
    *,
    by: str | None = None,
    shape: str = "binned",
    bins: int | None = None,
    level: float = LEVEL,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """P(a drafted token is accepted, given those before it) against one covariate.

    Parameters
    ----------
    table
        From `hazard_table`, or any table with prompt_id, accepted and the columns named.
    x
        A number in every row, such as "entropy" (nats).
    by
        A column to split by, such as "content_type".
    shape
        "binned": the share accepted in bins of like size. "isotonic": the closest curve that
        only falls, or only rises, whichever is closer, through up to `bins` steps.
    bins
        8 when binned, 100 when isotonic; at most one per row, and ties in x can leave fewer.
    level, draws, seed
        Of the percentile intervals over resampled prompts. They are pointwise, and a resample
        without a token in a bin is left out of it.

    Returns
    -------
    DataFrame
        The column `by` (if any), x_low, x_high, x_mean, accepted with low and high (NaN with
        one prompt), direction ("falling" or "rising"; "" when binned), n_tokens, n_prompts.

    Raises
    ------
    ValueError
        When a column is missing, x is not a number everywhere, accepted is no share from 0 to 1,
        the table mixes drafters (unless by="drafter"), or shape is another.

    Examples
    --------
    >>> table = pd.DataFrame({"prompt_id": list("aabb"), "entropy": [0.1, 2.0, 0.2, 3.0],
    ...                       "accepted": [True, False, True, True]})
    >>> hazard_curve(table, bins=2, draws=20)[["x_high", "accepted", "n_tokens"]]
       x_high  accepted  n_tokens
    0     0.2       1.0         2
    1     3.0       0.5         2
    """
    check_resampling(level, draws, seed)
    if shape not in ("binned", "isotonic"):
        raise ValueError(f'shape must be "binned" or "isotonic", not {shape!r}.')
    bins = whole("bins", (8 if shape == "binned" else 100) if bins is None else bins, least=1)
    _need(table, x, by)
    parts = [("all", table)] if by is None else list(table.groupby(by, sort=False))
    frames = []
    for value, part in parts:
        curve = _curve(part, x, shape, bins, level, draws, seed)
        frames.append(curve if by is None else curve.assign(**{by: value})[[by, *curve.columns]])
    return pd.concat(frames, ignore_index=True)


def _curve(
    part: pd.DataFrame, x: str, shape: str, bins: int, level: float, draws: int, seed: int
) -> pd.DataFrame:
    values, y = part[x].to_numpy(dtype=float), part["accepted"].to_numpy(dtype=float)
    prompt, prompts = pd.factorize(part["prompt_id"])
    bins = min(bins, len(values))  # no bin without a token
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    place = np.searchsorted(edges[1:-1], values, side="right")
    cells = len(edges) - 1 if len(edges) > 1 else 1
    count, kept, total = (
        np.bincount(place, weights, cells).astype(float) for weights in (None, y, values)
    )
    full = count > 0
    sums = _per_prompt(prompt, len(prompts), place, cells, y)
    direction = "" if shape == "binned" else _direction(kept[full] / count[full], count[full])

    def line(tokens: Floats, accepted: Floats) -> Floats:
        """Accepted share per cell; NaN in cells without tokens."""
        seen = tokens > 0
        found = np.full(cells, np.nan)
        share = accepted[seen] / tokens[seen]
        found[seen] = _monotone(share, tokens[seen], direction) if direction else share
        return found

    low = high = np.full(cells, np.nan)
    if len(prompts) > 1:
        drawn = resampled_sums(sums, draws, seed)
        lines = np.array([line(each[:cells], each[cells:]) for each in drawn])
        low, high = (np.full(cells, np.nan) for _ in range(2))
        for cell in np.flatnonzero(full):
            low[cell], high[cell] = percentiles(
                lines[~np.isnan(lines[:, cell]), cell], level, len(prompts)
            )
    bottom, top = np.full(cells, np.inf), np.full(cells, -np.inf)
    np.minimum.at(bottom, place, values)
    np.maximum.at(top, place, values)
    frame = pd.DataFrame(
        {
            "x_low": bottom,
            "x_high": top,
            "x_mean": total / np.where(full, count, 1.0),
            "accepted": line(count, kept),
            "low": low,
            "high": high,
            "direction": direction,
            "n_tokens": count.astype(int),
            "n_prompts": (sums[:, :cells] > 0).sum(axis=0),
        }
    )
    return frame[full].reset_index(drop=True)


def rank_correlation(
    table: pd.DataFrame,
    x: str = "entropy",
    by: str = "content_type",
    *,
    level: float = LEVEL,
    draws: int = 500,
    seed: int = 0,
) -> pd.DataFrame:
    """Spearman's rank correlation of a covariate with being accepted.

    The form in which others report "entropy and acceptance"; it is diluted by ties (accepted
    is yes or no), so that a perfect predictor stays well below 1.

    Returns
    -------
    DataFrame
        The column `by`, rho, low, high (resampled prompts; NaN with one), n_tokens, n_prompts;
        a last row "all" takes every token. NaN where nothing varies.

    Raises
    ------
    ValueError
        As `hazard_curve`.

    Examples
    --------
    >>> table = pd.DataFrame({"prompt_id": list("aabb"), "content_type": "code",
    ...                       "entropy": [0.1, 2.0, 0.2, 3.0],
    ...                       "accepted": [True, False, True, True]})
    >>> rank_correlation(table, draws=20)["rho"].round(2).tolist()
    [-0.26, -0.26]
    """
    check_resampling(level, draws, seed)
    _need(table, x, one_name("by", by))
    rows = []
    for value, part in [*table.groupby(by, sort=False), ("all", table)]:
        values, y = part[x].to_numpy(dtype=float), part["accepted"].to_numpy(dtype=float)
        prompt, prompts = pd.factorize(part["prompt_id"])
        own = [np.flatnonzero(prompt == each) for each in range(len(prompts))]
        low = high = np.nan
        if len(prompts) > 1:
            rng = np.random.default_rng(seed)
            picks = rng.integers(0, len(prompts), (draws, len(prompts)))
            drawn = [np.concatenate([own[each] for each in pick]) for pick in picks]
            found = np.array([_spearman(values[tokens], y[tokens]) for tokens in drawn])
            found = found[~np.isnan(found)]
            if len(found):
                low, high = map(float, percentiles(found, level, len(prompts)))
        rows.append((value, _spearman(values, y), low, high, len(part), len(prompts)))
    return pd.DataFrame(rows, columns=[by, "rho", "low", "high", "n_tokens", "n_prompts"])


def auc(
    predicted: ArrayLike,
    accepted: ArrayLike,
    prompt: ArrayLike,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Chance that an accepted token was predicted above a rejected one; ties count half.

    0.5 is no better than chance. The interval resamples prompts; both tokens of a pair may be
    of any prompts. Predictions pooled over folds that leave prompts out bias weak models below
    0.5: where many tokens were accepted, the others' mean is lower, and so is the prediction.

    Raises
    ------
    ValueError
        When the three differ in length, or all tokens had one fate.

    Examples
    --------
    >>> auc([0.9, 0.6, 0.4, 0.4], [1, 1, 0, 1], ["a", "a", "b", "b"], draws=50).estimate
    0.8333333333333334
    """
    check_resampling(level, draws, seed)
    score, y = np.asarray(predicted, dtype=float), np.asarray(accepted, dtype=bool)
    code, prompts = pd.factorize(np.asarray(prompt))
    if not (score.ndim == 1 and score.shape == y.shape == code.shape):
        raise ValueError("Need one prediction, one fate and one prompt per token.")
    if not y.any() or y.all():
        raise ValueError("All these tokens had one fate: there is no pair to order.")
    size = len(prompts)
    # wins[g, h]: pairs of an accepted token of prompt g above a rejected one of prompt h.
    wins = np.zeros((size, size))
    for h in range(size):
        below = np.sort(score[~y & (code == h)])
        beaten = np.searchsorted(below, score[y], "left") + np.searchsorted(
            below, score[y], "right"
        )
        wins[:, h] = np.bincount(code[y], beaten / 2, size)
    good, bad = (np.bincount(code[each], minlength=size).astype(float) for each in (y, ~y))
    estimate = float(wins.sum() / (good.sum() * bad.sum()))
    low = high = np.nan
    if size > 1:
        counts = resampled_sums(np.eye(size), draws, seed)  # how often each prompt was drawn
        pairs = (counts @ good) * (counts @ bad)
        some = pairs > 0
        drawn = ((counts @ wins) * counts).sum(axis=1)[some] / pairs[some]
        low, high = map(float, percentiles(drawn, level, size))
    return Interval(estimate, low, high, level, size, draws, seed)


def calibration(
    predicted: ArrayLike,
    accepted: ArrayLike,
    prompt: ArrayLike,
    *,
    bins: int = 8,
    level: float = LEVEL,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Predicted chances against the share that came true, in bins of like size.

    Returns
    -------
    DataFrame
        predicted (mean in the bin), accepted (share of its tokens) with low and high, n_tokens,
        n_prompts.

    Examples
    --------
    >>> calibration([0.2, 0.8, 0.3, 0.9], [0, 1, 0, 1], list("aabb"), bins=2, draws=20)[
    ...     ["predicted", "accepted"]].round(2)
       predicted  accepted
    0       0.25       0.0
    1       0.85       1.0
    """
    frame = pd.DataFrame(
        {
            "predicted": np.asarray(predicted, dtype=float),
            "accepted": np.asarray(accepted, dtype=float),
            "prompt_id": np.asarray(prompt),
        }
    )
    curve = hazard_curve(frame, "predicted", bins=bins, level=level, draws=draws, seed=seed)
    columns = ["x_mean", "accepted", "low", "high", "n_tokens", "n_prompts"]
    return curve[columns].rename(columns={"x_mean": "predicted"})


def _per_prompt(
    prompt: NDArray[np.intp], prompts: int, place: NDArray[np.intp], cells: int, y: Floats
) -> Floats:
    """Tokens and accepted tokens of every prompt and cell: [prompts, 2 cells]."""
    flat = prompt * cells + place
    counts = [np.bincount(flat, weights, prompts * cells) for weights in (None, y)]
    return np.hstack([each.reshape(prompts, cells) for each in counts]).astype(float)


def _direction(share: Floats, weight: Floats) -> str:
    """The direction whose best curve is closer."""
    misses = {
        way: (weight * (share - _monotone(share, weight, way)) ** 2).sum()
        for way in ("falling", "rising")
    }
    return min(misses, key=lambda way: misses[way])


def _monotone(share: Floats, weight: Floats, direction: str) -> Floats:
    found = isotonic_regression(share, weights=weight, increasing=direction == "rising")
    return np.asarray(found.x)


def _spearman(x: Floats, y: Floats) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(spearmanr(x, y).statistic)


def _need(table: pd.DataFrame, x: str, by: str | None) -> None:
    names = [one_name("x", x)] if by is None else [one_name("x", x), one_name("by", by)]
    need_tokens(table, names, by)
    kind: Any = table[x].dtype
    if kind.kind not in "iufb" or not np.isfinite(table[x].to_numpy(dtype=float)).all():
        raise ValueError(f"{x!r} must be a number in every row.")
