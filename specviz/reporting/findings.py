"""What a trace says, in plain sentences with their intervals and their n.

The report opens with these; they are ordinary strings, not HTML.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from specviz.analysis.replays.replay import Replay
from specviz.analysis.resampling import Interval, ratio_difference, ratio_interval
from specviz.markup import counted, number
from specviz.trace.trace import Trace


def positions_by_type(trace: Trace) -> pd.DataFrame:
    """`trace.positions` with each sequence's `content_type` and `prompt_id`."""
    names = trace.sequences[["seq", "content_type", "prompt_id"]]
    return trace.positions.merge(names, on="seq", how="left")


def contrast(entropy: pd.DataFrame) -> tuple[str, str] | None:
    """The two content types to set against each other: prose and code, else the extremes.

    `entropy` is `entropy_by(trace)`. None with a single type.
    """
    types = list(entropy["content_type"])
    if {"prose", "code"} <= set(types):
        return "prose", "code"
    if len(types) < 2:
        return None
    ordered = entropy.sort_values("entropy", ascending=False)["content_type"]
    return str(ordered.iloc[0]), str(ordered.iloc[-1])


def entropy_sentences(trace: Trace, entropy: pd.DataFrame) -> list[str]:
    """The target's entropy, and its gap between two content types, with and without repeats."""
    pair = contrast(entropy)
    rows = {str(row["content_type"]): row for row in _records(entropy)}
    if pair is None:
        name, row = next(iter(rows.items()))
        return [
            f"On {name} the target's next-token entropy averages {number(row['entropy'])} nats "
            f"{_between(row['entropy_low'], row['entropy_high'])}, a geometric-mean effective "
            f"branching factor (EBF) of {number(row['ebf_geometric'])} "
            f"({counted(row['n_positions'], 'position')} of {counted(row['n_prompts'], 'prompt')})."
        ]
    wide, narrow = pair
    a, b = rows[wide], rows[narrow]
    positions = _of(positions_by_type(trace), pair)
    gap = _gap(positions, "entropy", wide, narrow)
    fresh = positions[~positions["repeated"].astype(bool)]
    repeats, without = len(positions) - len(fresh), ""
    if repeats and {wide, narrow} <= set(fresh["content_type"]):
        less = _gap(fresh, "entropy", wide, narrow)
        without = (
            f"; without {counted(repeats, 'position')} of repeated text "
            f"{number(less.estimate)} {_judged(less)}"
        )
    return [
        f"{wide.capitalize()} branches {a['ebf_geometric'] / b['ebf_geometric']:.2g} times as "
        f"widely as {narrow}: the geometric-mean effective branching factor (EBF) is "
        f"{number(a['ebf_geometric'])} against {number(b['ebf_geometric'])}.",
        f"The target's next-token entropy averages {number(a['entropy'])} nats on {wide} and "
        f"{number(b['entropy'])} on {narrow}, a gap of {number(gap.estimate)} {_judged(gap)}"
        f"{without} ({counted(a['n_prompts'], 'prompt')} of {wide}, {b['n_prompts']} of {narrow}).",
    ]


def length_sentence(
    trace: Trace, rounds: Replay, k: int, pair: tuple[str, str] | None, shown: Collection[str]
) -> str:
    """Tokens per round at one k for the `shown` content types, and the gap between two."""
    table = _of(rounds.by("content_type"), shown).sort_values("tokens_per_round", ascending=False)
    said = [
        f"{number(row['tokens_per_round'])} on {row['content_type']} "
        f"{_between(row['low'], row['high'])}"
        for row in _records(table)
    ]
    n = ", ".join(counted(table[f"n_{noun}s"].sum(), noun) for noun in ("round", "prompt"))
    sentence = (
        f"With {', '.join(rounds.drafters)} at k = {k} a round emits, bonus counted, "
        f"{_listed(said)} tokens ({n})"
    )
    if pair is not None and set(pair) <= set(table["content_type"]):
        wide, narrow = pair
        frame = _of(rounds.rounds, pair).merge(
            _next_repeated(trace), on=["seq", "anchor"], how="left"
        )
        gap = _gap(frame, "emitted", narrow, wide)
        sentence += f". That is {_more(gap)} on {narrow} than on {wide}"
        fresh = frame[~frame["repeated"].eq(True)]
        repeats = len(frame) - len(fresh)
        if repeats and set(pair) <= set(fresh["content_type"]):
            less = _more(_gap(fresh, "emitted", narrow, wide))
            sentence += f"; without {counted(repeats, 'round')} in repeated text {less}"
        elif not repeats:
            sentence += "; no round starts in repeated text"
    return sentence + "."


