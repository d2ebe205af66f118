"""Bounds that a trace measures, each with what it assumes, its interval and its n.

A greedy capture gets the rows of a greedy target, a sampled one those of a sampled target: the
two answer different questions and never share an axis. A greedy target has no entropy ceiling;
its rows show the length of the draft, what a perfect choice among the drafter's own candidates
would bring, and which matches are certain from p and q alone. For a sampled target p_max is the
ceiling of fixed drafts, and the overlap of p and q that of drawn ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.ceilings.first_tokens import Group, by_prompt, first_tokens, groups
from specviz.analysis.ceilings.measured_rows import (
    Row,
    greedy_columns,
    greedy_rounds,
    greedy_rows,
    sampled_columns,
    sampled_rounds,
    sampled_rows,
)
from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling
from specviz.refuse import listed, whole
from specviz.trace import Trace, need_trace
from specviz.trace.remembered import per_trace


@dataclass(frozen=True, eq=False)
class MeasuredBounds:
    """What a trace says of floors and ceilings.

    Attributes
    ----------
    setting
        "greedy" or "sampled": how the trace's target decoded.
    drafter, k
        Whose drafts, and how long.
    table
        One row per content type ("all" last) and bound: content_type, quantity, bound, side
        ("measured", "at least", "at most"), value, low, high, holds ("measured", "theorem" or
        "model"), assumes, formula, n, unit, n_prompts.
    remarks
        What to know before reading it, in sentences.
    caption
        What the numbers are.
    """

    setting: str
    drafter: str
    k: int
    table: pd.DataFrame
    remarks: tuple[str, ...]
    caption: str

    def __str__(self) -> str:
        return "\n".join([self.caption, *self.remarks])

    def _repr_html_(self) -> str:
        from specviz.markup import escape, table_html

        items = "".join(f"<li>{escape(remark)}</li>" for remark in self.remarks)
        return f"<ul>{items}</ul>" + table_html(self.table, caption=self.caption)


def measured_bounds(
    trace: Trace,
    drafter: str | None = None,
    *,
    k: int | None = None,
    top: Sequence[int] = (2, 4, 16),
    nodes: int | None = None,
    content_type: str | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> MeasuredBounds:
    """Floors and ceilings of one drafter on a capture, per content type.

    Parameters
    ----------
    trace
        A capture, greedy or sampled.
    drafter
        None takes the only one.
    k
        Tokens of a chain; None is the drafter's K.
    top
        For a greedy target: numbers m of candidates among which a perfect choice is made.
    nodes
        For a sampled target: nodes of a tree of fixed tokens, k deep (T5.5'); None is k.
    content_type
        One of them, or "all" prompts together; None gives a row for each.
    level, draws, seed
        Of the percentile intervals, which resample prompts.

    Returns
    -------
    MeasuredBounds
        Its table has, for a **greedy** target,

        - "first token kept": measured; at least what is certain from p and q alone (F3.4): from
          KL, from the overlap, from either; at most the recall among m candidates (T6.4);
        - "tokens per round" at k, bonus counted, over the rounds that are made: measured; at
          most what the m likeliest candidates of every depth can give, with the fewest rounds
          there are; k + 1 (F2.5);
        - "H(Y | F)", what the drafter's inputs may leave unknown of the target's token (T6.4);

        and for a **sampled** target, under lossless rules,

        - "first token kept": of a draft drawn from q the overlap (F3.1) and its floors from KL
          (T5.1); of fixed drafts the matches, and at most the arithmetic mean of p_max =
          1 / EBF_inf (T5.2; not the inverse of a mean EBF), beside the range that the entropies
          alone would allow (F1.3);
        - "tokens per round" at k: measured, of the drafter's argmax and of draws from q, by exact
          replay; of the best fixed drafts, under models that take positions as independent and
          alike (T5.7, T5.5'); k + 1.

        Means are over every anchor, one without a draft counting as nothing kept; measured tokens
        per round are over the rounds that are made. How far the models hold: `iid_check`.

    Raises
    ------
    ValueError
        When the trace does not have a draft at every anchor, the drafter is not in it, or a
        number is out of range.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> found = measured_bounds(bundled_trace("smollm2-trees"), "lm", draws=100)
    >>> found.setting, sorted(found.table["holds"].unique())
    ('greedy', ['measured', 'model', 'theorem'])
    """
    check_resampling(level, draws, seed)
    name = need_trace(trace).drafter_name(drafter)
    longest = int(trace.meta.drafters[name]["k"])
    k = longest if k is None else whole("k", k, least=1)
    if k > longest:
        raise ValueError(f"{name!r} drafted {longest} tokens here: k = {k} cannot be measured.")
    among = [whole("Each number of candidates in top", m, least=1) for m in listed("top", top)]
    among = list(dict.fromkeys(among))
    nodes = k if nodes is None else whole("nodes", nodes, least=1)
    if "vocab_size" not in trace.meta.target:
        raise ValueError(
            "This trace does not say how many tokens its target knows, so its entropies bound "
            "nothing: add vocab_size to meta.target, or capture the prompts again."
        )
    size = int(trace.meta.target["vocab_size"])
    sums, kinds, remarks = _sums(trace, name, size, tuple(among))
    if trace.meta.greedy:
        sums = sums.join(greedy_rounds(trace, name, k, among))
        rows = greedy_rows(size, k, among)
    else:
        sums = sums.join(sampled_rounds(trace, name, k))
        rows = sampled_rows(size, k, nodes, _is_raw(trace))
    if content_type not in (None, "all", *kinds):
        there = ", ".join(dict.fromkeys(kinds))
        raise ValueError(f"There is no {content_type!r:.60} text here; there is {there}.")
    found = groups(sums, kinds, level, draws, seed, content_type)
    table = pd.DataFrame([_line(group, row) for group in found for row in rows])
    setting = "greedy" if trace.meta.greedy else "sampled"
    caption = (
        f"{setting.capitalize()} target, drafter {name}, k = {k}. Tokens per round count the "
        f"bonus; {100 * level:g} % intervals resample prompts. A theorem holds under what it "
        "assumes; a model assumes something of text."
    )
    return MeasuredBounds(setting, name, k, table, remarks, caption)


@per_trace
def _sums(
    trace: Trace, drafter: str, size: int, among: tuple[int, ...]
) -> tuple[pd.DataFrame, pd.Series[str], tuple[str, ...]]:
    """What does not depend on k: sums per prompt, its content type, and the remarks."""
    frame = first_tokens(trace, drafter)
    greedy = trace.meta.greedy
    columns = (
        greedy_columns(frame, list(among))
        if greedy
        else sampled_columns(frame, size, _is_raw(trace))
    )
    return *by_prompt(frame, columns), _remarks(trace, frame)


def _line(group: Group, row: Row) -> dict[str, Any]:
    value, low, high = group.interval(row.statistic)
    return {
        "content_type": group.name,
        "quantity": row.quantity,
        "bound": row.bound,
        "side": row.side,
        "value": value,
        "low": low,
        "high": high,
        "holds": row.holds,
        "assumes": row.assumes,
        "formula": row.formula,
        "n": group.n if row.rounds is None else int(group.sums[row.rounds].sum()),
        "unit": "anchors" if row.rounds is None else "rounds",
        "n_prompts": len(group.sums),
    }


def _remarks(trace: Trace, frame: pd.DataFrame) -> tuple[str, ...]:
    said = ["But for measured tokens per round, means are over every anchor and not over rounds."]
    infinite = np.isinf(frame["kl"]) & frame["drafted"]
    drafts = int(frame["drafted"].sum())
    if infinite.any():
        said.append(
            f"KL(p || q) is infinite at {int(infinite.sum()):,} of {drafts:,} anchors with a "
            "draft, as the drafter leaves out tokens that the target can emit: there the floors "
            "from KL are 0 and say nothing. The overlap is not concerned."
        )
    if drafts < len(frame):
        said.append(
            f"{len(frame) - drafts:,} of {len(frame):,} anchors have no draft, and count as "
            "nothing kept."
        )
    if trace.meta.greedy:
        said.append("The target is greedy: its entropy sets no ceiling, the draft's length does.")
        return tuple(said)
    said.append(
        "Matches of argmax drafts are counted on one drawn text: they scatter around the chances "
        "p(d), and may pass mean p_max by luck."
    )
    if not _is_raw(trace):
        asked = ", ".join(f"{name} {value:g}" for name, value in trace.meta.sampling.items())
        said.append(
            f"Tokens were drawn at {asked}, while positions describe p at temperature 1: the "
            "bounds from p_max and entropy are left out. Capture with Sampling() to have them."
        )
    return tuple(said)


def _is_raw(trace: Trace) -> bool:
    """Whether tokens were drawn from the very distributions that `positions` describes."""
    asked = trace.meta.sampling
    return (
        float(asked["temperature"]) == 1
        and not asked.get("top_k", 0)
        and float(asked.get("top_p", 1.0)) == 1
    )
