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
    counts,
    need,
    records,
    symbols,
    titled,
)
from specviz.markup import escape, number

_PATH, _DRAFT, _OTHER = "#009E73", "#0072B2", "rgba(128,128,128,0.75)"
_LABELS = 24
_LONGEST = 14
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
        The tree, in order of entry: depth, parent (-1 the anchor, -2 unknown), on_path, chance,
        text, as `captured_nodes` and `target_nodes` give. May be empty.
    chosen
        Builder and nodes that are held out.
    kind, whose
        Of the text and the trees.
    unit
        What the lengths are, where they are not over rounds ("expected tokens").

    Returns
    -------
    plotly.graph_objects.Figure
        Where parents are unknown, the nodes of a depth stand one below the other in the order in
        which they entered the tree.

    Raises
    ------
    ValueError
        When a column is missing or there is no length.
    """
    need(lengths, ("builder", "nodes", "tokens_per_round", "low", "high"), "TreeSweep.table")
    builders = list(dict.fromkeys(lengths["builder"].astype(str)))
    tint, mark = colours(builders), symbols(builders)
    figure = go.Figure()
    for i, builder in enumerate(builders):
        part = lengths[lengths["builder"] == builder].sort_values("nodes")
        figure.add_scatter(
            x=part["nodes"],
            y=part["tokens_per_round"],
            mode="lines+markers",
            line={"color": tint[builder], "width": 2.2, "dash": _DASHES[i % len(_DASHES)]},
            marker={
                "symbol": mark[builder],
                "size": [14 if (builder, n) == chosen else 6 for n in part["nodes"]],
                "line": {"color": INK, "width": 1},
            },
            error_y=bars(
                part["tokens_per_round"], part["low"], part["high"], "rgba(128,128,128,0.6)"
            ),
            name=escape(builder),
            customdata=[
                f"{number(row['low'])} to {number(row['high'])}; {counts(row)}"
                for row in records(part)
            ],
            hovertemplate=f"%{{x}} nodes: %{{y:.3g}} {escape(unit)}<br>%{{customdata}}",
        )
    for drawn in _tree(nodes):
        figure.add_trace(drawn.update(xaxis="x2", yaxis="y2"))
    sizes = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= lengths["nodes"].max()]
    deepest = int(nodes["depth"].max()) if len(nodes) else 1
    figure.update_layout(
        xaxis={
            "domain": [0, 0.4],
            "title": "draft nodes, at most (log scale)",
            "type": "log",
            "tickvals": sizes,
            "ticktext": [str(n) for n in sizes],
        },
        yaxis={"title": f"{escape(unit)} (bonus counted)"},
        xaxis2={
            "domain": [0.46, 1],
            "title": "depth in the draft (tokens after the anchor)",
            "dtick": 1,
            "range": [-0.3, deepest + 0.9],
            "showgrid": False,
            "zeroline": False,
            "anchor": "y2",
        },
        yaxis2={"visible": False, "anchor": "x2", "autorange": "reversed"},
    )
    titled(figure, _finding(lengths, chosen, kind, whose, unit))
    return figure.update_layout(legend=LEGEND_BELOW, margin_b=92, height=500)


def _tree(nodes: pd.DataFrame) -> list[Any]:
    """Edges, nodes and their names; the anchor stands at depth 0."""
    if nodes.empty:
        return []
    parent, depth = nodes["parent"].to_numpy(), nodes["depth"].to_numpy()
    on_path = nodes["on_path"].to_numpy(dtype=bool)
    known = bool((parent >= -1).all())
    height = _by_parents(parent) if known else _by_depth(depth)
    root = float(height[depth == 1].mean()) if (depth == 1).any() else 0.0
    data: list[Any] = []
    if known:
        data.append(_edges(np.arange(len(nodes)), parent, depth, height, root, GRID, 1.5))
    path = np.flatnonzero(on_path)
    path = path[np.argsort(depth[path])]
    above = parent[path] if known else np.array([-1, *path[:-1]])[: len(path)]
    data.append(_edges(path, above, depth, height, root, _PATH, 3))
    chance = nodes["chance"].to_numpy(dtype=float)
    size = np.where(np.isnan(chance), 8.0, 7 + 16 * np.sqrt(np.clip(chance, 0, 1)))
    named = _named(nodes)
    labels = [_label(row) if i in named else "" for i, row in enumerate(records(nodes))]
    for mine, colour, name in (
        (on_path, _PATH, "the text's own next tokens"),
        (~on_path, _DRAFT if known else _OTHER, "other nodes"),
    ):
        data.append(
            go.Scatter(
                x=depth[mine],
                y=height[mine],
                mode="markers+text",
                marker={"size": size[mine], "color": colour, "line": {"color": INK, "width": 1}},
                text=[label for label, keep in zip(labels, mine, strict=True) if keep],
                textposition="middle right" if known else "top center",
                textfont={"size": 11},
                name=name,
                customdata=[_tooltip(i, row) for i, row in enumerate(records(nodes)) if mine[i]],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    data.append(
        go.Scatter(
            x=[0],
            y=[root],
            mode="markers",
            marker={"symbol": "square", "size": 11, "color": INK},
            name="anchor",
            hovertemplate="the anchor: the last committed token<extra></extra>",
        )
    )
    return data


def _edges(
    child: Any, above: Any, depth: Any, height: Any, root: float, colour: str, width: float
) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for node, parent in zip(child, above, strict=True):
        x += [float(depth[parent]) if parent >= 0 else 0.0, float(depth[node]), None]
        y += [float(height[parent]) if parent >= 0 else root, float(height[node]), None]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": width},
        hoverinfo="skip",
        showlegend=False,
    )


def _by_depth(depth: Any) -> Any:
    """Nodes of a depth one below the other, in order of entry."""
    seen: dict[int, int] = {}
    height = np.zeros(len(depth))
    for node, level in enumerate(depth):
        height[node] = seen.setdefault(int(level), 0)
        seen[int(level)] += 1
    return height


def _by_parents(parent: Any) -> Any:
    """Leaves one below the other, every other node in the middle of its children."""
    children: dict[int, list[int]] = {}
    for node, above in enumerate(parent):
        children.setdefault(int(above), []).append(node)
    height, below, order, stack = np.zeros(len(parent)), 0.0, [], [*children.get(-1, [])][::-1]
    while stack:  # depth first, so that branches do not cross
        node = stack.pop()
        order.append(node)
        stack += children.get(node, [])[::-1]
        if node not in children:
            height[node] = below
            below += 1
    for node in reversed(order):
        if node in children:
            height[node] = float(np.mean([height[c] for c in children[node]]))
    return height


def _named(nodes: pd.DataFrame) -> set[int]:
    """The nodes that carry their text: the path's, then the likeliest, as far as there is room."""
    chance = nodes["chance"].fillna(-1).to_numpy(dtype=float) + 2 * nodes["on_path"]
    ranked = np.argsort(-chance.to_numpy(dtype=float), kind="stable")
    return {int(i) for i in ranked[:_LABELS] if nodes["text"].iloc[i]}


def _label(row: dict[str, Any]) -> str:
    text = str(row["text"]).replace("\n", "⏎").replace("\t", "⇥").replace(" ", "␣")
    short = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return escape(short)


def _tooltip(node: int, row: dict[str, Any]) -> str:
    chance = row["chance"]
    sure = f"<br>path probability {number(float(chance))}" if pd.notna(chance) else ""
    text = f"<br>{_label(row)}" if row["text"] else ""
    return f"node {node + 1} in order of entry, depth {row['depth']}{text}{sure}"


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
