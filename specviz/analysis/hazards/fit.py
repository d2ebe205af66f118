"""The discrete-time logit behind the hazard model: its terms, its design, its fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from scipy.special import expit

from specviz.analysis.hazards.tokens import need_tokens
from specviz.analysis.resampling import Floats
from specviz.refuse import listed

#: Covariates of a hazard table, and what one unit of each is.
TERMS = {
    "depth": "drafted tokens up to and with this one",
    "entropy": "the target's entropy there, nats",
    "ln_ebf_inf": "-ln p_max of the target there, nats",
    "margin": "ln p(first) - ln p(second) of the target there, nats",
    "draft_confidence": "the drafter's own score in [0, 1]",
    "draft_entropy": "entropy of the drafter's distribution, nats",
    "content_type": "kind of text, against the first",
    "repeated": "whether the output's token there ends a 12-gram seen before",
}
#: What a target alone says of a position; known only once it is verified.
OF_TARGET = ("entropy", "ln_ebf_inf", "margin")


def checked_terms(table: pd.DataFrame, terms: Sequence[str] | None) -> list[str]:
    """The terms to fit; by default all that can be, but for draft_entropy."""
    need_table(table)
    if terms is None:
        usual = [name for name in TERMS if name != "draft_entropy"]
        return [name for name in usual if not _unfit(table, name)]
    terms = listed("terms", terms)
    for name in terms:
        if not isinstance(name, str) or name not in TERMS:
            raise ValueError(f"No term {name!r}; there are {', '.join(TERMS)}.")
        if _unfit(table, name):
            raise ValueError(f"The term {name!r} {_unfit(table, name)}: leave it out.")
    return list(dict.fromkeys(terms))


def need_table(table: object) -> pd.DataFrame:
    """`table`, if it is one of `hazard_table`; else a ValueError that says what is wanted."""
    found = need_tokens(table, ("drafter", "seq", "anchor", *TERMS))
    if not found["accepted"].isin([0, 1]).all():
        raise ValueError("accepted must be True or False in every row: a logit is of single fates.")
    for name in TERMS:
        if name != "content_type" and not is_numeric_dtype(found[name]):
            raise ValueError(f"The column {name!r} must hold numbers: make it with hazard_table.")
    return found


def _unfit(table: pd.DataFrame, name: str) -> str:
    """Why no coefficient can be given to this term; "" where one can."""
    if table[name].isna().all():
        return "has no value in this table"
    if table[name].nunique() < 2:
        return "does not vary in this table"
    if name in ("content_type", "repeated"):
        of_kind = table.groupby(name)
        fates, prompts = of_kind["accepted"].nunique(), of_kind["prompt_id"].nunique()
        if (fates < 2).any():  # with odds of 0 or infinity no logit ends
            return f"is {fates.idxmin()} only for tokens of one fate"
        if (prompts < 2).any():  # its score sums to 0 there, and so would its clustered error
            return f"is {prompts.idxmin()} only in one prompt, so its error cannot be told"
    return ""


def design(table: pd.DataFrame, terms: Sequence[str]) -> tuple[Floats, list[str]]:
    """Intercept, then the terms; a content type is one column per type but the first."""
    names, columns = ["intercept"], [np.ones(len(table))]
    for term in terms:
        if term == "content_type":
            for kind in list(dict.fromkeys(table[term]))[1:]:
                names.append(f"content_type[{kind}]")
                columns.append((table[term] == kind).to_numpy(dtype=float))
        else:
            names.append(term)
            columns.append(table[term].to_numpy(dtype=float))
    x = np.column_stack(columns)
    if not np.isfinite(x).all():
        bad = names[int(np.flatnonzero(~np.isfinite(x).all(axis=0))[0])]
        raise ValueError(f"The term {bad!r} is missing in some rows: leave it out.")
    return x, names


def fit_logit(x: Floats, y: Floats, cluster: NDArray[np.intp] | None = None) -> Any:
    """A logit; with clusters their robust covariance."""
    try:
        import statsmodels.api as sm
        from statsmodels.tools.sm_exceptions import PerfectSeparationWarning
    except ImportError:
        raise ImportError(
            "Hazard models need statsmodels: pip install 'specviz-decoding[stats]'."
        ) from None
    if y.min() == y.max():
        raise ValueError("All these tokens had one fate, so there is nothing to model.")
    how = {} if cluster is None else {"cov_type": "cluster", "cov_kwds": {"groups": cluster}}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerfectSeparationWarning)
        try:
            return sm.GLM(y, x, family=sm.families.Binomial()).fit(use_t=cluster is not None, **how)
        except PerfectSeparationWarning:
            raise ValueError(
                "These terms separate accepted from rejected tokens, so no odds can be given: "
                "use fewer terms."
            ) from None


def chance_of(x: Floats, params: Floats) -> Floats:
    """Fitted P(accept) of every row."""
    return np.asarray(expit(x @ params))
