"""Modelled speed-up against the draft length k, one panel per cost model."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.figures.theme import (
    INK,
    band,
    colours,
    counts,
    need,
    panelled,
    records,
    symbols,
)
from specviz.markup import escape, number

_MOST_BANDS = 5


def plot_speedup_by_k(
    curves: pd.DataFrame,
    best: pd.DataFrame | None = None,
    *,
    by: str = "content_type",
    provenance: Mapping[str, str] | None = None,
    drafter: str = "",
) -> go.Figure:
    """Speed-up over plain decoding for every fixed k, under each cost model.

    Parameters
    ----------
    curves
        As `specviz.analysis.speedup_by_k` gives, one cost model after another:
        `by`, `k`, `speedup`, `low`, `high`, `cost`.
    best
        The k to mark per group and cost: `by`, `cost`, `k`, `speedup`, `low`, `high`. Left
        out, nothing is marked.
    by
        The grouping column.
    provenance
        Per cost model where its seconds come from; written above its panel.
    drafter
        Named in the title when given.

    Returns
    -------
    plotly.graph_objects.Figure
        One panel per cost model, side by side, with the break-even line at 1.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> curves = pd.DataFrame({"content_type": "prose", "k": [0, 1], "speedup": [1, 0.8],
    ...     "low": [1, 0.7], "high": [1, 0.9], "cost": "laptop"})
    >>> plot_speedup_by_k(curves, curves[:1]).layout.title.text
    'Best k, laptop: prose 0 (do not draft)'
    """
    columns = (by, "k", "speedup", "low", "high", "cost")
    need(curves, columns, "specviz.analysis.speedup_by_k")
    costs = list(dict.fromkeys(curves["cost"].astype(str)))
    groups = list(dict.fromkeys(curves[by].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    whose = provenance or {}
    figure = make_subplots(
        cols=len(costs),
        shared_yaxes=True,
        horizontal_spacing=0.025,
        subplot_titles=[_panel_title(cost, whose.get(cost, "")) for cost in costs],
    )
    bands = len(groups) <= _MOST_BANDS
    # Titles of neighbouring panels must not run into each other on a narrow page.
    below = "k (tokens drafted)" if len(costs) > 1 else "k (tokens drafted per round)"
    for column, cost in enumerate(costs, start=1):
        for group in groups:
            chosen = (curves["cost"].astype(str) == cost) & (curves[by].astype(str) == group)
            part = curves[chosen].sort_values("k")
            if bands:
                figure.add_trace(band(part, "k", tint[group]), row=1, col=column)
            figure.add_scatter(
                x=part["k"],
                y=part["speedup"],
                mode="lines+markers",
                line={"color": tint[group], "width": 2.2},
                marker={"symbol": mark[group], "size": 5},
                name=escape(group),
                legendgroup=escape(group),
                showlegend=column == 1,
                customdata=[
                    f"{number(row['low'])} to {number(row['high'])}; {counts(row)}"
                    for row in records(part)
                ],
                hovertemplate="k = %{x}: %{y:.3g}x<br>%{customdata}",
                row=1,
                col=column,
            )
        if best is not None:
            figure.add_trace(_marks(best, cost, by, tint), row=1, col=column)
        figure.update_xaxes(title_text=below, row=1, col=column)
    figure.add_hline(y=1, line={"color": INK, "width": 1.2, "dash": "dash"})
    figure.update_yaxes(title_text="modelled speed-up over plain decoding (x)", row=1, col=1)
    panelled(figure, _finding(best, costs[0], by, drafter), above=34)
    return figure.update_layout(height=460)


def _panel_title(cost: str, provenance: str) -> str:
    below = f"<br><i>{escape(provenance)}</i>" if provenance and provenance != cost else ""
    return f"<b>{escape(cost)}</b>{below}"


def _marks(best: pd.DataFrame, cost: str, by: str, tint: Mapping[str, str]) -> go.Scatter:
    """One trace with the best k of every group, its interval drawn at the decision."""
    there = best[best["cost"].astype(str) == cost]
    return go.Scatter(
        x=there["k"],
        y=there["speedup"],
        mode="markers",
        marker={
            "symbol": "star",
            "size": 15,
            "color": [tint.get(str(group), INK) for group in there[by]],
            "line": {"color": INK, "width": 1},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (there["high"] - there["speedup"]).fillna(0),
            "arrayminus": (there["speedup"] - there["low"]).fillna(0),
            "color": INK,
            "thickness": 1.2,
            "width": 4,
        },
        text=[escape(group) for group in there[by]],
        hovertemplate="best for %{text}: k = %{x}, %{y:.3g}x<extra></extra>",
        name="best k",
        showlegend=False,
    )


def _finding(best: pd.DataFrame | None, cost: str, by: str, drafter: str) -> str:
    whose = f"{cost}{f', {drafter}' if drafter else ''}"
    if best is None:
        return f"Modelled speed-up against k, {whose}"
    there = best[best["cost"].astype(str) == cost]
    said = [
        f"{row[by]} {int(row['k'])} "
        + (f"({number(row['speedup'])}x)" if row["k"] else "(do not draft)")
        for row in records(there)
    ]
    if len(said) > 1 and all(there["k"] == 0):
        said = ["0 everywhere (do not draft)"]
    elif len(said) > 4:
        ranked = sorted(zip(there["k"], said, strict=True), key=lambda pair: pair[0])
        said = [f"from {ranked[0][1]} to {ranked[-1][1]}"]
    return f"Best k, {whose}: {', '.join(said)}"
