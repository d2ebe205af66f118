"""Where the nodes of a token tree stand, and which of them there is room to name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from specviz.figures.strip_heat import token_text
from specviz.markup import number

#: Pixels of a letter and of a line, as labels are set; and most letters of one.
_LETTER, _LINE, _LONGEST = 6.8, 14, 14
#: What a node without a label says. A living picture whose text was empty once stays without.
BLANK = "\u00a0"


def heights(parent: Any) -> Any:
    """Leaves one below the other, every other node in the middle of its children.

    Examples
    --------
    >>> heights([-1, 0, 0, -1]).tolist()
    [0.5, 0.0, 1.0, 2.0]
    """
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


def root_height(nodes: pd.DataFrame, height: Any) -> float:
    """Where the anchor stands: in the middle of the first tokens."""
    first = (nodes["depth"] == 1).to_numpy()
    return float(height[first].mean()) if first.any() else 0.0


def edges(
    nodes: pd.DataFrame, height: Any, which: Any, colour: str, width: float = 1.5
) -> dict[str, Any]:
    """Lines from the nodes `which` up to their parents, as one trace."""
    depth, parent = nodes["depth"].to_numpy(), nodes["parent"].to_numpy()
    root = root_height(nodes, height)
    x: list[float | None] = []
    y: list[float | None] = []
    for node in which:
        above = parent[node]
        x += [float(depth[above]) if above >= 0 else 0.0, float(depth[node]), None]
        y += [float(height[above]) if above >= 0 else root, float(height[node]), None]
    line = {"color": colour, "width": width}
    lines: dict[str, Any] = {"type": "scatter", "mode": "lines", "line": line, "x": x, "y": y}
    return lines | {"hoverinfo": "skip", "showlegend": False}


def tooltip(node: int, row: Mapping[str, Any]) -> str:
    """What a node is, for a tooltip; escaped."""
    chance = row["chance"]
    sure = f"<br>path probability {number(float(chance))}" if pd.notna(chance) else ""
    text = token_text(str(row["text"]), 60)
    return f"{text}<br>node {node + 1} in order of entry, depth {row['depth']}{sure}"


def labels(nodes: pd.DataFrame, height: Any, width: float = 430, tall: float = 330) -> list[str]:
    """Escaped text of the nodes there is room to name, `BLANK` for the others.

    A label stands above its node and covers no other label and no other node; the path's nodes
    come first, then the likeliest ones. `width` and `tall` are pixels of the tree.
    """
    if nodes.empty:
        return []
    depth = nodes["depth"].to_numpy(dtype=float)
    across, down = width / (depth.max() + 1.2), tall / max(height.max(), 1)
    longest = int(np.clip(across / _LETTER - 1, 3, _LONGEST))
    said = [token_text(text, longest) if text else "" for text in nodes["text"]]
    x, y = depth * across, height * down
    half = _LETTER * np.array([min(len(text), longest + 1) for text in nodes["text"]]) / 2
    sure = nodes["chance"].fillna(-1).to_numpy(dtype=float) + 2 * nodes["on_path"].to_numpy()
    named: list[int] = []
    for node in np.argsort(-sure, kind="stable").tolist():
        apart = np.abs(x - x[node])
        marker = (apart < half[node] + 5) & (np.abs(y - (y[node] - _LINE)) < _LINE - 4)
        marker[node] = False
        label = (apart < half[node] + half + 2) & (np.abs(y - y[node]) < _LINE)
        if said[node] and not marker.any() and not label[named].any():
            named.append(node)
    return [text if node in named else BLANK for node, text in enumerate(said)]
