"""The chance that the next drafted token is accepted, against what was known of its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.figures.theme import FEW, SHARES, band, colours, need, panelled, records, symbols
from specviz.markup import counted, escape, number

_MOST_BANDS = 5
_COLUMNS = 2
_EBF_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200)
#: Covariates of `hazard_table`, and what stands below their axis.
_AXES = {
    "entropy": "EBF of the target there: exp(H), log scale",
    "ln_ebf_inf": "EBF∞ of the target there: 1 / p_max, log scale",
    "margin": "top-2 margin of the target there (nats)",
    "depth": "depth in the draft (tokens)",
    "draft_confidence": "the drafter's own score of its token (0 to 1)",
    "draft_entropy": "entropy of the drafter there (nats)",
}
#: Drawn in nats, read as the branching factors whose logarithm they are.
_LOGS = ("entropy", "ln_ebf_inf")


def plot_hazard_curve(
    curves: pd.DataFrame,
    *,
    by: str = "content_type",
    covariate: str = "entropy",
    drafter: str = "",
    y_title: str = "drafted tokens accepted,<br>given those before them",
) -> go.Figure:
    """Share accepted in bins of a covariate, a line per group and a panel per covariate.

    Entropy and -ln p_max are drawn in nats but labelled with the branching factors they are the
    logarithm of. Points of fewer than 20 tokens are hollow.

    Parameters
    ----------
    curves
        As `specviz.hazard_curve` gives: `by`, `x_mean`, `accepted`, `low`, `high` (pointwise,
        prompts resampled), `n_tokens`, `n_prompts`. For several covariates put one table below
        the other, each with a column `covariate` that names its own.
    by
        The grouping column.
    covariate
        What x is, where no column says so.
    drafter
        Named in the title when given.
    y_title
        What is averaged, if not the fate of drafted tokens.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> curves = pd.DataFrame({"content_type": "code", "x_mean": [0.0, 2.3], "accepted": [0.8, 0.3],
    ...     "low": [0.7, 0.2], "high": [0.9, 0.4], "n_tokens": 50, "n_prompts": 9})
    >>> plot_hazard_curve(curves).layout.title.text
    'Accepted from the lowest to the highest EBF: code 80 % to 30 %'
    """
    columns = (by, "x_mean", "accepted", "low", "high", "n_tokens", "n_prompts")
    need(curves, columns, "specviz.hazard_curve with by")
    if "covariate" not in curves.columns:
        curves = curves.assign(covariate=covariate)
    names = list(dict.fromkeys(curves["covariate"].astype(str)))
    groups = list(dict.fromkeys(curves[by].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    wide = min(len(names), _COLUMNS)
    rows = -(-len(names) // wide)
    figure = make_subplots(
        rows=rows, cols=wide, shared_yaxes=True, horizontal_spacing=0.05, vertical_spacing=0.2
    )
    for i, name in enumerate(names):
        where = {"row": i // wide + 1, "col": i % wide + 1}
        mine = curves[curves["covariate"].astype(str) == name]
        for group in groups:
            part = mine[mine[by].astype(str) == group].sort_values("x_mean")
            if len(groups) <= _MOST_BANDS:
                figure.add_trace(band(part, "x_mean", tint[group]), **where)
            figure.add_scatter(
                x=part["x_mean"],
                y=part["accepted"],
                mode="lines+markers",
                line={"color": tint[group], "width": 2.2},
                marker={
                    "symbol": [mark[group] + "-open" * (n < FEW) for n in part["n_tokens"]],
                    "size": 7,
                },
                name=escape(group),
                legendgroup=escape(group),
                showlegend=i == 0,
                customdata=[_tooltip(row, name) for row in records(part)],
                hovertemplate="%{customdata}",
                **where,
            )
        figure.update_xaxes(title_text=escape(_AXES.get(name, name)), **where)
        if name in _LOGS:
            figure.update_xaxes(**_ebf_axis(float(mine["x_mean"].max())), **where)
    figure.update_yaxes(SHARES)
    for row in range(1, rows + 1):
        figure.update_yaxes(title_text=_lines(y_title), row=row, col=1)
    panelled(figure, _finding(curves, names[0], by, drafter), above=0)
    return figure.update_layout(height=figure.layout.height + 260 * (rows - 1))


def _lines(text: str) -> str:
    """Escaped, but for line breaks."""
    return "<br>".join(escape(line) for line in text.split("<br>"))


def _ebf_axis(most: float) -> dict[str, Any]:
    ticks = [tick for tick in _EBF_TICKS if math.log(tick) <= most + 0.3]
    kept = [ticks[0]]
    for tick in ticks[1:]:  # labels closer than a tenth of the axis would touch
        if math.log(tick / kept[-1]) >= 0.1 * most:
            kept.append(tick)
    return {"tickvals": [math.log(t) for t in kept], "ticktext": [f"{t:g}" for t in kept]}


def _tooltip(row: Mapping[str, Any], name: str) -> str:
    at = f"{name} {number(row['x_mean'])}"
    if name in _LOGS:
        at = f"{_short(name)} {number(math.exp(row['x_mean']))}"
    return (
        f"{escape(at)}: {row['accepted']:.1%}<br>{number(row['low'])} to {number(row['high'])}; "
        f"{counted(row['n_tokens'], 'token')}, {counted(row['n_prompts'], 'prompt')}"
    )


def _short(name: str) -> str:
    return {"entropy": "EBF", "ln_ebf_inf": "EBF∞"}.get(name, name.replace("_", " "))


def _finding(curves: pd.DataFrame, name: str, by: str, drafter: str) -> str:
    mine = curves[curves["covariate"].astype(str) == name]
    said = []
    for group in dict.fromkeys(mine[by].astype(str)):
        part = mine[mine[by].astype(str) == group].sort_values("x_mean")
        first, last = (float(part["accepted"].iloc[i]) for i in (0, -1))
        said.append(f"{group} {100 * first:.0f} % to {100 * last:.0f} %")
    if len(said) > 4:
        said = [*said[:3], f"{len(said) - 3} others"]
    lead = f"{drafter}: accepted" if drafter else "Accepted"
    return f"{lead} from the lowest to the highest {_short(name)}: {', '.join(said)}"
