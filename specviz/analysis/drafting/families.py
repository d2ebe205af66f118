"""Every drafter of a capture beside two controls: one table."""

from __future__ import annotations

import pandas as pd

from specviz.analysis.drafting.controls import compare_drafters, rounds_by_prompt, shuffled_control
from specviz.analysis.resampling import DRAWS, ratio_interval
from specviz.trace import Trace, need_trace


def family_table(
    trace: Trace, bigram: str | None = None, k: int = 7, *, draws: int = DRAWS, seed: int = 0
) -> pd.DataFrame:
    """Tokens per round of every drafter, against counting pairs and against the wrong text.

    Parameters
    ----------
    trace
        A greedy capture with at least two prompts of every content type.
    bigram
        The drafter that the others have to beat, such as "bigram"; none by default.
    k
        Tokens drafted in a round, at least 1.
    draws, seed
        Of the 95 % intervals, which resample prompts (F7.2); seed also exchanges the texts.

    Returns
    -------
    DataFrame
        One row per drafter and content type, "all" last: drafter, content_type, k,
        tokens_per_round (bonus counted) with low and high; over_bigram and over_other_text, the
        differences from the bigram and from `shuffled_control` on the same prompts, each with
        _low and _high; rounds and prompts.

    Raises
    ------
    ValueError
        As `compare_drafters`.

    Examples
    --------
    >>> family_table(trace, bigram="bigram")                               # doctest: +SKIP
    """
    found = []
    for drafter in need_trace(trace).drafters:
        mine = rounds_by_prompt(trace, drafter, k)
        control = shuffled_control(trace, drafter, k, seed)
        differences = {"other_text": compare_drafters(trace, drafter, control, k, draws=draws)}
        if bigram is not None:
            differences["bigram"] = compare_drafters(trace, drafter, bigram, k, draws=draws)
        for kind in differences["other_text"]["content_type"]:
            part = mine if kind == "all" else mine[mine["content_type"] == kind]
            own = ratio_interval(part["tokens"], part["rounds"], draws=draws, seed=seed)
            row: dict[str, object] = {
                "drafter": drafter,
                "content_type": kind,
                "k": k,
                "tokens_per_round": own.estimate,
                "low": own.low,
                "high": own.high,
            }
            for name, table in sorted(differences.items()):
                against = table[table["content_type"] == kind].iloc[0]
                row |= {
                    f"over_{name}": against["difference"],
                    f"over_{name}_low": against["low"],
                    f"over_{name}_high": against["high"],
                }
            row |= {"rounds": int(part["rounds"].sum()), "prompts": len(part)}
            found.append(row)
    return pd.DataFrame(found)
