"""How far drafts survive, and where they break."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from specviz.figures.theme import FEW, SHARES, band, colours, need, panelled, records, symbols
from specviz.markup import counted, escape

_MOST_BANDS = 5


def plot_survival(
    table: pd.DataFrame, *, by: str = "content_type", k: int | None = None, drafter: str = ""
) -> go.Figure:
    """Survival P(accepted >= j) and, beside it, the conditional acceptance at depth j.

    The two answer different questions: survival says what a longer draft would still bring,
    the conditional one whether deeper tokens are harder. It may *rise* with depth, because
    only drafts in easy text get that far.

    Parameters
    ----------
    table
        One row per group and depth j = 1..k: `by`, `depth`, `survival`, `hazard_accept`
        (P(j accepted, given j - 1 accepted and j drafted)), and optionally `low`, `high`
        (the interval of `survival`) and `at_risk` (rounds that reached depth j; where they are
        fewer than 20 the marker is hollow).
    by
        The grouping column.
    k, drafter
        Of the rounds; named in the title when given.

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
    >>> table = pd.DataFrame({"content_type": "code", "depth": [1, 2], "survival": [0.9, 0.72],
    ...     "hazard_accept": [0.9, 0.8]})
    >>> plot_survival(table).layout.title.text
    'The first drafted token survives 90 % of the time on code'
    """
    need(table, (by, "depth", "survival", "hazard_accept"), "specviz.analysis.survival.lengths")
    groups = list(dict.fromkeys(table[by].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    figure = make_subplots(
        cols=2,
        horizontal_spacing=0.09,
        subplot_titles=("survival: P(accepted ≥ j)", "given j − 1 accepted and j drafted"),
    )
    for group in groups:
        part = table[table[by].astype(str) == group].sort_values("depth")
        if {"low", "high"} <= set(part.columns) and len(groups) <= _MOST_BANDS:
            figure.add_trace(band(part, "depth", tint[group]), row=1, col=1)
        rest, shapes = [""] * len(part), [mark[group]] * len(part)
        if "at_risk" in part.columns:
            rest = [f"<br>{counted(n, 'round')} reached it" for n in part["at_risk"]]
            shapes = [mark[group] + ("-open" if n < FEW else "") for n in part["at_risk"]]
        for column, measure in ((1, "survival"), (2, "hazard_accept")):
            figure.add_scatter(
                x=part["depth"],
                y=part[measure],
                mode="lines+markers",
                line={"color": tint[group], "width": 2.2},
                marker={"symbol": shapes, "size": 7},
                name=escape(group),
                legendgroup=escape(group),
                showlegend=column == 1,
                customdata=rest,
                hovertemplate="depth %{x}: %{y:.1%}%{customdata}",
                row=1,
                col=column,
            )
    figure.update_xaxes(
        title_text="depth j in the draft (tokens)", dtick=1 if table["depth"].max() <= 20 else 5
    )
    figure.update_yaxes(SHARES)
    figure.update_yaxes(title_text="share of rounds", row=1, col=1)
    return panelled(figure, _finding(table, by, k, drafter))


def _finding(table: pd.DataFrame, by: str, k: int | None, drafter: str) -> str:
    first = table[table["depth"] == table["depth"].min()].sort_values("survival", ascending=False)
    said = [f"{100 * row['survival']:.0f} % of the time on {row[by]}" for row in records(first)]
    said = said if len(said) < 3 else [said[0], said[-1]]
    run = ", ".join([*([drafter] if drafter else []), *([f"k = {k}"] if k else [])])
    lead = f"{run}: the" if run else "The"
    return f"{lead} first drafted token survives {', '.join(said)}"
