"""Policies side by side: one value with its interval, per policy and content type."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import INK, bars, colours, counts, need, records, symbols, titled
from specviz.markup import escape, number


def plot_policies(
    table: pd.DataFrame,
    value: str = "tokens_per_round",
    *,
    by: str = "content_type",
    unit: str = "tokens per round (bonus counted)",
    goal: float | None = None,
) -> go.Figure:
    """A row for every policy, in the order of the table, a mark for every group.

    Parameters
    ----------
    table
        As `specviz.compare_policies` gives.
    value
        Column to draw; its interval is in `low` and `high`, or in VALUE_low and VALUE_high.
    by
        The grouping column.
    unit
        Title of the axis.
    goal
        A value to mark with a line.

    Returns
    -------
    plotly.graph_objects.Figure
        The dotted line of each group is the first policy's value.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.
    """
    low, high = (
        ("low", "high") if f"{value}_low" not in table else (f"{value}_low", f"{value}_high")
    )
    need(table, (by, "policy", value, low, high), "specviz.compare_policies")
    groups = list(dict.fromkeys(table[by].astype(str)))
    policies = list(dict.fromkeys(table["policy"].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    figure = go.Figure()
    for i, group in enumerate(groups):
        part = table[table[by].astype(str) == group]
        offset = 0.16 * (i - (len(groups) - 1) / 2)
        figure.add_scatter(
            x=part[value],
            y=[policies.index(name) + offset for name in part["policy"].astype(str)],
            mode="markers",
            marker={"symbol": mark[group], "size": 9, "color": tint[group]},
            error_x=bars(part[value], part[low], part[high], tint[group]),
            name=escape(group),
            customdata=[
                f"{escape(str(row['policy']))}: {number(row[low])} to {number(row[high])}"
                f"<br>{counts(row)}"
                for row in records(part)
            ],
            hovertemplate="%{x:.3g}<br>%{customdata}",
        )
        first = part[part["policy"].astype(str) == policies[0]][value]
        if len(first):
            figure.add_vline(
                x=float(first.iloc[0]), line={"color": tint[group], "width": 1, "dash": "dot"}
            )
    if goal is not None:
        figure.add_vline(
            x=goal,
            line={"color": INK, "width": 1.5, "dash": "dash"},
            annotation={"text": number(goal), "font": {"color": INK}},
        )
    figure.update_layout(
        xaxis={"title": unit},
        yaxis={
            "tickvals": list(range(len(policies))),
            "ticktext": [escape(name) for name in policies],
            "autorange": "reversed",
        },
    )
    titled(figure, _finding(table, value, by, groups))
    return figure.update_layout(height=max(figure.layout.height, 150 + 26 * len(policies)))


def _finding(table: pd.DataFrame, value: str, by: str, groups: list[str]) -> str:
    said = []
    for group in groups:
        part = table[table[by].astype(str) == group]
        best = records(part.sort_values(value))[-1]
        said.append(f"{group} {number(best[value])} with {best['policy']}")
    return f"Most: {'; '.join(said)}"
