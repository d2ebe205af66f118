"""What a mix of kinds of text needs: speed, waiting times, and whether drafting pays.

One request at a time, modelled: rounds are replayed, seconds are the cost model's. For a
server that decodes several at once, pass a cost model measured at its batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling
from specviz.analysis.serving.loads import (
    Load,
    Sums,
    all_with_ends,
    break_even,
    measures,
    shares_of,
    with_ends,
)
from specviz.analysis.serving.prepared import PreparedLoads
from specviz.cost import ANY, CostModel, need_cost
from specviz.markup import escape, number, table_html
from specviz.policies import Policy
from specviz.refuse import above_0, shown, whole
from specviz.trace import Trace, need_trace

#: Name of the last row.
MIX = "mix"
#: Titles of the columns on a page, and what their numbers are multiplied by.
_TITLES = {
    "tokens_per_round": ("tokens per round (bonus counted)", 1),
    "tokens_per_second": ("tokens/s", 1),
    "speedup": ("speed-up", 1),
    "latency_mean": ("ms per token, mean", 1000),
    "latency_p95": ("ms per token, p95", 1000),
    "wait_p95": ("ms per round, p95", 1000),
    "break_even": ("break-even share", 1),
}


@dataclass(frozen=True)
class SLA:
    """What one request is promised; None promises nothing.

    Parameters
    ----------
    tokens_per_second
        At least so many, on average.
    latency_p95
        Seconds per token that 95 % of tokens do not exceed.
    wait_p95
        Seconds from one arrival of tokens to the next that 95 % of rounds do not exceed.

    Raises
    ------
    ValueError
        When nothing is promised, or something is no number above 0.
    """

    tokens_per_second: float | None = None
    latency_p95: float | None = None
    wait_p95: float | None = None

    def __post_init__(self) -> None:
        said = {name: value for name, value in vars(self).items() if value is not None}
        if not said:
            raise ValueError("An SLA promises something: give tokens_per_second, or a p95.")
        for name, value in said.items():
            above_0(name, value)

    def verdict(self, row: Mapping[str, Any]) -> str:
        """Whether a row of `Capacity.table` keeps what is promised.

        "meets" or "misses" where the whole interval does (the estimate, where there is no
        interval), "not sure" where the promise lies inside it, "not enough said" where the row
        has no such number. Of several promises the worst verdict counts.
        """
        words = [
            _verdict(row, "tokens_per_second", self.tokens_per_second, above=True),
            _verdict(row, "latency_p95", self.latency_p95, above=False),
            _verdict(row, "wait_p95", self.wait_p95, above=False),
        ]
        order = ("misses", "not sure", "not enough said", "meets")
        return next(word for word in order if word in words)


@dataclass(frozen=True, eq=False)
class Capacity:
    """What a mix needs.

    Attributes
    ----------
    table
        One row per kind of text and one for the mix: content_type, share (of the tokens),
        policy; tokens_per_round (bonus counted), tokens_per_second, speedup (over plain
        decoding), latency_mean and latency_p95 (seconds per token: a round's seconds over what
        it emits, every token counted), wait_p95 (seconds of a round, every round counted),
        break_even (the share of this kind above which drafting loses time on the whole, the
        other kinds keeping theirs; NaN for the mix, or where there is one kind), each with
        `_low` and `_high`; sla, if one was given; n_rounds, n_prompts.
    sentences
        In plain words, one per row.
    caption
        What the numbers are and whose cost they use.
    """

    table: pd.DataFrame
    sentences: tuple[str, ...]
    caption: str

    def servers(self, tokens_per_second: float) -> tuple[int, int]:
        """Requests that must be decoded side by side for a total speed: as estimated, and at the
        lower end of the interval (the same, where there is none).

        Counts streams of this cost model's speed: two of them on one device are not this fast.
        """
        above_0("tokens_per_second", tokens_per_second)
        row = self.table.iloc[-1]
        speeds = (row["tokens_per_second"], row["tokens_per_second_low"])
        speeds = (speeds[0], speeds[0] if math.isnan(speeds[1]) else speeds[1])
        needed = [math.ceil(tokens_per_second / speed - 1e-9) for speed in speeds]
        return needed[0], needed[1]

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences)
        return f"<ul>{items}</ul>" + table_html(
            [_cells(row) for row in self.table.to_dict("records")], caption=self.caption
        )


def capacity(
    trace: Trace,
    mix: Mapping[str, float],
    cost: CostModel,
    policy: Policy | Mapping[str, Policy],
    drafter: str | None = None,
    *,
    sla: SLA | None = None,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Capacity:
    """Speed and waiting times of a mix of kinds of text, replayed from a capture.

    Parameters
    ----------
    trace
        A greedy capture with prompts of every kind in the mix.
    mix
        Content type to its share of the *tokens* (any weights; they are scaled to 1).
    cost
        Seconds of drafting and verifying.
    policy
        One for all, or one for every content type: `{"code": FixedK(7), "prose": FixedK(0)}`.
    drafter
        As for `replay`.
    sla
        What each request is promised.
    level, draws, seed
        Of the intervals, which resample the prompts of every kind on their own; shares and
        seconds of the cost model are taken as exact.

    Returns
    -------
    Capacity

    Raises
    ------
    ValueError
        As `replay`; when the mix is empty, has a weight below 0, or names a kind the trace or
        the policies lack.

    Examples
    --------
    >>> import specviz as sv
    >>> trace = sv.bundled_trace("smollm2-trees")
    >>> plan = capacity(trace, {"code": 3, "prose": 1}, sv.t4_like(), sv.FixedK(5), "lm",
    ...                 sla=SLA(tokens_per_second=20), draws=200)
    >>> plan.table["content_type"].tolist(), plan.table["sla"].tolist()
    (['code', 'prose', 'mix'], ['meets', 'meets', 'meets'])
    """
    check_resampling(level, draws, seed)
    need_cost(cost)
    need_trace(trace)
    _need_sla(sla)
    ready = PreparedLoads(trace, drafter, level=level, draws=draws, seed=seed)
    return planned(ready, mix, cost, policy, sla)


def planned(
    ready: PreparedLoads,
    mix: Mapping[str, float],
    cost: CostModel,
    policy: Policy | Mapping[str, Policy],
    sla: SLA | None = None,
) -> Capacity:
    """`capacity`, of loads that are remembered between one mix and the next."""
    shares, there = shares_of(mix), ready.trace.content_types
    policies = dict(policy) if isinstance(policy, Mapping) else dict.fromkeys(shares, policy)
    for kind in shares:
        if kind not in there:
            raise ValueError(
                f"The trace has no {kind!r}, which is in the mix; it has {', '.join(there)}."
            )
        if kind not in policies:
            raise ValueError(f"There is no policy for {kind!r}, which is in the mix.")
    parts = enumerate(shares.items())
    pairs = [ready.of(kind, share, policies[kind], cost, i) for i, (kind, share) in parts]
    loads, again = [load for load, _ in pairs], [drawn for _, drawn in pairs]
    caption = (
        f"Modelled, one request at a time, with the cost model {cost.name} ({cost.provenance}). "
        f"{cost.note} Tokens per round count the bonus; seconds are the model's; "
        f"{100 * ready.level:g} % intervals resample the prompts of each kind and take the seconds "
        "and shares as exact."
    )
    return _capacity(loads, again, sla, caption, ready.level)


def capacity_from_figures(
    mix: Mapping[str, float],
    tokens_per_round: Mapping[str, float],
    cost: CostModel,
    k: int,
    drafter: str = ANY,
    *,
    sla: SLA | None = None,
) -> Capacity:
    """The same from stated figures: no interval, and no p95 of tokens, which needs rounds.

    Parameters
    ----------
    mix
        Content type to its share of the tokens.
    tokens_per_round
        Content type to tokens per round, the bonus counted.
    cost, k, drafter
        A round drafts `k` tokens by `drafter` and verifies k + 1 rows, whatever the text.
    sla
        What each request is promised.

    Raises
    ------
    ValueError
        When the mix is empty or names a kind without a figure, or a figure is not between 1
        and k + 1.

    Examples
    --------
    >>> from specviz.presets import t4_like
    >>> plan = capacity_from_figures({"prose": 1}, {"prose": 2.5}, t4_like(), k=7)
    >>> plan.table["tokens_per_second"].round(1).tolist()          # prose, and the mix of it
    [36.0, 36.0]
    """
    need_cost(cost)
    _need_sla(sla)
    shares = shares_of(mix)
    if not isinstance(tokens_per_round, Mapping):
        raise ValueError(
            'tokens_per_round must map content types to tokens per round, such as {"prose": 2.5}, '
            f"not {shown(tokens_per_round)}."
        )
    k = whole("k", k, least=0)
    seconds = float(cost.round_seconds(drafter, k))
    loads: list[Load] = []
    for kind, share in shares.items():
        tokens = tokens_per_round.get(kind)
        if isinstance(tokens, bool) or not isinstance(tokens, Real) or not 1 <= tokens <= k + 1:
            raise ValueError(
                f"tokens_per_round of {kind!r} must be between 1 and k + 1 = {k + 1}, the bonus "
                f"counted, not {tokens!r}."
            )
        loads.append(
            Load.of_figures(kind, share, f"fixed-{k}", cost.plain_seconds, float(tokens), seconds)
        )
    caption = (
        f"From stated tokens per round (bonus counted; no n, so no interval), one request at a "
        f"time, with the cost model {cost.name} ({cost.provenance}). {cost.note}"
    )
    return _capacity(loads, [None] * len(loads), sla, caption, LEVEL)


def _capacity(
    loads: list[Load], again: list[Sums | None], sla: SLA | None, caption: str, level: float
) -> Capacity:
    known = [Sums.of(load) for load in loads]
    everyone = _complete(again)
    rows: list[dict[str, Any]] = []
    for i in [*range(len(loads)), None]:
        mine = range(len(loads)) if i is None else [i]
        drawn = _complete([again[j] for j in mine])
        resampled = {} if drawn is None else measures(drawn)
        row: dict[str, Any] = {
            "content_type": MIX if i is None else loads[i].content_type,
            "share": sum(loads[j].share for j in mine),
            "policy": ", ".join(dict.fromkeys(loads[j].policy for j in mine)),
        }
        fewest = min(loads[j].n_prompts for j in mine)
        row |= all_with_ends(measures([known[j] for j in mine]), resampled, level, fewest)
        turn, turns = np.array([np.nan]), None
        if i is not None and len(loads) > 1:
            turn = break_even(known[i], known[:i] + known[i + 1 :])
            if everyone is not None:
                turns = break_even(everyone[i], everyone[:i] + everyone[i + 1 :])
        row |= with_ends("break_even", turn, turns, level, min(each.n_prompts for each in loads))
        if sla is not None:
            row["sla"] = sla.verdict(row)
        row["n_rounds"] = sum(loads[j].n_rounds for j in mine)
        row["n_prompts"] = sum(loads[j].n_prompts for j in mine)
        rows.append(row)
    return Capacity(pd.DataFrame(rows), tuple(_sentence(row) for row in rows), caption)


def _complete(parts: list[Sums | None]) -> list[Sums] | None:
    """The parts, or None where one of them has no resamples."""
    there = [part for part in parts if part is not None]
    return there if len(there) == len(parts) else None


def _sentence(row: Mapping[str, Any]) -> str:
    speed = f"{number(row['tokens_per_second'])} tokens/s{_ends(row, 'tokens_per_second')}"
    words = f"{row['content_type']} ({100 * row['share']:.0f} % of the tokens): {speed}, "
    words += f"{number(row['speedup'])} times plain decoding."
    if not math.isnan(row["latency_p95"]):
        words += f" 95 % of tokens take at most {number(1000 * row['latency_p95'])} ms."
    words += f" 95 % of rounds take at most {number(1000 * row['wait_p95'])} ms."
    words += _pays(row)
    if "sla" in row:
        words += f" SLA: {row['sla']}."
    return words


def _cells(row: Mapping[Any, Any]) -> dict[str, str]:
    """A row of the table with its intervals folded in, times in milliseconds."""
    shown: dict[str, str] = {
        "content type": row["content_type"],
        "share of tokens": f"{100 * row['share']:.0f} %",
        "policy": row["policy"],
    }
    for name, (title, scale) in _TITLES.items():
        scaled = {end: scale * row[name + end] for end in ("", "_low", "_high")}
        shown[title] = number(scaled[""]) + _ends(scaled, "")
    if "sla" in row:
        shown["SLA"] = row["sla"]
    return shown | {"rounds": f"{row['n_rounds']:,}", "prompts": f"{row['n_prompts']:,}"}


def _pays(row: Mapping[str, Any]) -> str:
    """Whether drafting pays on this kind, and from which share on it loses on the whole."""
    low, high, turn = row["speedup_low"], row["speedup_high"], row["break_even"]
    ends = [row["speedup"]] if math.isnan(low) else [low, high]
    if all(math.isclose(end, 1) for end in ends):
        return " That is plain decoding."
    if low <= 1 <= high:
        return " Whether drafting pays here is not sure."
    if row["speedup"] > 1:
        return " Drafting pays here."
    if math.isnan(turn):
        return " Drafting loses time here."
    if turn == 0:
        return " Drafting loses time here, and the rest of the mix gains none to make up for it."
    return (
        f" Drafting loses time here, and on the whole once this kind has {100 * turn:.0f} % of the "
        f"tokens{_ends(row, 'break_even')}."
    )


def _need_sla(sla: object) -> None:
    if sla is not None and not isinstance(sla, SLA):
        raise ValueError(
            f"sla must be an SLA, such as SLA(tokens_per_second=20), not {shown(sla)}."
        )


def _ends(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return "" if math.isnan(low) else f" ({number(low)} to {number(high)})"


def _verdict(row: Mapping[str, Any], name: str, promised: float | None, above: bool) -> str:
    if promised is None:
        return "meets"
    ends = [row[f"{name}_low"], row[f"{name}_high"]]
    ends = [row[name]] if math.isnan(ends[0]) else ends
    if math.isnan(ends[0]):
        return "not enough said"
    kept = [end >= promised if above else end <= promised for end in ends]
    return "meets" if all(kept) else "misses" if not any(kept) else "not sure"
