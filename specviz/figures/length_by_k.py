"""Tokens per round against the draft length k."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import INK, band, colours, counts, need, records, symbols, titled
from specviz.markup import escape, number

_MOST_BANDS = 5  # more would cover each other; the tooltips keep the intervals


def plot_length_by_k(
    lengths: pd.DataFrame, *, by: str = "content_type", at: int = 7, drafter: str = ""
) -> go.Figure:
    """Tokens per round, bonus counted, for every fixed k, under the ceiling k + 1.

    Parameters
    ----------
    lengths
        As `specviz.analysis.length_by_k` gives: `by`, `k`, `tokens_per_round`,
        `low`, `high`, `n_rounds`, `n_prompts`. The picture stops at its largest k.
    by
        The grouping column.
    at
        The k that the title speaks of (the largest one there when it lies beyond).
    drafter
        Named in the title when given.

    Returns
    -------
    plotly.graph_objects.Figure
        One line per group, its interval as a band (up to five groups), and the ceiling.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"content_type": "code", "k": [0, 7], "tokens_per_round": [1, 4.2],
    ...     "low": [1, 4.0], "high": [1, 4.4], "n_rounds": [9, 3], "n_prompts": [2, 2]})
    >>> plot_length_by_k(frame).layout.title.text
    'At k = 7: code 4.20 tokens per round'
    """
    columns = (by, "k", "tokens_per_round", "low", "high")
    need(lengths, columns, "specviz.analysis.length_by_k")
    groups = list(dict.fromkeys(lengths[by].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    figure = go.Figure()
    ks = sorted(lengths["k"].unique())
    figure.add_scatter(
        x=ks,
        y=[k + 1 for k in ks],
        mode="lines",
        line={"color": INK, "width": 1, "dash": "dash"},
        name="ceiling k + 1",
        hovertemplate="no round emits more than k + 1 = %{y}<extra></extra>",
    )
    for group in groups:
        part = lengths[lengths[by].astype(str) == group].sort_values("k")
        if len(groups) <= _MOST_BANDS:
            figure.add_trace(band(part, "k", tint[group]))
        figure.add_scatter(
            x=part["k"],
            y=part["tokens_per_round"],
            mode="lines+markers",
            line={"color": tint[group], "width": 2.2},
            marker={"symbol": mark[group], "size": 7},
            name=escape(group),
            customdata=[
                f"{number(row['low'])} to {number(row['high'])}; {counts(row)}"
                for row in records(part)
            ],
            hovertemplate="k = %{x}: %{y:.3g} tokens per round<br>%{customdata}",
        )
    # The ceiling soon leaves the picture: what matters is below it.
    top = 1.12 * float(lengths[["tokens_per_round", "high"]].max().max())
    figure.update_layout(
        xaxis={"title": "k (tokens drafted per round)", "dtick": 1 if max(ks) <= 20 else 5},
        yaxis={
            "title": "tokens per round (bonus counted)",
            "range": [0.8, min(max(top, 2.2), max(ks) + 1.2)],
        },
    )
    return titled(figure, _finding(lengths, by, at, drafter))


def _finding(lengths: pd.DataFrame, by: str, at: int, drafter: str) -> str:
    k = at if (lengths["k"] == at).any() else int(lengths["k"].max())
    there = lengths[lengths["k"] == k].sort_values("tokens_per_round", ascending=False)
    said = [f"{row[by]} {number(row['tokens_per_round'])}" for row in records(there)]
    if len(said) > 4:
        said = [said[0], said[-1]]
    said[0] += " tokens per round"
    return f"At k = {k}{f', {drafter}' if drafter else ''}: {', '.join(said)}"
