"""The most that n fixed tokens can bring on a sampled target, as a tree and as a chain."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.panels import groups_in
from specviz.figures.theme import LEGEND_BELOW, band, bars, colours, need, records, symbols, titled
from specviz.markup import counted, escape, number

_DASH = {"tree": "solid", "chain": "dot"}


def plot_tree_ceiling(ceiling: pd.DataFrame, drafters: pd.DataFrame | None = None) -> go.Figure:
    """Ceilings over the number of drafted tokens, one colour per kind of text (T5.3).

    Parameters
    ----------
    ceiling
        As `specviz.tree_ceiling` gives.
    drafters
        Optional, as `specviz.analysis.drafters_at_anchors` gives at the same anchors: points at
        their k.

    Returns
    -------
    plotly.graph_objects.Figure
        Bands are intervals over prompts. A sampled target only: a greedy one has no such ceiling
        and never shares these axes.

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.
    """
    columns = ("content_type", "shape", "n", "tokens_per_round", "low", "high", "at_most")
    need(ceiling, (*columns, "n_anchors", "n_prompts"), "specviz.tree_ceiling")
    kinds = groups_in(ceiling, "content_type")
    tint = colours(kinds)
    figure = go.Figure()
    for kind in kinds:
        for shape, dash in _DASH.items():
            mine = (ceiling["content_type"] == kind) & (ceiling["shape"] == shape)
            part = ceiling[mine].sort_values("n")
            if part.empty:
                continue
            if shape == "tree":
                figure.add_trace(band(part, "n", tint[kind]))
            figure.add_scatter(
                x=part["n"],
                y=part["tokens_per_round"],
                mode="lines+markers",
                line={"color": tint[kind], "width": 2.2, "dash": dash},
                marker={"size": 6, "symbol": "circle" if shape == "tree" else "circle-open"},
                name=f"{escape(kind)}, best {shape}",
                customdata=[_tooltip(row) for row in records(part)],
                hovertemplate="%{x} drafted tokens: %{customdata}",
            )
    if drafters is not None:
        _add_drafters(figure, drafters, kinds)
    sizes = sorted(int(n) for n in ceiling["n"].unique())
    figure.update_layout(
        xaxis={
            "title": "fixed tokens drafted in a round, n",
            "type": "log",
            "tickvals": sizes,
            "ticktext": [str(n) for n in sizes],
        },
        yaxis={"title": "expected tokens per round (bonus counted)"},
    )
    titled(figure, _finding(ceiling, kinds))
    return figure.update_layout(margin_b=110, legend=LEGEND_BELOW, height=480)


def _add_drafters(figure: go.Figure, drafters: pd.DataFrame, kinds: list[str]) -> None:
    columns = ("content_type", "drafter", "tokens", "low", "high", "k", "rule")
    need(drafters, columns, "specviz.analysis.drafters_at_anchors")
    names = list(dict.fromkeys(drafters["drafter"].astype(str)))
    tint, mark = colours(kinds), symbols(names)
    for name in names:
        part = drafters[(drafters["drafter"] == name) & drafters["content_type"].isin(kinds)]
        shades = [tint[kind] for kind in part["content_type"]]
        figure.add_scatter(
            x=part["k"],
            y=part["tokens"],
            mode="markers",
            error_y=bars(part["tokens"], part["low"], part["high"], "rgba(128,128,128,0.5)"),
            marker={"symbol": mark[name], "size": 10, "color": shades},
            name=f"{escape(name)}, {escape(part['rule'].iloc[0])}",
            customdata=part["content_type"].map(escape),
            hovertemplate=f"{escape(name)} on %{{customdata}}: %{{y:.3g}} tokens per round",
        )


def _tooltip(row: dict[str, object]) -> str:
    best = "" if row["shape"] == "tree" else f"; no chain passes {number(row['at_most'])}"
    return (
        f"{number(row['tokens_per_round'])} tokens per round ({number(row['low'])} to "
        f"{number(row['high'])}{best})<br>{counted(int(str(row['n_anchors'])), 'anchor')}, "
        f"{counted(int(str(row['n_prompts'])), 'prompt')}"
    )


def _finding(ceiling: pd.DataFrame, kinds: list[str]) -> str:
    most = int(ceiling["n"].max())
    trees = ceiling[(ceiling["shape"] == "tree") & (ceiling["n"] == most)]
    value = trees.set_index("content_type")["tokens_per_round"]
    said = ", ".join(f"{kind} {number(value[kind])}" for kind in kinds if kind in value)
    return f"Sampled target: {most} fixed tokens bring at most {said} tokens per round"
