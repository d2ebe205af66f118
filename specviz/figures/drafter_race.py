"""Drafter families beside one another: tokens per round by kind of text, and survival."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.kinds import text_of
from specviz.figures.theme import (
    FEW,
    LEGEND_BELOW,
    SHARES,
    band,
    bars,
    colours,
    composed,
    counts,
    need,
    records,
    symbols,
)
from specviz.markup import counted, escape, number

_MOST_BANDS = 6


def plot_drafter_race(
    lengths: pd.DataFrame, survival: pd.DataFrame, *, kind: str = "all", k: int | None = None
) -> go.Figure:
    """A row per drafter, the furthest on top, and how far its drafts survive.

    Parameters
    ----------
    lengths
        drafter, content_type, tokens_per_round, low, high, n_rounds, n_prompts.
    survival
        drafter and the columns of `specviz.analysis.survival_by`, of the one kind.
    kind
        The kind of text that is held out; the others are small and grey.
    k
        Tokens drafted in a round; None where rounds are as they ran.

    Returns
    -------
    plotly.graph_objects.Figure
        A drafter has one colour in both panels.

    Raises
    ------
    ValueError
        When a column is missing or the kind has no row.
    """
    maker = "specviz.analysis.replay and survival_by"
    need(lengths, ("drafter", "content_type", "tokens_per_round", "low", "high"), maker)
    need(survival, ("drafter", "depth", "survival"), maker)
    mine = lengths[lengths["content_type"] == kind]
    need(mine, ("drafter",), f"rounds of {kind!r} text")
    mine = mine.sort_values("tokens_per_round", ascending=False, kind="stable")
    drafters = [str(name) for name in mine["drafter"]]
    tint, mark = colours(drafters), symbols(drafters)
    rest = lengths[(lengths["content_type"] != kind) & (lengths["content_type"] != "all")]
    rest = rest[rest["drafter"].isin(drafters)]
    data: list[dict[str, Any]] = []
    data.append(
        {
            "type": "scatter",
            "x": rest["tokens_per_round"].tolist(),
            "y": [drafters.index(str(name)) for name in rest["drafter"]],
            "mode": "markers",
            "marker": {"symbol": "line-ns-open", "size": 12, "color": "rgba(128,128,128,0.8)"},
            "name": "grey ticks: "
            + ("each kind of text" if kind == "all" else "other kinds of text"),
            "showlegend": len(rest) > 0,
            "customdata": [
                f"{escape(row['content_type'])}<br>{counts(row)}" for row in records(rest)
            ],
            "hovertemplate": "%{x:.3g} tokens per round, %{customdata}<extra></extra>",
        }
    )
    for place, row in enumerate(records(mine)):
        name = str(row["drafter"])
        at, low, high = (float(row[end]) for end in ("tokens_per_round", "low", "high"))
        data.append(
            {
                "type": "scatter",
                "x": [at],
                "y": [place],
                "mode": "markers",
                "marker": {"symbol": mark[name], "size": 11, "color": tint[name]},
                "error_x": bars([at], [low], [high], tint[name]),
                "name": escape(name),
                "legendgroup": escape(name),
                "showlegend": False,
                "customdata": [f"{number(row['low'])} to {number(row['high'])}; {counts(row)}"],
                "hovertemplate": "%{x:.3g} tokens per round<br>%{customdata}",
            }
        )
        part = survival[survival["drafter"].astype(str) == name].sort_values("depth")
        if {"low", "high"} <= set(part) and len(drafters) <= _MOST_BANDS:
            data.append(band(part, "depth", tint[name]) | {"xaxis": "x2", "yaxis": "y2"})
        risk = part["at_risk"] if "at_risk" in part else pd.Series(FEW, part.index)
        data.append(
            {
                "type": "scatter",
                "x": part["depth"].tolist(),
                "y": part["survival"].tolist(),
                "mode": "lines+markers",
                "line": {"color": tint[name], "width": 2.2},
                "marker": {"symbol": [mark[name] + "-open" * (n < FEW) for n in risk], "size": 7},
                "name": escape(name),
                "legendgroup": escape(name),
                "customdata": [
                    f"{100 * share:.1f} %<br>{counted(n, 'round')} reached it"
                    for share, n in zip(part["survival"], risk, strict=True)
                ],
                "hovertemplate": "depth %{x}: %{customdata}",
                "xaxis": "x2",
                "yaxis": "y2",
            }
        )
    layout: dict[str, Any] = {
        "xaxis": {"domain": [0, 0.45], "title": "tokens per round (bonus counted)"},
        "xaxis2": {
            "domain": [0.56, 1],
            "title": "depth j in the draft",
            "dtick": 1,
            "anchor": "y2",
        },
        "yaxis": {
            "tickvals": list(range(len(drafters))),
            "ticktext": [escape(name) for name in drafters],
            "range": [len(drafters) - 0.4, -0.6],
        },
        "yaxis2": {
            "title": "survival: P(accepted ≥ j)",
            **SHARES,
            "anchor": "x2",
        },
    }
    height = max(430, 190 + 30 * len(drafters))
    layout |= {"legend": LEGEND_BELOW, "height": height}
    return composed(data, _finding(mine, kind, k), layout, below=92)


def _finding(mine: pd.DataFrame, kind: str, k: int | None) -> str:
    rows = records(mine)
    how = "as they ran" if k is None else f"k = {k}"
    first = f"{rows[0]['drafter']} {number(float(rows[0]['tokens_per_round']))}"
    if len(rows) == 1:
        return f"{text_of(kind)}, {how}: {first} tokens per round"
    last = f"{rows[-1]['drafter']} {number(float(rows[-1]['tokens_per_round']))}"
    return f"{text_of(kind)}, {how}: {first} tokens per round, {last} at the other end"
