"""What a mix of kinds of text gets: speed and waiting, held against what is promised."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import (
    INK,
    LEGEND_BELOW,
    bars,
    colours,
    composed,
    counts,
    need,
    records,
    symbols,
)
from specviz.markup import escape, number

_MIX = "mix"
_LINES = {"dot": "plain decoding", "dash": "promised (SLA)"}
_VERDICTS = {
    "meets": "meets the SLA",
    "misses": "misses the SLA",
    "not sure": "may miss the SLA (the interval is on both sides)",
    "not enough said": "cannot be judged by the SLA",
}


def plot_capacity(
    table: pd.DataFrame,
    plain: float,
    *,
    speed: float | None = None,
    wait: float | None = None,
    cost: str = "",
) -> go.Figure:
    """A row per kind of text, the mix last: tokens per second, and milliseconds per token.

    Parameters
    ----------
    table
        As `Capacity.table`.
    plain
        Seconds of a plain step: what is reached without drafting.
    speed
        Promised tokens per second; None promises none.
    wait
        Promised seconds per token, for 95 % of tokens.
    cost
        Name of the cost model.

    Returns
    -------
    plotly.graph_objects.Figure
        Dashed lines are the promises, dotted ones plain decoding.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.
    """
    columns = ("content_type", "share", "tokens_per_second", "latency_p95", "speedup")
    need(table, columns, "specviz.capacity")
    kinds = [str(kind) for kind in table["content_type"]]
    tint, mark = colours([k for k in kinds if k != _MIX]), symbols(kinds)
    data: list[dict[str, Any]] = []
    for place, row in enumerate(records(table)):
        kind = str(row["content_type"])
        colour = INK if kind == _MIX else tint[kind]
        for value, scale, axis in (("tokens_per_second", 1, "x"), ("latency_p95", 1000, "x2")):
            at, low, high = (scale * float(row[value + end]) for end in ("", "_low", "_high"))
            data.append(
                {
                    "type": "scatter",
                    "x": [at],
                    "y": [place],
                    "mode": "markers",
                    "marker": {
                        "symbol": "star" if kind == _MIX else mark[kind],
                        "size": 16 if kind == _MIX else 10,
                        "color": colour,
                    },
                    "error_x": bars([at], [low], [high], colour),
                    "showlegend": False,
                    "customdata": [
                        f"{escape(kind)}: {number(low)} to {number(high)}<br>{counts(row)}"
                    ],
                    "hovertemplate": "%{x:.3g}<br>%{customdata}<extra></extra>",
                    "xaxis": axis,
                }
            )
    lines = [("x", 1 / plain, "dot"), ("x2", 1000 * plain, "dot")]
    lines += [("x", speed, "dash")] if speed else []
    lines += [("x2", 1000 * wait, "dash")] if wait else []
    first = {dash: i for i, (_, _, dash) in reversed([*enumerate(lines)])}  # named once
    layout: dict[str, Any] = {
        "xaxis": {
            "domain": [0, 0.47],
            "title": "modelled tokens per second",
            "rangemode": "tozero",
        },
        "xaxis2": {
            "domain": [0.53, 1],
            "title": "ms per token that 95 % of tokens keep to",
            "rangemode": "tozero",
            "anchor": "y",
        },
        "yaxis": {
            "tickvals": list(range(len(kinds))),
            "ticktext": [
                f"{escape(kind)}, {100 * share:.0f} %" if kind != _MIX else "<b>the mix</b>"
                for kind, share in zip(kinds, table["share"], strict=True)
            ],
            "range": [len(kinds) - 0.4, -0.6],
        },
        "shapes": [
            {
                "type": "line",
                "xref": axis,
                "yref": "paper",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "line": {"color": INK, "width": 1.6, "dash": dash},
                "name": _LINES[dash],
                "showlegend": first[dash] == i,
            }
            for i, (axis, at, dash) in enumerate(lines)
        ],
        "showlegend": True,
    }
    height = max(310, 200 + 34 * len(kinds))
    layout |= {"legend": LEGEND_BELOW, "height": height}
    return composed(data, _finding(records(table)[-1], cost), layout, below=78)


def _finding(mix: dict[str, object], cost: str) -> str:
    speed = number(float(str(mix["tokens_per_second"])))
    gain = number(float(str(mix["speedup"])))
    said = f"The mix gets {speed} tokens/s, {gain}x plain decoding"
    verdict = _VERDICTS.get(str(mix.get("sla", "")), "")
    return f"{said}{f', {cost}' if cost else ''}{f': {verdict}' if verdict else ''}"
