"""Lines of several drafters, one panel per content type: what pictures of families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.figures.theme import FEW, band, colours, panelled, records, symbols
from specviz.markup import counted, escape

_MOST_COLUMNS = 3
_MOST_BANDS = 6  # more would cover each other; the tooltips keep the intervals


def panels(
    table: pd.DataFrame,
    x: str,
    y: str,
    tooltip: Callable[[Mapping[str, Any]], str],
    *,
    by: str,
    count: str,
    title: str,
    x_title: str,
    y_title: str,
) -> go.Figure:
    """One panel per value of `by`, in it a line with its band per drafter.

    Groups called "all" are left out where there are others. `tooltip` gives HTML that is safe.
    Where the column `count` is there and below 20, the marker is hollow and has no band.
    """
    groups = groups_in(table, by)
    drafters = list(dict.fromkeys(table["drafter"].astype(str)))
    tint, mark = colours(drafters), symbols(drafters)
    columns = min(len(groups), _MOST_COLUMNS)
    rows = -(-len(groups) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_yaxes=True,
        horizontal_spacing=0.04,
        vertical_spacing=0.3 / rows,
        subplot_titles=[_panel_title(table, by, group) for group in groups],
    )
    shown: set[str] = set()
    for i, group in enumerate(groups):
        where = {"row": i // columns + 1, "col": i % columns + 1}
        for drafter in drafters:
            chosen = (table[by].astype(str) == group) & (table["drafter"].astype(str) == drafter)
            part = table[chosen & table[y].notna()].sort_values(x)
            if part.empty:
                continue
            few = part[count] < FEW if count in part else pd.Series(False, part.index)
            if len(drafters) <= _MOST_BANDS:
                figure.add_trace(band(part[~few], x, tint[drafter]), **where)
            figure.add_scatter(
                x=part[x],
                y=part[y],
                mode="lines+markers",
                line={"color": tint[drafter], "width": 2.2},
                marker={"symbol": [mark[drafter] + "-open" * f for f in few], "size": 7},
                name=escape(drafter),
                legendgroup=escape(drafter),
                showlegend=drafter not in shown,
                customdata=[tooltip(row) for row in records(part)],
                hovertemplate="%{customdata}",
                **where,
            )
            shown.add(drafter)
        if where["row"] == rows or i + columns >= len(groups):
            figure.update_xaxes(title_text=x_title, dtick=1 if table[x].max() <= 20 else 5, **where)
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text=y_title, row=row, col=1)
    panelled(figure, title)
    return figure.update_layout(height=figure.layout.height + 260 * (rows - 1))


def groups_in(table: pd.DataFrame, by: str) -> list[str]:
    """The groups, without "all" where there are others."""
    found = list(dict.fromkeys(table[by].astype(str)))
    return [group for group in found if group != "all"] or found


def _panel_title(table: pd.DataFrame, by: str, group: str) -> str:
    if "n_prompts" not in table:
        return escape(group)
    prompts = table[table[by].astype(str) == group]["n_prompts"].max()
    return f"{escape(group)} ({counted(prompts, 'prompt')})"
