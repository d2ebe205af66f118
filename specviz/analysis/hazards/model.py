"""What decides whether the next drafted token is accepted: a hazard per (anchor, depth).

A row is one drafted token whose fate a round decided: token j of a draft whose tokens before it
were accepted. The chance that it is accepted, given that, is the accept hazard; a discrete-time
logit models it on what was known of the position and of the draft (F7.4, F7.7). Rows of one
prompt are alike, so errors are clustered, folds are cut and intervals are resampled by prompt.

That a covariate predicts acceptance says nothing of why: the target's entropy stands in for how
hard a token is to *this* drafter, and a greedy target has no ceiling of entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from specviz.analysis.anchors import anchors_of, by_position
from specviz.analysis.folds import prompt_folds
from specviz.analysis.hazards.curves import auc, calibration
from specviz.analysis.hazards.fit import (
    OF_TARGET,
    TERMS,
    chance_of,
    checked_terms,
    design,
    fit_logit,
    need_table,
)
from specviz.analysis.replays.replay import replay
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, Interval, check_resampling
from specviz.policies import FixedK, Policy
from specviz.refuse import listed
from specviz.trace import Trace, need_trace


def hazard_table(
    trace: Trace, policy: Policy | int | None = None, drafter: str | None = None
) -> pd.DataFrame:
    """One row per drafted token that a round accepted or rejected, with its covariates.

    Parameters
    ----------
    trace
        A greedy capture.
    policy
        Whose rounds: only anchors that it visits are in the table. A number of tokens is
        `FixedK`; None drafts the drafter's K.
    drafter
        May be left out when the trace has only one.

    Returns
    -------
    DataFrame
        seq, prompt_id, content_type, drafter, anchor, depth (1, 2, ...), t (= anchor + depth,
        the position the token was drafted for), accepted, and the covariates of `TERMS`. Those
        of the target are of its distribution at t: what it was, not what a policy could have
        known. Those of the draft are of the drafter's own token at that depth. Tokens after a
        rejection, and those that the output's end cut off, have no row.

    Raises
    ------
    ValueError
        As `replay`, when the policy drafts trees, and when no round decided about a token.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> table = hazard_table(bundled_trace("smollm2-trees"), 7, "lm")
    >>> len(table), int(table["depth"].max())
    (2163, 7)
    """
    need_trace(trace)
    if isinstance(policy, Policy):
        chosen, anchors = policy, anchors_of(trace, trace.drafters[0])  # one output for all
    else:
        anchors = anchors_of(trace, drafter)
        chosen = FixedK(anchors.k if policy is None else policy)
    rounds = replay(trace, chosen, drafter, draws=1).rounds
    if (rounds["builder"] != "").any():
        raise ValueError("A hazard by depth is of chains: give a policy that drafts no trees.")
    known = (rounds["accepted"] + (rounds["stop"] == "reject")).to_numpy()
    if not known.sum():
        raise ValueError("No drafted token was accepted or rejected: let the policy draft.")
    row = np.repeat(np.arange(len(rounds)), known)
    depth = np.arange(len(row)) - np.repeat(np.cumsum(known) - known, known) + 1
    table = rounds[["seq", "prompt_id", "content_type", "drafter", "anchor"]].iloc[row]
    table = table.reset_index(drop=True).assign(depth=depth)
    table["t"] = table["anchor"] + depth
    table["accepted"] = depth <= rounds["accepted"].to_numpy()[row]
    first = pd.Series(np.cumsum(anchors.n) - anchors.n, index=anchors.seq)
    place = first.loc[table["seq"]].to_numpy() + table["t"].to_numpy()
    table["entropy"] = by_position(trace, anchors, "entropy").astype(float)[place]
    table["ln_ebf_inf"] = -np.log(by_position(trace, anchors, "p_max").astype(float)[place])
    table["margin"] = by_position(trace, anchors, "margin").astype(float)[place]
    table["repeated"] = by_position(trace, anchors, "repeated").astype(bool)[place]
    for name in ("confidence", "entropy"):
        table["draft_" + name] = np.nan
    for name in dict.fromkeys(table["drafter"]):
        part, own = table[table["drafter"] == name], anchors_of(trace, name)
        start = pd.Series(own.start[:-1], index=own.seq)
        at = own.row[start.loc[part["seq"]].to_numpy() + part["anchor"].to_numpy()]
        for column in ("confidence", "entropy"):
            values = trace.matrix(column, name)[at, part["depth"].to_numpy() - 1]
            table.loc[part.index, "draft_" + column] = values.astype(float)
    return table


@dataclass(frozen=True, eq=False)
class HazardModel:
    """A discrete-time logit of the accept hazard, and how it does on other prompts.

    Attributes
    ----------
    coefficients
        term, coefficient (log-odds of being accepted per unit, the others held), low, high
        (clustered by prompt, t with prompts - 1 degrees of freedom), odds_ratio, per_sd (the
        coefficient times the term's standard deviation), unit.
    calibration
        Out of prompt: predicted (mean), accepted (share of these tokens), low, high (resampled
        prompts), n_tokens, n_prompts, in bins of like size.
    auc
        Out of prompt: chance that an accepted token was predicted above a rejected one. Pooled
        over folds, it is biased below 0.5 for weak models: see `auc`.
    auc_within
        The same with its own prompts' predictions; optimistic.
    reference
        The content type that others are compared with; "" where there is but one.
    drafters, folds, seed
        Whose drafts; cross-validation.
    n_tokens, n_rounds, n_prompts
        Tokens decided, rounds that decided them, prompts.
    """

    coefficients: pd.DataFrame
    calibration: pd.DataFrame
    auc: Interval
    auc_within: float
    reference: str
    drafters: tuple[str, ...]
    folds: int
    seed: int
    n_tokens: int
    n_rounds: int
    n_prompts: int

    def __repr__(self) -> str:
        return (
            f"HazardModel({', '.join(self.drafters)}: {len(self.coefficients) - 1} terms, out-of-"
            f"prompt AUC {self.auc}, {self.n_tokens:,} tokens of {self.n_rounds:,} rounds)"
        )

    def _repr_html_(self) -> str:
        from specviz.markup import table_html

        return table_html(
            self.coefficients,
            caption=f"{self!r}. Log-odds that a drafted token is accepted, given that those "
            "before it were; intervals cluster by prompt. A model, not a theorem.",
        )


def hazard_model(
    table: pd.DataFrame,
    terms: Sequence[str] | None = None,
    *,
    folds: int = 6,
    bins: int = 8,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> HazardModel:
    """Fit the accept hazard, and judge it on prompts that it was not fitted on.

    Parameters
    ----------
    table
        From `hazard_table`.
    terms
        Names of `TERMS`; None takes all but draft_entropy, less those that do not vary, and
        kinds (of text, or repeated) all of whose tokens had one fate or are of one prompt.
    folds
        Of the cross-validation: whole prompts, every kind of text spread over them.
    bins
        Of the calibration.
    level, draws, seed
        Of all intervals; the seed also deals out the prompts.

    Returns
    -------
    HazardModel

    Raises
    ------
    ImportError
        Without statsmodels; the sentence says how to install it.
    ValueError
        When no term is named, one is unknown or no coefficient can be given to it, the table
        mixes drafters, all tokens have one fate, terms separate accepted from rejected tokens,
        or there are fewer prompts than folds.

    Notes
    -----
    Binomial GLM with logit link: the likelihood of a discrete-time hazard is that of its rows.
    Standard errors are cluster-robust by prompt. Source: F7.4 and F7.7.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> table = hazard_table(bundled_trace("smollm2-trees"), 7, "lm")
    >>> model = hazard_model(table, ["depth", "entropy"], draws=200)
    >>> 0.5 < model.auc.estimate < 1
    True
    """
    check_resampling(level, draws, seed)
    chosen = checked_terms(table, terms)
    x, names = design(table, chosen)
    y = table["accepted"].to_numpy(dtype=float)
    prompt, prompts = pd.factorize(table["prompt_id"])
    types = table.groupby("prompt_id", sort=False)["content_type"].first().loc[prompts]
    fold = prompt_folds(types.to_numpy(), folds, seed)[prompt]
    fit = fit_logit(x, y, prompt)
    predicted = _out_of_fold(x, y, fold)
    ends = np.asarray(fit.conf_int(alpha=1 - level))
    coefficients = pd.DataFrame(
        {
            "term": names,
            "coefficient": fit.params,
            "low": ends[:, 0],
            "high": ends[:, 1],
            "odds_ratio": np.exp(fit.params),
            "per_sd": np.where(np.arange(len(names)) > 0, fit.params * x.std(axis=0), np.nan),
            "unit": [TERMS.get(name.split("[")[0], "log-odds where all are 0") for name in names],
        }
    )
    return HazardModel(
        coefficients=coefficients,
        calibration=calibration(
            predicted, y, prompt, bins=bins, level=level, draws=min(draws, 1000), seed=seed
        ),
        auc=auc(predicted, y, prompt, level=level, draws=draws, seed=seed),
        auc_within=auc(chance_of(x, fit.params), y, prompt, draws=1).estimate,
        reference=table["content_type"].iloc[0] if "content_type" in chosen else "",
        drafters=tuple(dict.fromkeys(table["drafter"])),
        folds=folds,
        seed=seed,
        n_tokens=len(table),
        n_rounds=len(table[["seq", "anchor"]].drop_duplicates()),
        n_prompts=len(prompts),
    )


def _out_of_fold(x: Floats, y: Floats, fold: NDArray[np.int64]) -> Floats:
    """P(accept) of every row, fitted on the rows of other folds."""
    predicted = np.empty(len(y))
    for each in np.unique(fold):
        held = fold == each
        varies = np.ptp(x[~held], axis=0) > 0
        varies[0] = True  # the intercept; what does not vary there has no coefficient
        fit = fit_logit(x[~held][:, varies], y[~held])
        predicted[held] = chance_of(x[held][:, varies], fit.params)
    return predicted


def residual_type_effect(
    table: pd.DataFrame,
    conditions: Sequence[Sequence[str]] = (
        (),
        ("depth",),
        ("depth", "entropy"),
        ("depth", *OF_TARGET),
        ("depth", *OF_TARGET, "draft_confidence"),
    ),
    *,
    level: float = LEVEL,
) -> pd.DataFrame:
    """What is left of the content type once other covariates are held (E1, F7.7).

    "Entropy, or the drafter's training mix?": if entropy explained the gap between two kinds of
    text, nothing of the type would be left beside it. If something is left, the drafter is
    better at one kind than the target's distribution says.

    Parameters
    ----------
    table
        From `hazard_table`, with two content types or more.
    conditions
        Terms held, one set per row; each set is fitted with the content type beside it.
    level
        Of the intervals, clustered by prompt.

    Returns
    -------
    DataFrame
        given (the terms held), contrast (a type against the first of the table), effect
        (log-odds of being accepted) with low and high, difference (of P(accept): the mean over
        all rows of the table, once as that type and once as the first) with difference_low and
        difference_high (delta method), n_tokens, n_prompts.

    Raises
    ------
    ImportError, ValueError
        As `hazard_model`, and when there is one content type only.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> table = hazard_table(bundled_trace("smollm2-trees"), 7, "lm")
    >>> left = residual_type_effect(table, [(), ("depth", "entropy")])
    >>> left["contrast"].unique().tolist(), left["given"].tolist()
    (['prose against code'], ['nothing', 'depth, entropy'])
    """
    check_resampling(level, 1, 0)
    sets = [
        listed("Every set of conditions", each, empty=True)
        for each in listed("conditions", conditions)
    ]
    kinds = list(dict.fromkeys(need_table(table)["content_type"]))
    if len(kinds) < 2:
        raise ValueError("One content type has nothing to be compared with: take two or more.")
    y = table["accepted"].to_numpy(dtype=float)
    prompt, prompts = pd.factorize(table["prompt_id"])
    quantile = stats.t.ppf((1 + level) / 2, len(prompts) - 1)
    rows = []
    for held in sets:
        x, names = design(table, checked_terms(table, [*held, "content_type"]))
        fit = fit_logit(x, y, prompt)
        ends = np.asarray(fit.conf_int(alpha=1 - level))
        types = [i for i, name in enumerate(names) if name.startswith("content_type[")]
        for kind, place in zip(kinds[1:], types, strict=True):
            difference, error = _mean_difference(fit, x, types, place)
            spread = quantile * error
            rows.append(
                {
                    "given": ", ".join(held) or "nothing",
                    "contrast": f"{kind} against {kinds[0]}",
                    "effect": fit.params[place],
                    "low": ends[place, 0],
                    "high": ends[place, 1],
                    "difference": difference,
                    "difference_low": difference - spread,
                    "difference_high": difference + spread,
                    "n_tokens": len(table),
                    "n_prompts": len(prompts),
                }
            )
    return pd.DataFrame(rows)


def _mean_difference(fit: Any, x: Floats, types: Sequence[int], place: int) -> tuple[float, float]:
    """P(accept) as the type of one column less that as the first type, and its standard error.

    Means over all rows, whatever their type; the error by the delta method.
    """
    as_first = x.copy()
    as_first[:, types] = 0.0
    as_type = as_first.copy()
    as_type[:, place] = 1.0
    p, p0 = chance_of(as_type, fit.params), chance_of(as_first, fit.params)
    slope = (as_type * (p * (1 - p))[:, None] - as_first * (p0 * (1 - p0))[:, None]).mean(axis=0)
    covariance = np.asarray(fit.cov_params())
    return float((p - p0).mean()), float(np.sqrt(slope @ covariance @ slope))
