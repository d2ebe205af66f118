"""Tokens per round against the number of draft nodes: what a tree's breadth adds to a chain."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import colours, counts, need, records, symbols, titled
from specviz.markup import escape, number

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def plot_length_by_nodes(lengths: pd.DataFrame, *, by: str = "content_type") -> go.Figure:
    """Tokens per round, bonus counted, over verified draft nodes, one line per group and builder.

    Parameters
    ----------
    lengths
        As `specviz.analysis.length_by_nodes` gives, of one drafter.
    by
        The grouping column; its colour and marker stay the same for every builder.

    Returns
    -------
    plotly.graph_objects.Figure
        Nodes on a logarithmic axis; intervals are in the tooltips.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.
    """
    columns = (by, "builder", "nodes", "tokens_per_round", "low", "high")
    need(lengths, columns, "specviz.analysis.length_by_nodes")
    groups = list(dict.fromkeys(lengths[by].astype(str)))
    builders = list(dict.fromkeys(lengths["builder"].astype(str)))
    tint, mark = colours(groups), symbols(groups)
    figure = go.Figure()
    for group in groups:
        for i, builder in enumerate(builders):
            mine = (lengths[by].astype(str) == group) & (lengths["builder"] == builder)
            part = lengths[mine].sort_values("nodes")
            if part.empty:
                continue
            figure.add_scatter(
                x=part["nodes"],
                y=part["tokens_per_round"],
                mode="lines+markers" if len(part) > 1 else "markers",
                line={"color": tint[group], "width": 2.2, "dash": _DASHES[i % len(_DASHES)]},
                marker={"symbol": mark[group], "size": 7},
                name=f"{escape(group)}, {escape(builder)}",
                customdata=[
                    f"{number(row['low'])} to {number(row['high'])}; {counts(row)}"
                    for row in records(part)
                ],
                hovertemplate="%{x} nodes: %{y:.3g} tokens per round<br>%{customdata}",
            )
    sizes = sorted(int(n) for n in lengths["nodes"].unique())
    figure.update_layout(
        xaxis={
            "title": "draft nodes verified in a round, at most (rows verified less 1)",
            "type": "log",
            "tickvals": sizes,
            "ticktext": [str(n) for n in sizes],
        },
        yaxis={"title": "tokens per round (bonus counted)"},
    )
    return titled(figure, _finding(lengths, by, groups))


def _finding(lengths: pd.DataFrame, by: str, groups: list[str]) -> str:
    said = []
    for group in groups:
        part = lengths[lengths[by].astype(str) == group]
        chain = part[part["builder"] == "chain"]["tokens_per_round"]
        trees = part[part["builder"] != "chain"]
        if chain.empty or trees.empty:
            continue
        best = records(trees.sort_values("tokens_per_round"))[-1]
        said.append(
            f"{group} {number(chain.max())} with the best chain, "
            f"{number(best['tokens_per_round'])} with {best['nodes']} nodes"
        )
    return "; ".join(said) or "Tokens per round by draft nodes"
