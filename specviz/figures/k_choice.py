"""What one k gives and costs: tokens per round over the break-even line, and the speed-up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.kinds import text_of, whose_text
from specviz.figures.theme import (
    GRID,
    INK,
    LEGEND_BELOW,
    band,
    colours,
    composed,
    counts,
    need,
    records,
    symbols,
)
from specviz.markup import escape, number

HELD = 14  # size of the chosen k's markers
_COLUMNS = ("k", "tokens_per_round", "tokens_low", "tokens_high", "speedup", "low", "high")


def plot_k_choice(
    curve: pd.DataFrame,
    best: Mapping[str, Any],
    at: int,
    others: pd.DataFrame | None = None,
    *,
    kind: str = "all",
    drafter: str = "",
) -> go.Figure:
    """Tokens per round and modelled speed-up against k, with one k held out.

    Drafting pays where the tokens of a round lie above the break-even line beside them: what a
    round takes, in plain steps.

    Parameters
    ----------
    curve
        `Chances.curve` of `specviz.analysis.replays.prepared`, of one kind of text.
    best
        `Chances.best`: the best k, its speed-up and its interval.
    at
        The k that is held out.
    others
        `PreparedK.points`: thin lines of the other kinds; left out, none.
    kind, drafter
        Whose rounds these are.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        When a column is missing or k = `at` has no row.
    """
    maker = "specviz.analysis.replays.prepared.PreparedK"
    need(curve, (*_COLUMNS, "step_ratio", "cost"), maker)
    here = curve[curve["k"] == at]
    if here.empty:
        raise ValueError(f"The curve has no k = {at}: it ends at {int(curve['k'].max())}.")
    tint, mark = colours([kind])[kind], symbols([kind])[kind]
    cost = str(curve["cost"].iloc[0])
    data: list[Any] = []
    if others is not None and len(others):
        data += [_thin(others, "tokens_per_round", ""), _thin(others, "speedup", "2")]
    data.append(
        {
            "type": "scatter",
            "x": curve["k"],
            "y": curve["k"] + 1,
            "mode": "lines",
            "line": {"color": INK, "width": 1, "dash": "dash"},
            "name": "ceiling k + 1",
            "hoverinfo": "skip",
        }
    )
    data.append(
        {
            "type": "scatter",
            "x": curve["k"],
            "y": curve["step_ratio"],
            "mode": "lines",
            "line": {"color": INK, "width": 1.6, "dash": "dot"},
            "name": "break-even: plain steps a round takes",
            "hovertemplate": "k = %{x}: pays above %{y:.3g} tokens per round<extra></extra>",
        }
    )
    for value, low, high, axis, unit in (
        ("tokens_per_round", "tokens_low", "tokens_high", "", " tokens per round"),
        ("speedup", "low", "high", "2", "x"),
    ):
        where = {"xaxis": f"x{axis}", "yaxis": f"y{axis}"}
        part = curve[["k", low, high]].set_axis(["k", "low", "high"], axis=1)
        data.append(band(part, "k", tint) | where)
        data.append(
            {
                "type": "scatter",
                "x": curve["k"],
                "y": curve[value],
                "mode": "lines+markers",
                "line": {"color": tint, "width": 2.2},
                "marker": {
                    "symbol": mark,
                    "size": [HELD if k == at else 6 for k in curve["k"]],
                    "line": {"color": INK, "width": [2 if k == at else 0 for k in curve["k"]]},
                },
                "name": escape(text_of(kind)),
                "showlegend": not axis,
                "customdata": [
                    f"{number(row[low])} to {number(row[high])}; {counts(row)}"
                    for row in records(curve)
                ],
                "hovertemplate": f"k = %{{x}}: %{{y:.3g}}{unit}<br>%{{customdata}}",
                **where,
            }
        )
    data.append(
        {
            "type": "scatter",
            "x": [best["k"]],
            "y": [best["speedup"]],
            "mode": "markers",
            "marker": {
                "symbol": "star",
                "size": 15 if best["k"] != at else 22,  # larger than the marker it stands on
                "color": "#E69F00",
                "line": {"color": INK, "width": 1},
            },
            "name": "best k",
            "hovertemplate": "best k = %{x}: %{y:.3g}x<extra></extra>",
            "xaxis": "x2",
            "yaxis": "y2",
        }
    )
    top = 1.1 * float(curve[["tokens_per_round", "tokens_high", "step_ratio"]].max().max())
    longest = int(curve["k"].max())
    ticks = 1 if longest <= 20 else 5
    title = {"text": "k (tokens drafted per round)"}
    layout: dict[str, Any] = {
        "xaxis": {"domain": [0, 0.47], "title": title, "dtick": ticks},
        "xaxis2": {"domain": [0.55, 1], "title": title, "dtick": ticks, "anchor": "y2"},
        "yaxis": {
            "title": {"text": "tokens per round (bonus counted)"},
            "range": [0.8, min(max(top, 2.2), longest + 1.2)],
        },
        "yaxis2": {
            "title": {"text": "modelled speed-up over plain decoding (x)"},
            "anchor": "x2",
        },
        "shapes": [
            _line("y2 domain", at, "x2"),
            _line("y domain", at, "x"),
            {
                "type": "line",
                "xref": "x2 domain",
                "x0": 0,
                "x1": 1,
                "yref": "y2",
                "y0": 1,
                "y1": 1,
                "line": {"color": INK, "width": 1.2, "dash": "dash"},
            },
        ],
    }
    layout |= {"legend": LEGEND_BELOW, "height": 440}
    return composed(data, _finding(best, kind, drafter, cost), layout, below=92)


def _thin(others: pd.DataFrame, value: str, axis: str) -> dict[str, Any]:
    """The lines of all other kinds in one trace, apart by gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    names: list[str] = []
    for kind, part in others.groupby("content_type", sort=False):
        x += [*part["k"], None]
        y += [*part[value], None]
        names += [escape(kind)] * (len(part) + 1)
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "line": {"color": "rgba(128,128,128,0.55)", "width": 1.2},
        "name": "other kinds of text",
        "customdata": names,
        "hovertemplate": "%{customdata}, k = %{x}: %{y:.3g}<extra></extra>",
        "showlegend": not axis,
        "xaxis": f"x{axis}",
        "yaxis": f"y{axis}",
    }


def _line(yref: str, k: int, axis: str) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": axis,
        "x0": k,
        "x1": k,
        "yref": yref,
        "y0": 0,
        "y1": 1,
        "line": {"color": GRID, "width": 7},
        "layer": "below",
    }


def _finding(best: Mapping[str, Any], kind: str, drafter: str, cost: str) -> str:
    whose = whose_text(drafter, kind)
    if not best["k"]:
        near = f"k = {best['second_k']} would give {number(float(best['second_speedup']))}x"
        return f"{whose}, {cost}: do not draft ({near})"
    speed = number(float(best["speedup"]))
    return f"{whose}, {cost}: best k is {best['k']}, {speed}x plain decoding"
