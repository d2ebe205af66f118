"""One round, step by step: what is drafted, verified, kept, added and forgotten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures.strip_heat import token_text
from specviz.figures.theme import GRID, INK, ROLE_COLOURS, composed, faint, records
from specviz.figures.tree_layout import BLANK, edges, heights, labels, root_height, tooltip
from specviz.markup import number

#: The steps of a round, in order.
STEPS = ("draft", "verify", "accept", "own token", "rewind")
_WRONG = "#D55E00"
_MONO = "ui-monospace, Menlo, Consolas, monospace"
_ROWS = {"input": 2.0, "says": 1.0, "kept": 0.0}


@dataclass(frozen=True)
class RoundPicture:
    """What a round is made of, as text.

    Attributes
    ----------
    anchor
        Text of the last committed token.
    draft, q
        Drafted tokens (of a tree: the ones on the accepted path) and the drafter's probability of
        each; NaN where unknown.
    emitted, p
        Tokens the round emits, the target's own last, and the target's probability of each.
    nodes, path
        Of a tree: its nodes in order of entry (depth, parent, on_path, chance, text), and which
        of them are accepted.
    closing
        "bonus" after a fully accepted draft, else "own".
    """

    anchor: str
    draft: Sequence[str]
    q: Sequence[float]
    emitted: Sequence[str]
    p: Sequence[float]
    closing: str = "own"
    nodes: pd.DataFrame | None = None
    path: Sequence[int] = ()

    @property
    def accepted(self) -> int:
        return len(self.emitted) - 1


def plot_round_chain(picture: RoundPicture, step: str, *, finding: str = "") -> go.Figure:
    """A round with a chain: k + 1 inputs, k + 1 rows of the target, and what is kept.

    Parameters
    ----------
    picture
        The round.
    step
        One of `STEPS`: what has happened so far.
    finding
        The title.

    Raises
    ------
    ValueError
        When the step is another.

    Examples
    --------
    >>> picture = RoundPicture("a", ["b", "x"], [0.9, 0.5], ["b", "c"], [0.8, 0.6])
    >>> len(plot_round_chain(picture, "draft").layout.shapes)      # anchor and two drafts
    3
    """
    at = _step(step)
    k, m = len(picture.draft), picture.accepted
    board = _Board()
    gone = at >= 4
    board.box(0, "input", picture.anchor, INK, note="anchor", hover="the last committed token")
    for j, (text, q) in enumerate(zip(picture.draft, picture.q, strict=True), 1):
        kept = j <= m
        colour = INK if at < 2 else ROLE_COLOURS["accepted"] if kept else _WRONG
        board.box(
            j,
            "input",
            text,
            colour,
            note=f"q {_short(q)}",
            hover=f"drafted token {j}, drafter's probability {_short(q)}",
            fade=gone and not kept,
        )
    for j in range(k + 1 if at >= 1 else 0):
        known = j <= m
        text = picture.emitted[j] if known else "…"
        colour = INK if at < 2 else ROLE_COLOURS["accepted"] if j < m else INK
        if j == m and at >= 3:
            colour = ROLE_COLOURS[picture.closing]
        board.box(
            j,
            "says",
            text,
            colour if known else GRID,
            note=f"p {_short(picture.p[j])}" if known else "unused",
            hover=(
                f"row {j}: after its input, the target's own next token"
                if known
                else f"row {j} follows a rejected token: nobody needs it"
            ),
            fade=gone and j > m,
        )
        if at >= 2 and j < min(k, m + 1):
            board.arrow(j, right=j < m)
    for j in range((m + 1) if at >= 3 else m if at >= 2 else 0):
        own = j == m
        board.box(
            j + 1,
            "kept",
            picture.emitted[j],
            ROLE_COLOURS[picture.closing if own else "accepted"],
            note=("bonus" if picture.closing == "bonus" else "own") if own else "accepted",
            hover="the target's own token" if own else "accepted draft token",
        )
    if gone:
        board.note(m + 1, -0.62, "next anchor")
    return board.figure(max(k, m + 1), finding)


def plot_round_tree(picture: RoundPicture, step: str, *, finding: str = "") -> go.Figure:
    """A round with a token tree: the accepted path drawn through it.

    Raises
    ------
    ValueError
        When the step is another, or the picture has no tree.

    Examples
    --------
    >>> rows = [(1, -1, True, 0.6, "b"), (1, -1, False, 0.3, "x")]
    >>> nodes = pd.DataFrame(rows, columns=["depth", "parent", "on_path", "chance", "text"])
    >>> picture = RoundPicture("a", ["b"], [0.6], ["b", "c"], [0.8, 0.6], "own", nodes, (0,))
    >>> len(plot_round_tree(picture, "accept").data)
    6
    """
    at = _step(step)
    nodes = picture.nodes
    if nodes is None:
        raise ValueError("This round drafted a chain: draw it with plot_round_chain.")
    path, gone, shown = list(picture.path), at >= 4, at >= 2
    kept = np.isin(np.arange(len(nodes)), path)
    rest = np.flatnonzero(~kept) if shown else np.arange(len(nodes))
    height, depth = heights(nodes["parent"]), nodes["depth"].to_numpy()
    root, leaves = root_height(nodes, height), float(height.max(initial=0.0))
    size = max(360, min(620, int(24 * leaves) + 190))
    said = labels(nodes, height, 720, size - 170)
    tips = [tooltip(i, row) for i, row in enumerate(records(nodes))]
    colour = faint(_WRONG, 0.18) if gone else faint(_WRONG, 0.55) if shown else INK
    data = [edges(nodes, height, rest, GRID)]
    if shown:
        data.append(edges(nodes, height, path, ROLE_COLOURS["accepted"], 3))
    data.append(
        {
            "type": "scatter",
            "x": depth[rest],
            "y": height[rest],
            "mode": "markers+text",
            "marker": {
                "size": 9,
                "color": colour if at >= 1 else "rgba(0,0,0,0)",
                "line": {"color": colour, "width": 1.5},
            },
            "text": [BLANK if gone else said[i] for i in rest],
            "textposition": "top center",
            "textfont": {"size": 11},
            "name": "rejected: dropped from the cache"
            if gone
            else "node"
            if not shown
            else "rejected",
            "customdata": [tips[i] for i in rest.tolist()],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    way = [(0.0, root), *((float(depth[i]), float(height[i])) for i in path)]
    data.append(
        {
            "type": "scatter",
            "x": [x for x, _ in way[1:]] if shown else [],
            "y": [y for _, y in way[1:]] if shown else [],
            "mode": "markers",
            "marker": {"size": 14, "color": ROLE_COLOURS["accepted"]},
            "name": "accepted path",
            "showlegend": shown and bool(path),
            "customdata": [tips[i] for i in path],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    data.append(
        {
            "type": "scatter",
            "x": [0],
            "y": [root],
            "mode": "markers",
            "marker": {"size": 13, "symbol": "square", "color": INK},
            "name": "anchor",
            "customdata": [token_text(picture.anchor, 40)],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    own = (way[-1][0] + 1, way[-1][1])
    data.append(
        {
            "type": "scatter",
            "x": [own[0]] if at >= 3 else [],
            "y": [own[1]] if at >= 3 else [],
            "mode": "markers",
            "marker": {"size": 16, "symbol": "star", "color": ROLE_COLOURS[picture.closing]},
            "name": "bonus token" if picture.closing == "bonus" else "the target's own token",
            "hovertemplate": f"{token_text(picture.emitted[-1], 40)}<extra></extra>".replace(
                "%", "%%"
            ),
        }
    )
    texts = [picture.anchor, *(picture.emitted[:-1] if shown else [])]
    notes = [_label(x, y, text) for (x, y), text in zip(way, texts, strict=False)]
    notes += [_label(*own, picture.emitted[-1])] if at >= 3 else []
    layout = {
        "xaxis": {
            "title": "depth in the tree (tokens after the anchor)",
            "range": [-0.6, max([*depth, int(own[0])]) + 0.8],
            "dtick": 1,
            "zeroline": False,
        },
        "yaxis": {"visible": False, "range": [leaves + 0.7, -1.6]},
        "annotations": notes,
        "height": size,
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
    }
    return composed(data, finding, layout, above=26)


def _step(step: str) -> int:
    if step not in STEPS:
        raise ValueError(f"step must be one of {', '.join(STEPS)}, not {step!r}.")
    return STEPS.index(step)


def _short(value: float) -> str:
    return "–" if math.isnan(value) else number(value, 2)


def _label(x: float, y: float, text: str) -> dict[str, object]:
    return {
        "x": x,
        "y": y,
        "text": token_text(text, 12),
        "showarrow": False,
        "yshift": 17,
        "font": {"family": _MONO, "size": 12},
        "bgcolor": "rgba(127,127,127,0.16)",
        "borderpad": 1,
    }


class _Board:
    """Boxes in columns and three rows."""

    def __init__(self) -> None:
        self.shapes: list[dict[str, object]] = []
        self.notes: list[dict[str, object]] = []
        self.points: list[tuple[float, float, str]] = []

    def box(
        self,
        column: int,
        row: str,
        text: str,
        colour: str,
        *,
        note: str,
        hover: str,
        fade: bool = False,
    ) -> None:
        y = _ROWS[row]
        strength = 0.3 if fade else 1.0
        self.shapes.append(
            {
                "type": "rect",
                "x0": column - 0.44,
                "x1": column + 0.44,
                "y0": y - 0.2,
                "y1": y + 0.26,
                "line": {"color": colour, "width": 2, "dash": "dot" if fade else "solid"},
                "fillcolor": faint(colour, 0.14) if colour.startswith("#") else colour,
                "opacity": strength,
                "layer": "below",
            }
        )
        size = {"family": _MONO, "size": 12}
        self._say(column, y + 0.03, token_text(text, 8), size, strength)
        self._say(column, y - 0.32, note, {"size": 11}, strength)
        self.points.append((column, y, f"{token_text(text, 60)}<br>{hover}"))

    def arrow(self, row: int, right: bool) -> None:
        """Row `row` of the target judges the draft one column further."""
        colour = ROLE_COLOURS["accepted"] if right else _WRONG
        self._say(
            row + 0.5,
            1.5,
            "=" if right else "≠",
            {"size": 17, "color": colour},
            1.0,
        )

    def note(self, column: float, y: float, text: str) -> None:
        self._say(column, y, text, {"size": 12}, 1.0)

    def _say(self, x: float, y: float, text: str, font: dict[str, object], opacity: float) -> None:
        self.notes.append(
            {"x": x, "y": y, "text": text, "font": font, "opacity": opacity, "showarrow": False}
        )

    def figure(self, columns: int, finding: str) -> go.Figure:
        data = {
            "type": "scatter",
            "x": [p[0] for p in self.points],
            "y": [p[1] for p in self.points],
            "customdata": [p[2] for p in self.points],
            "mode": "markers",
            "marker": {"size": 34, "symbol": "square", "opacity": 0},
            "hovertemplate": "%{customdata}<extra></extra>",
            "showlegend": False,
        }
        plain = {"showgrid": False, "zeroline": False}
        names = {"input": "inputs", "says": "the target<br>says next", "kept": "emitted"}
        layout = {
            "shapes": self.shapes,
            "annotations": self.notes,
            "xaxis": plain
            | {
                "range": [-0.6, max(columns, 5) + 0.5],
                "tickvals": list(range(columns + 1)),
                "ticktext": ["a", *(f"a+{j}" for j in range(1, columns + 1))],
                "title": "place in the output",
            },
            "yaxis": plain
            | {
                "range": [-0.95, 2.62],
                "tickvals": list(_ROWS.values()),
                "ticktext": [names[name] for name in _ROWS],
            },
            "height": 380,
        }
        return composed([data], finding, layout)
