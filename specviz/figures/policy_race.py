"""Policies on the same text: speed, and how much longer than the best possible rounds."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.kinds import text_of
from specviz.figures.theme import INK, bars, composed, counts, need, records
from specviz.markup import escape, number

_MARK = "#0072B2"


def plot_policy_race(
    table: pd.DataFrame, *, kind: str = "all", unit: str = "tokens per second"
) -> go.Figure:
    """A row per policy, the fastest on top: modelled speed, and extra time over the oracle.

    Parameters
    ----------
    table
        As `specviz.analysis.levers.race.Race.table` gives; the oracle is its first row.
    kind
        Whose text it is.
    unit
        Of `tokens_per_second` ("tokens per plain step" where the cost counts time so).

    Returns
    -------
    plotly.graph_objects.Figure
        Two panels with one list of policies; the oracle is hollow, as no policy can know it.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.
    """
    columns = ("policy", "tokens_per_second", "regret", "regret_low", "regret_high", "cost")
    need(table, columns, "specviz.analysis.levers.race.Race.table")
    ranked = table.sort_values("tokens_per_second", ascending=False, kind="stable")
    place = list(range(len(ranked)))
    hollow = ["diamond-open" if name == "oracle" else "circle" for name in ranked["policy"]]
    said = [
        f"<b>{escape(row['policy'])}</b><br>{number(float(row['tokens_per_round']))} tokens per "
        f"round (bonus counted)<br>{counts(row)}"
        for row in records(ranked)
    ]
    data: list[dict[str, Any]] = []
    for value, low, high, axis, form in (
        ("tokens_per_second", "tokens_per_second_low", "tokens_per_second_high", "x", ".3g"),
        ("regret", "regret_low", "regret_high", "x2", ".1f"),
    ):
        part = ranked[[value, low, high]] * (100 if value == "regret" else 1)  # in per cent
        end = " %" if value == "regret" else ""
        data.append(
            {
                "type": "scatter",
                "x": part[value].tolist(),
                "y": place,
                "mode": "markers",
                "marker": {"symbol": hollow, "size": 10, "color": _MARK, "line": {"width": 2}},
                "error_x": bars(part[value], part[low], part[high], _MARK),
                "customdata": said,
                "hovertemplate": f"%{{x:{form}}}{end}<br>%{{customdata}}<extra></extra>",
                "showlegend": False,
                "xaxis": axis,
                "yaxis": "y",
            }
        )
    layout: dict[str, Any] = {
        "xaxis": {"domain": [0, 0.48], "title": f"modelled {unit}", "rangemode": "tozero"},
        "xaxis2": {
            "domain": [0.53, 1],
            "title": "more time than the oracle (regret)",
            "ticksuffix": " %",
            "anchor": "y",
        },
        "yaxis": {
            "tickvals": place,
            "ticktext": [escape(name) for name in ranked["policy"]],
            "range": [len(ranked) - 0.4, -0.6],
        },
        "shapes": [
            {
                "type": "line",
                "xref": "x2",
                "yref": "paper",
                "x0": 0,
                "x1": 0,
                "y0": 0,
                "y1": 1,
                "line": {"color": INK, "width": 1.2, "dash": "dash"},
            }
        ],
    }
    layout["height"] = max(300, 170 + 30 * len(ranked))
    return composed(data, _finding(ranked, kind), layout)


def _finding(ranked: pd.DataFrame, kind: str) -> str:
    named = ranked[ranked["policy"] != "oracle"]
    best = records(named)[0]
    return (
        f"{text_of(kind)}, {best['cost']}: {best['policy']} is the fastest, and takes "
        f"{number(100 * float(best['regret']), 2)} % longer than the oracle"
    )
