"""A tree's worth: tokens per round over its nodes, and one tree, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures.kinds import whose_text
from specviz.figures.theme import (
    GRID,
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
from specviz.figures.tree_layout import edges, heights, labels, root_height, tooltip
from specviz.markup import escape, number

_PATH, _DRAFT = "#009E73", "#0072B2"
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def plot_tree_lab(
    lengths: pd.DataFrame,
    nodes: pd.DataFrame,
    chosen: tuple[str, int],
    *,
    kind: str = "all",
    whose: str = "",
    unit: str = "tokens per round",
) -> go.Figure:
    """Tokens per round over verified nodes, one line per builder, beside one tree.

    Parameters
    ----------
    lengths
        builder, nodes, tokens_per_round, low, high, as `TreeSweep.table` gives.
    nodes
        The tree, in order of entry: depth, parent (-1 the anchor), on_path, chance, text, as
        `captured_nodes` and `target_nodes` give. May be empty.
    chosen
        Builder and nodes that are held out.
    kind, whose
        Of the text and the trees.
    unit
        What the lengths are, where they are not over rounds ("expected tokens").

    Returns
    -------
    plotly.graph_objects.Figure
        Nodes are as large as their path is probable.

    Raises
    ------
    ValueError
        When a column is missing or there is no length.
    """
    need(lengths, ("builder", "nodes", "tokens_per_round", "low", "high"), "TreeSweep.table")
    builders = list(dict.fromkeys(lengths["builder"].astype(str)))
    tint, mark = colours(builders), symbols(builders)
    data: list[dict[str, Any]] = []
    for i, builder in enumerate(builders):
        part = lengths[lengths["builder"] == builder].sort_values("nodes")
        data.append(
            {
                "type": "scatter",
                "x": part["nodes"],
                "y": part["tokens_per_round"],
                "mode": "lines+markers",
                "line": {"color": tint[builder], "width": 2.2, "dash": _DASHES[i % len(_DASHES)]},
                "marker": {
                    "symbol": mark[builder],
                    "size": [14 if (builder, n) == chosen else 6 for n in part["nodes"]],
                    "line": {"color": INK, "width": 1},
                },
                "error_y": bars(
                    part["tokens_per_round"], part["low"], part["high"], "rgba(128,128,128,0.6)"
                ),
                "name": escape(builder),
                "customdata": [
                    f"{number(row['low'])} to {number(row['high'])}; {counts(row)}"
                    for row in records(part)
                ],
                "hovertemplate": f"%{{x}} nodes: %{{y:.3g}} {escape(unit)}<br>%{{customdata}}",
            }
        )
    for drawn in _tree(nodes):
        data.append(drawn | {"xaxis": "x2", "yaxis": "y2"})
    sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= lengths["nodes"].max()]
    deepest = int(nodes["depth"].max()) if len(nodes) else 1
    leaves = float(heights(nodes["parent"]).max(initial=0.0))
    layout: dict[str, Any] = {
        "xaxis": {
            "domain": [0, 0.4],
            "title": "draft nodes, at most (log scale)",
            "type": "log",
            "tickvals": sizes,
            "ticktext": [str(n) for n in sizes],
        },
        "yaxis": {"title": f"{escape(unit)} (bonus counted)"},
        "xaxis2": {
            "domain": [0.46, 1],
            "title": "depth in the draft (tokens after the anchor)",
            "dtick": 1,
            "range": [-0.3, deepest + 0.9],
            "showgrid": False,
            "zeroline": False,
            "anchor": "y2",
        },
        # A line of room above the first leaf, for its label.
        "yaxis2": {"visible": False, "anchor": "x2", "range": [leaves + 0.6, -0.09 * leaves - 0.6]},
    }
    finding = _finding(lengths, chosen, kind, whose, unit)
    return composed(data, finding, {**layout, "legend": LEGEND_BELOW, "height": 500}, below=92)


def _tree(nodes: pd.DataFrame) -> list[Any]:
    """Edges, nodes and their names; the anchor stands at depth 0."""
    if nodes.empty:
        return []
    height, on_path = heights(nodes["parent"]), nodes["on_path"].to_numpy(dtype=bool)
    data: list[Any] = [
        edges(nodes, height, np.flatnonzero(~on_path), GRID),
        edges(nodes, height, np.flatnonzero(on_path), _PATH, 3),
    ]
    chance = nodes["chance"].to_numpy(dtype=float)
    size = np.where(np.isnan(chance), 8.0, 7 + 16 * np.sqrt(np.clip(chance, 0, 1)))
    said, depth = labels(nodes, height), nodes["depth"].to_numpy()
    tips = [tooltip(i, row) for i, row in enumerate(records(nodes))]
    for mine, colour, name in (
        (on_path, _PATH, "the text's own next tokens"),
        (~on_path, _DRAFT, "other nodes"),
    ):
        data.append(
            {
                "type": "scatter",
                "x": depth[mine],
                "y": height[mine],
                "mode": "markers+text",
                "marker": {"size": size[mine], "color": colour, "line": {"color": INK, "width": 1}},
                "text": [label for label, keep in zip(said, mine, strict=True) if keep],
                "textposition": "top center",
                "textfont": {"size": 11},
                "name": name,
                "customdata": [tip for tip, keep in zip(tips, mine, strict=True) if keep],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    data.append(
        {
            "type": "scatter",
            "x": [0],
            "y": [root_height(nodes, height)],
            "mode": "markers",
            "marker": {"symbol": "square", "size": 11, "color": INK},
            "name": "anchor",
            "hovertemplate": "the anchor: the last committed token<extra></extra>",
        }
    )
    return data


def _finding(
    lengths: pd.DataFrame, chosen: tuple[str, int], kind: str, whose: str, unit: str
) -> str:
    builder, size = chosen
    here = lengths[(lengths["builder"] == builder) & (lengths["nodes"] == size)]
    chain = lengths[lengths["builder"] == "chain"]["tokens_per_round"]
    lead = f"{whose_text(whose, kind)}: "
    if here.empty:
        return f"{lead}{unit} by draft nodes"
    said = f"{number(float(here['tokens_per_round'].iloc[0]))} {unit}"
    beside = "" if chain.empty else f", the best chain {number(float(chain.max()))}"
    return f"{lead}{builder} of {size} nodes gives {said}{beside}"
