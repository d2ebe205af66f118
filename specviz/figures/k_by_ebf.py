"""How many tokens to draft at which branching factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.figures.theme import colours, faint, need, panelled, records, symbols
from specviz.markup import counted, escape, number

_PANELS = {
    "causal": "causal: of the tokens just committed",
    "hindsight": "hindsight: of the tokens to come (no policy knows it)",
}
_TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def plot_k_by_ebf(table: pd.DataFrame, *, by: str | None = None) -> go.Figure:
    """The best step function from branching factor to k, causal and hindsight side by side.

    Parameters
    ----------
    table
        `OptimalKByEBF.table`: `reading`, `ebf_low`, `ebf_high`, `k`, `k_low`, `k_high` (over
        resampled prompts), `n_rounds`, `tokens_per_round`; for several drafters or costs one
        below the other, with a column that tells them apart.
    by
        That column, if any.

    Returns
    -------
    plotly.graph_objects.Figure
        A panel per reading; bands are the intervals of k.

    Raises
    ------
    ValueError
        When a column is missing, the table is empty or a reading is another.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"reading": "causal", "ebf_low": [1.0, 3.0], "ebf_high": [3.0, 90.0],
    ...     "k": [7, 0], "k_low": [5, 0], "k_high": [7, 2], "n_rounds": [50, 60],
    ...     "tokens_per_round": [2.1, 1.0]})
    >>> plot_k_by_ebf(table).layout.title.text
    'Best k from the lowest branching factors to the highest: 7, 0'
    """
    columns = ("reading", "ebf_low", "ebf_high", "k", "k_low", "k_high", "n_rounds")
    need(table, (*columns, "tokens_per_round", *([by] if by else [])), "specviz.optimal_k_by_ebf")
    key = by or "_all"
    frame = table if by else table.assign(_all="best k")
    unknown = set(frame["reading"]) - set(_PANELS)
    if unknown:
        raise ValueError(f"A reading is causal or hindsight, not {sorted(unknown)[0]!r}.")
    readings = [name for name in _PANELS if name in set(frame["reading"])]
    groups = list(dict.fromkeys(frame[key].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    figure = make_subplots(
        cols=len(readings),
        shared_yaxes=True,
        horizontal_spacing=0.04,
        subplot_titles=[_PANELS[name] for name in readings],
    )
    for column, reading in enumerate(readings, start=1):
        for group in groups:
            chosen = (frame["reading"] == reading) & (frame[key].astype(str) == group)
            part = frame[chosen].sort_values("ebf_low")
            edge = part[["ebf_low", "ebf_high"]].to_numpy(dtype=float).ravel()
            low, high = (np.repeat(part[name].to_numpy(), 2) for name in ("k_low", "k_high"))
            figure.add_scatter(
                x=[*edge, *edge[::-1]],
                y=[*high, *low[::-1]],
                fill="toself",
                fillcolor=faint(tint[group]),
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
                row=1,
                col=column,
            )
            figure.add_scatter(
                x=edge,
                y=np.repeat(part["k"].to_numpy(), 2),
                mode="lines+markers",
                line={"color": tint[group], "width": 2.2},
                marker={"symbol": mark[group], "size": 7},
                name=escape(group),
                legendgroup=escape(group),
                showlegend=bool(by) and column == 1,
                customdata=[_tooltip(row) for row in records(part) for _ in range(2)],
                hovertemplate="%{customdata}",
                row=1,
                col=column,
            )
    figure.update_xaxes(
        type="log",
        title_text="branching factor (geometric mean, log scale)",
        tickvals=_TICKS,
        ticktext=[f"{tick:g}" for tick in _TICKS],
    )
    figure.update_yaxes(rangemode="tozero", dtick=1 if frame["k_high"].max() <= 12 else 2)
    figure.update_yaxes(title_text="k: tokens drafted in a round", row=1, col=1)
    return panelled(figure, _finding(frame, key, groups, readings))


def _tooltip(row: Mapping[str, Any]) -> str:
    return (
        f"{number(row['ebf_low'])} to {number(row['ebf_high'])}: k = {row['k']} "
        f"({row['k_low']} to {row['k_high']})<br>{counted(row['n_rounds'], 'round')} start there, "
        f"{number(row['tokens_per_round'])} tokens per round (bonus counted)"
    )


def _finding(frame: pd.DataFrame, key: str, groups: list[str], readings: list[str]) -> str:
    first = frame[frame["reading"] == readings[0]]
    said = []
    for group in groups:
        part = first[first[key].astype(str) == group].sort_values("ebf_low")
        ks = ", ".join(str(k) for k in part["k"])
        said.append(ks if key == "_all" else f"{group} {ks}")
    return f"Best k from the lowest branching factors to the highest: {'; '.join(said)}"
