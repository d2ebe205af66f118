"""Floors and ceilings beside what was measured, each with what it assumes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import LEGEND_BELOW, bars, composed, counts, faint, need, records
from specviz.markup import counted, escape, number

_SIDES = {
    "measured": ("#0072B2", "circle", "measured"),
    "at most": ("#D55E00", "triangle-left", "at most: what no draft of the kind can pass"),
    "at least": ("#009E73", "triangle-right", "at least: what is certain"),
}
_WIDTH, _ROW, _GAP = 46, 66, 84


def plot_bounds(
    panels: Mapping[str, pd.DataFrame], *, unit: str = "tokens per round (bonus counted)"
) -> go.Figure:
    """One panel per setting: a row per bound, its assumption under its name.

    Parameters
    ----------
    panels
        By title ("greedy target, lm"): rows of `specviz.MeasuredBounds.table` of one content type
        and one quantity: bound, side, value, low, high, holds, assumes, formula, n, unit,
        n_prompts. Greedy and sampled settings stand in panels of their own, with axes of their
        own: what bounds the one says nothing of the other.
    unit
        Title of the axes.

    Returns
    -------
    plotly.graph_objects.Figure
        Models are hollow, theorems filled; the title names the lowest ceiling that is a theorem.

    Raises
    ------
    ValueError
        When there is no panel, a column is missing, or a side is another.
    """
    if not panels:
        raise ValueError("There is no panel to draw: give the bounds of at least one setting.")
    data: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    seen: set[str] = set()
    heights = {title: len(table) for title, table in panels.items()}
    rows, layout = sum(heights.values()), dict[str, Any]()
    inside = _ROW * rows + _GAP * (len(panels) - 1)  # pixels of the panels and between them
    top, gap, room = 1.0, _GAP / inside, _ROW / inside
    for i, (title, table) in enumerate(panels.items()):
        need(
            table, ("bound", "side", "value", "low", "high", "holds", "assumes"), "measured_bounds"
        )
        axis = "" if i == 0 else str(i + 1)
        for side, (colour, shape, name) in _SIDES.items():
            part = table.reset_index(drop=True)
            part = part[part["side"] == side]
            if part.empty:
                continue
            data.append(
                {
                    "type": "scatter",
                    "x": part["value"],
                    "y": part.index,
                    "mode": "markers+text",
                    "cliponaxis": False,  # a label at 0 stands on both sides of the axis
                    "text": [number(float(v)) for v in part["value"]],
                    "textposition": "top center",
                    "textfont": {"size": 11},
                    "marker": {
                        "symbol": [shape + "-open" * (h == "model") for h in part["holds"]],
                        "size": 11,
                        "color": colour,
                        "line": {"width": 2, "color": colour},
                    },
                    "error_x": bars(part["value"], part["low"], part["high"], colour),
                    "name": name,
                    "legendgroup": side,
                    "showlegend": side not in seen,
                    "customdata": [_tooltip(row) for row in records(part)],
                    "hovertemplate": "%{x:.3g}<br>%{customdata}<extra></extra>",
                    "xaxis": f"x{axis}",
                    "yaxis": f"y{axis}",
                }
            )
            seen.add(side)
        for row in records(table[table["side"] == "measured"]):
            shapes.append(
                {
                    "type": "line",
                    "xref": f"x{axis}",
                    "yref": f"y{axis} domain",
                    "x0": row["value"],
                    "x1": row["value"],
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": faint(_SIDES["measured"][0], 0.5), "width": 2},
                    "layer": "below",
                }
            )
        bottom = max(top - room * len(table), 0.0)
        layout |= {
            f"xaxis{axis}": {"title": unit, "rangemode": "tozero", "anchor": f"y{axis}"},
            f"yaxis{axis}": {
                "domain": [bottom, top],
                "tickvals": list(range(len(table))),
                "ticktext": [_name(row) for row in records(table)],
                "range": [len(table) - 0.5, -0.9],
                "anchor": f"x{axis}",
            },
        }
        notes.append(
            {
                "text": f"<b>{escape(title)}</b>",
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
        top = bottom - gap
    layout |= {"shapes": shapes, "annotations": notes, "legend": LEGEND_BELOW}
    figure = composed(data, _finding(panels), layout, above=18, below=112)
    figure.layout.height = figure.layout.margin.t + 112 + inside
    return figure


def _name(row: Mapping[str, object]) -> str:
    assumed = "no assumption" if row["assumes"] == "nothing" else row["assumes"]
    said = f"{row['holds']} ({assumed})"
    lines, names = textwrap.wrap(str(said), _WIDTH), textwrap.wrap(str(row["bound"]), _WIDTH)
    room = max(1, 3 - len(names))  # lines that a row has left
    below = "<br>".join(escape(line) for line in lines[:room]) + ("…" if len(lines) > room else "")
    bound = "<br>".join(escape(line) for line in names)
    return f"{bound}<br><span style='font-size:10px'>{below}</span>"


def _tooltip(row: Mapping[str, object]) -> str:
    low, high = number(row["low"]), number(row["high"])
    n = f"{counted(int(str(row['n'])), str(row['unit'])[:-1])}, " if "n" in row else ""
    return (
        f"<b>{escape(row['bound'])}</b> ({escape(row.get('formula', ''))}): {low} to {high}<br>"
        f"{escape(row['holds'])}; assumes {escape(row['assumes'])}<br>{n}{counts(dict(row))}"
    )


def _finding(panels: Mapping[str, pd.DataFrame]) -> str:
    said = []
    for title, table in panels.items():
        measured = table[table["side"] == "measured"]["value"]
        sure = (table["side"] == "at most") & (table["holds"] == "theorem")
        above = table[sure].sort_values("value")
        if above.empty:
            continue
        nearest = records(above)[0]
        bound = f"at most {number(float(nearest['value']))} ({nearest['bound']})"
        reached = f"measured {number(float(measured.iloc[0]))}, " if len(measured) else ""
        said.append(f"{title}: {reached}{bound}")
    return "; ".join(said) or "Floors and ceilings"
