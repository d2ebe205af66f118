"""Claims as points: speed-up against tokens per round, and the line that none may cross."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import GRID, INK, LEGEND_BELOW, colours, need, records, symbols, titled
from specviz.markup import counted, escape, number


def plot_claims(audited: pd.DataFrame) -> go.Figure:
    """Speed-up over tokens per round (bonus counted), one point per claim that has both.

    On the line a round costs one plain step; above it, less, which no drafter can do (F2.5). The
    further below, the dearer the rounds.

    Parameters
    ----------
    audited
        As `specviz.audit_claims` gives.

    Returns
    -------
    plotly.graph_objects.Figure
        A colour and a marker per source; the tooltip has the claim and the ratio.

    Raises
    ------
    ValueError
        When a column is missing, or no claim has both numbers.

    Examples
    --------
    >>> from specviz.analysis.audits.claims import audit_claims
    >>> plot_claims(audit_claims()).layout.xaxis.title.text
    'tokens per round (bonus counted)'
    """
    maker = "specviz.audit_claims"
    columns = ("id", "source", "setting", "verdict", "tokens_per_round", "speedup", "step_ratio")
    both = need(audited, columns, maker).dropna(subset=["tokens_per_round", "speedup"])
    need(both, columns, f"{maker} from claims with tokens per round and a speed-up")
    longest = 1.08 * float(both[["tokens_per_round", "speedup"]].to_numpy().max())
    figure = go.Figure()
    figure.add_scatter(
        x=[1, longest],
        y=[1, longest],
        mode="lines",
        line={"color": INK, "width": 1.2, "dash": "dash"},
        name="a round costs one plain step",
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[1, longest, 1],
        y=[1, longest, longest],
        fill="toself",
        fillcolor=GRID,
        line={"width": 0},
        mode="lines",
        name="faster than its tokens allow",
        hoverinfo="skip",
    )
    sources = list(dict.fromkeys(both["source"].astype(str)))
    tint, mark = colours(sources), symbols(sources)
    for source in sources:
        part = both[both["source"].astype(str) == source]
        figure.add_scatter(
            x=part["tokens_per_round"],
            y=part["speedup"],
            mode="markers",
            marker={"color": tint[source], "symbol": mark[source], "size": 9},
            name=escape(source),
            customdata=[
                f"{escape(row['id'])} ({escape(row['setting'])}): {escape(row['verdict'])}, "
                f"a round is {number(row['step_ratio'])} plain steps"
                for row in records(part)
            ],
            hovertemplate="%{x:.3g} tokens per round, %{y:.3g} times as fast<br>%{customdata}",
        )
    figure.update_layout(
        xaxis={"title": "tokens per round (bonus counted)", "range": [1, longest]},
        yaxis={"title": "speed-up over plain decoding", "range": [0.8, longest]},
    )
    figure = titled(figure, _finding(both))
    figure.update_layout(legend=LEGEND_BELOW, height=520, margin_b=132)
    return figure


def _finding(both: pd.DataFrame) -> str:
    over = both[both["verdict"] == "inconsistent"]
    names = f": {', '.join(over['id'].astype(str))}" if 0 < len(over) < 4 else ""
    are = "is" if len(over) == 1 else "are"
    return (
        f"{len(over)} of {counted(len(both), 'claim')} {are} faster than the tokens of a round "
        f"allow{names}"
    )
