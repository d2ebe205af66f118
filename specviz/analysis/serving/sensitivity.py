"""What a draft must give to pay, and how the best k moves when a cost was misjudged."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from specviz.analysis.replays.optimal_k import optimal_k
from specviz.analysis.resampling import LEVEL
from specviz.analysis.theory.tau import invert_tau
from specviz.cost import CostModel, need_cost
from specviz.policies.base import number
from specviz.refuse import listed, whole
from specviz.trace import Trace

#: Parts of a cost model that are scaled one at a time.
PARTS = ("draft", "verify slope", "overhead")


def break_even_tokens(
    cost: CostModel, drafter: str, k: int | Sequence[int] = (1, 2, 3, 4, 5, 6, 7)
) -> pd.DataFrame:
    """Tokens per round at which a draft of k costs as much as plain decoding (F4.2, F2.2).

    Parameters
    ----------
    cost
        Seconds of drafting and verifying.
    drafter
        One that `cost` prices.
    k
        Tokens drafted in every round; one number, or several.

    Returns
    -------
    DataFrame
        k; tokens_per_round (bonus counted), the seconds of a round over those of a plain step:
        above it drafting pays; alpha_iid, the chance that each token matches which would give
        that many if tokens were independent, which they are not (F2.3); possible, whether a
        round of k can emit that many at all. alpha_iid is 0 where any draft pays, NaN where none.

    Raises
    ------
    ValueError
        When k is below 1 or `cost` does not price it.

    Examples
    --------
    >>> from specviz.presets import preset
    >>> break_even_tokens(preset("gb10"), "any", 7).round(3).to_dict("records")
    [{'k': 7, 'tokens_per_round': 1.797, 'alpha_iid': 0.445, 'possible': True}]
    """
    need_cost(cost)
    rows = []
    for each in listed("k", k) if isinstance(k, Iterable) else [k]:
        length = whole("k", each, least=1)
        need = float(cost.round_seconds(drafter, length)) / cost.plain_seconds
        possible = need <= length + 1
        alpha = invert_tau(max(need, 1.0), length) if possible else np.nan
        rows.append((length, need, alpha, possible))
    return pd.DataFrame(rows, columns=["k", "tokens_per_round", "alpha_iid", "possible"])


def cost_sensitivity(
    trace: Trace,
    cost: CostModel,
    drafter: str | None = None,
    by: str = "content_type",
    factors: Sequence[float] = (0.5, 0.8, 1.25, 2.0),
    *,
    level: float = LEVEL,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """How the best k and its speed-up move when one part of the cost is scaled, by replay.

    Parameters
    ----------
    trace
        A greedy capture.
    cost
        Seconds of drafting and verifying.
    drafter
        None takes every drafter of the trace.
    by
        "content_type" or "prompt_id".
    factors
        What each of `PARTS` is multiplied by, the others left as they are: all drafting; what a
        verification takes beyond one row; the overhead of a round, that of a plain step included.
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts.

    Returns
    -------
    DataFrame
        Per part and factor (first "as given" with 1), group and drafter: k by the rule of
        `optimal_k` (0: do not draft), speedup with low and high; kept_k, the best k of the cost
        as given, and kept_speedup, what it brings under the scaled cost; cost, n_rounds (at k),
        n_prompts.

    Raises
    ------
    ValueError
        As `optimal_k`, and when a factor is negative.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> from specviz.presets import t4_like
    >>> found = cost_sensitivity(bundled_trace("smollm2-trees"), t4_like("rows"), "lm", draws=50)
    >>> prose = found[(found["content_type"] == "prose") & (found["part"] == "verify slope")]
    >>> prose["k"].is_monotonic_decreasing           # dearer rows, shorter drafts
    True
    """
    need_cost(cost)
    factors = [number("factor", factor, 0) for factor in listed("factors", factors)]
    asked = [("as given", 1.0), *((part, factor) for part in PARTS for factor in factors)]
    frames, kept = [], pd.Series(dtype=int)
    for part, factor in asked:
        model = scaled(cost, part, factor) if part in PARTS else cost
        found = optimal_k(trace, model, by, drafter, level=level, draws=draws, seed=seed)
        table = found.table.set_index([by, "drafter"])
        if part == "as given":
            kept = table["k"]
        curve = found.curve.set_index([by, "drafter", "k"])["speedup"]
        at = pd.MultiIndex.from_arrays([*zip(*table.index, strict=True), kept.loc[table.index]])
        table = table.assign(
            part=part, factor=factor, kept_k=kept, kept_speedup=curve.loc[at].to_numpy()
        )
        frames.append(table.reset_index())
    columns = ["part", "factor", by, "drafter", "k", "speedup", "low", "high"]
    columns += ["kept_k", "kept_speedup", "cost", "n_rounds", "n_prompts"]
    return pd.concat(frames, ignore_index=True)[columns]


def scaled(cost: CostModel, part: str, factor: float) -> CostModel:
    """`cost` with one of `PARTS` multiplied by `factor`; its name says so.

    Examples
    --------
    >>> cost = CostModel("laptop", "given", verify=(0.05, 0.06), draft={"ngram": (0.0, 0.001)})
    >>> round(scaled(cost, "verify slope", 2.0).verify_seconds(2), 6)
    0.07
    """
    factor = number("factor", factor, 0)
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}, not {part!r}.")
    name = f"{cost.name}, {part} x{factor:g}"
    if part == "overhead":
        return dataclasses.replace(cost, name=name, overhead=factor * cost.overhead)
    if part == "draft":
        draft = {who: tuple(factor * s for s in curve) for who, curve in cost.draft.items()}
        return dataclasses.replace(cost, name=name, draft=draft)
    first = cost.verify[0]
    # A falling curve (the report's code figures) could be scaled below nothing.
    verify = tuple(max(first + factor * (s - first), 0.0) for s in cost.verify)
    return dataclasses.replace(cost, name=name, verify=verify)