def best_k_sentence(best: pd.DataFrame, drafter: str, whose: str) -> str:
    """The best k of every content type under one cost model, in one sentence.

    `best` holds rows of `OptimalK.table` of one drafter and one cost; `whose` says whose cost
    it is.
    """
    draft = [
        f"k = {row['k']} on {row['content_type']} "
        f"({number(row['speedup'])}x {_between(row['low'], row['high'])})"
        for row in _records(best[best["k"] > 0])
    ]
    plain = [str(name) for name in best.loc[best["k"] == 0, "content_type"]]
    advice = [f"draft {_listed(draft)}"] if draft else []
    if plain:
        advice.append(f"do not draft on {_listed(plain)}")
    return f"With {drafter}, at the cost of {whose}: {'; '.join(advice)}."


def best_k_cell(row: Mapping[str, Any]) -> str:
    """The same as the cell of a table."""
    return f"{row['k']} ({number(row['speedup'])}x)" if row["k"] else "do not draft"


def shown_types(trace: Trace, pair: tuple[str, str] | None, most: int) -> list[str]:
    """The content types with room on the page, in the order of the trace.

    At most `most`: the two of the headline, then those with the most prompts.
    """
    sizes = trace.sequences.groupby("content_type", sort=False)["prompt_id"].nunique()
    ranked = sizes.sort_values(ascending=False, kind="stable").index
    chosen = set(list(dict.fromkeys([*(pair or ()), *ranked]))[:most])
    return [str(name) for name in sizes.index if name in chosen]


def live_rounds(trace: Trace) -> pd.DataFrame:
    """Tokens per round (bonus counted) and draft yield of the rounds as they were run.

    One row per content type, drafter and policy, with `n_rounds` and `n_prompts`.
    """
    names = trace.sequences[["seq", "prompt_id", "content_type"]]
    keys = ["content_type", "drafter", "policy"]
    rows = []
    for values, part in trace.rounds.merge(names, on="seq").groupby(keys, sort=False):
        sums = part.groupby("prompt_id")["emitted"].agg(["sum", "size"])
        found = ratio_interval(sums["sum"], sums["size"])
        drafted = int(part["drafted"].sum())
        rows.append(
            {
                **dict(zip(keys, values, strict=True)),
                "tokens_per_round": found.estimate,
                "low": found.low,
                "high": found.high,
                "draft_yield": part["accepted"].sum() / drafted if drafted else np.nan,
                "n_rounds": len(part),
                "n_prompts": found.n_prompts,
            }
        )
    return pd.DataFrame(rows)


def live_sentence(row: Mapping[str, Any]) -> str:
    """One row of `live_rounds` in words."""
    return (
        f"Run live, {row['drafter']} ({row['policy']}) emitted {number(row['tokens_per_round'])} "
        f"tokens per round on {row['content_type']} {_between(row['low'], row['high'])}, bonus "
        f"counted ({counted(row['n_rounds'], 'round')}, {counted(row['n_prompts'], 'prompt')})."
    )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def _of(frame: pd.DataFrame, types: Collection[str]) -> pd.DataFrame:
    return frame[frame["content_type"].isin(list(types))]


def _next_repeated(trace: Trace) -> pd.DataFrame:
    """Per anchor whether the token after it repeats earlier text."""
    after = trace.positions[["seq", "t", "repeated"]]
    return after.assign(anchor=after["t"] - 1)[["seq", "anchor", "repeated"]]


def _gap(frame: pd.DataFrame, column: str, a: str, b: str) -> Interval:
    """Mean of `column` in group a less its mean in group b, resampling whole prompts."""
    sums = [
        frame[frame["content_type"] == name].groupby("prompt_id")[column].agg(["sum", "size"])
        for name in (a, b)
    ]
    (one, other) = (s.to_numpy(dtype=float) for s in sums)
    return ratio_difference(one[:, 0], one[:, 1], other[:, 0], other[:, 1], paired=False)


def _more(gap: Interval) -> str:
    more = "more" if gap.estimate >= 0 else "fewer"
    return f"{number(abs(gap.estimate))} {more} {_judged(gap)}"


def _judged(gap: Interval) -> str:
    """The interval, and what it says of a difference."""
    said = _between(*sorted((abs(gap.low), abs(gap.high))) if _clear(gap) else (gap.low, gap.high))
    return said if _clear(gap) or np.isnan(gap.low) else f"{said} (no clear difference)"


def _clear(gap: Interval) -> bool:
    return bool(gap.low > 0 or gap.high < 0)


def _between(low: float, high: float) -> str:
    """An interval in brackets; the page says once that it is a 95 % one over prompts."""
    if np.isnan(low) or np.isnan(high):
        return "[one prompt: no interval]"
    # Both ends with the decimals of the larger one: an end near 0 is 0, not 3e-05.
    largest = max(abs(low), abs(high))
    places = max(2 - math.floor(math.log10(largest)), 0) if largest else 2
    return f"[{low:z.{places}f}, {high:z.{places}f}]"


def _listed(items: Sequence[str]) -> str:
    names = list(items)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
