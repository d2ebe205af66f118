"""Sections on what decides acceptance, and on what bounds it, of one drafter of a capture."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from specviz import figures
from specviz.analysis import hazard_curve, hazard_table, measured_bounds, replay_sampled
from specviz.analysis.replays.renewal import RULES
from specviz.markup import number, table_html
from specviz.reporting.page import Page
from specviz.trace.trace import Trace

_BOUNDS = ["content_type", "bound", "side", "value", "low", "high", "holds", "assumes", "formula"]


def add_science(page: Page, trace: Trace, drafter: str, k: int, kinds: Collection[str]) -> None:
    """Both sections, as far as the trace can support them."""
    for add in (add_acceptance, add_bounds) if trace.meta.greedy else (add_bounds,):
        before = len(page.parts)
        try:
            add(page, trace, drafter, k, kinds)
        except ValueError as error:
            del page.parts[before:]
            page.missing(str(error))


def add_acceptance(page: Page, trace: Trace, drafter: str, k: int, kinds: Collection[str]) -> None:
    """P(the next drafted token is accepted) against the target's branching factor there."""
    table = hazard_table(trace, k, drafter)
    curve = hazard_curve(table[table["content_type"].isin(kinds)], "entropy", by="content_type")
    page.heading(f"Entropy and acceptance, {drafter}")
    page.plot(
        figures.plot_hazard_curve(curve, drafter=drafter),
        f"Drafted tokens that a round of k = {k} accepted or rejected, those before them being "
        "accepted, in bins of like size of the target's entropy at their place; 95 % intervals "
        "resample prompts. What the target thinks there is known only once it has verified the "
        "draft: this explains rounds, and does not by itself tell a policy when to stop.",
        curve.drop(columns="direction"),
    )


def add_bounds(page: Page, trace: Trace, drafter: str, k: int, kinds: Collection[str]) -> None:
    """Tokens per round against every bound that applies, a panel per kind of text."""
    found = measured_bounds(trace, drafter, k=k)
    rows = found.table[found.table["quantity"] == "tokens per round"]
    rows = rows[rows["content_type"].isin(kinds)]
    panels = {
        f"{kind}, {found.setting} target": part
        for kind, part in rows.groupby("content_type", sort=False)
    }
    page.heading(f"What bounds tokens per round, {drafter}")
    page.plot(
        figures.plot_bounds(panels),
        f"{found.caption} {found.remarks[-1]}",
        rows[[*_BOUNDS, "n", "unit", "n_prompts"]],
    )


def add_sampled_lengths(page: Page, trace: Trace, drafter: str, k: int) -> float:
    """Expected tokens per round of a sampled capture, by rule; refused as by `replay_sampled`.

    Returns that of rejection, over all prompts.
    """
    found = {rule: replay_sampled(trace, k, drafter, rule=rule) for rule in RULES}
    table = pd.concat([each.by("content_type") for each in found.values()], ignore_index=True)
    table["found"] = [
        f"{number(row.tokens_per_round)} ({number(row.low)}–{number(row.high)})"
        for row in table.itertuples()
    ]
    index = ["content_type", "n_tokens", "n_prompts"]
    wide = table.pivot_table(
        index=index, columns="rule", values="found", aggfunc="first", sort=False
    )
    page.heading(f"Drafter {drafter}")
    page.html(
        table_html(
            wide.reset_index()[[index[0], *RULES, *index[1:]]],
            caption=f"Expected tokens per round (bonus counted) at k = {k}, replayed over the "
            "sampled outputs, with 95 % intervals from resampling prompts. "
            + "; ".join(f"{rule}: {what}" for rule, what in RULES.items())
            + ". All three leave the output's law as it is.",
        )
    )
    return found["rejection"].tokens_per_round
