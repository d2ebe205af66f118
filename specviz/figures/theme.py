"""One look for every picture: colours, margins, and words for axes and titles.

The paper is transparent and the ink a grey that reads on white and on near-black, so a
figure fits a light or a dark notebook without being told which.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pandas as pd
import plotly.graph_objects as go

from specviz.markup import counted, escape

INK = "#797c82"
GRID = "rgba(128,128,128,0.22)"
HEIGHT = 420
MARGIN = {"l": 56, "r": 16, "t": 64, "b": 48}

# Okabe and Ito's palette without its black and yellow, which vanish on one of the papers.
_BLUE, _VERMILLION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_ORANGE, _PURPLE, _SKY, _OLIVE, _GREY = "#E69F00", "#CC79A7", "#56B4E9", "#8A8A00", "#8C8C8C"
_KNOWN = {
    "code": _BLUE,
    "prose": _VERMILLION,
    "structured": _GREEN,
    "explanation": _ORANGE,
    "maths": _PURPLE,
    "dialogue": _SKY,
    "copy-edit": _OLIVE,
    "mixed": _GREY,
}
_PALETTE = tuple(_KNOWN.values())
_SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "hexagon",
    "x",
)

#: Colours of a token's part in its round, the same in the strip and in the pictures.
ROLE_COLOURS = {"accepted": _BLUE, "bonus": _GREEN, "own": _PURPLE, "prefill": _GREY}

_AXIS = {
    "gridcolor": GRID,
    "zerolinecolor": GRID,
    "linecolor": GRID,
    "automargin": True,
    "title": {"font": {"size": 13}, "standoff": 8},
}
TEMPLATE = go.layout.Template(
    layout={
        "height": HEIGHT,
        "margin": MARGIN,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, Segoe UI, Helvetica, Arial, sans-serif",
            "size": 13,
            "color": INK,
        },
        "title": {
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 0.97,
            "yanchor": "top",
            "font": {"size": 16, "weight": 600},
        },
        "colorway": _PALETTE,
        "xaxis": _AXIS,
        "yaxis": _AXIS,
        "legend": {"bgcolor": "rgba(0,0,0,0)", "title": {"text": ""}},
        "hoverlabel": {
            "bgcolor": "#24292f",
            "font": {"color": "#ffffff", "size": 12},
            "align": "left",
        },
        "hovermode": "closest",
    }
)
#: Points that rest on fewer than this are drawn hollow.
FEW = 20
#: An axis of shares, 0 to 1.
SHARES = {
    "range": [0, 1.03],
    "tickvals": [step / 5 for step in range(6)],
    "ticktext": [f"{20 * step} %" for step in range(6)],
}
#: A legend below the plot, clear of the axis titles.
LEGEND_BELOW = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}


def colours(groups: Iterable[str]) -> dict[str, str]:
    """A colour per group: fixed for the content types specviz ships, spare ones for others.

    Examples
    --------
    >>> colours(["prose", "code"])["code"], colours(["code"])["code"]
    ('#0072B2', '#0072B2')
    """
    names = list(dict.fromkeys(str(g) for g in groups))
    chosen = {name: _KNOWN[name] for name in names if name in _KNOWN}
    spare = [c for c in _PALETTE if c not in chosen.values()] or list(_PALETTE)
    for i, name in enumerate(sorted(n for n in names if n not in _KNOWN)):
        chosen[name] = spare[i % len(spare)]
    return {name: chosen[name] for name in names}


def symbols(groups: Iterable[str]) -> dict[str, str]:
    """A marker per group, so that no reading depends on colour alone."""
    known = {name: _SYMBOLS[i] for i, name in enumerate(_KNOWN)}
    names = list(dict.fromkeys(str(g) for g in groups))
    free = [s for s in _SYMBOLS if s not in {known.get(n) for n in names}] or list(_SYMBOLS)
    others = sorted(n for n in names if n not in known)
    return {n: known.get(n) or free[others.index(n) % len(free)] for n in names}


def faint(colour: str, alpha: float = 0.16) -> str:
    """The colour of an interval's band."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def titled(figure: go.Figure, finding: str, width: int = 84) -> go.Figure:
    """Apply the template and a title that states the finding (plain text; escaped here)."""
    return figure.update_layout(_look(finding, width))


def composed(
    data: Sequence[Any],
    finding: str,
    layout: Mapping[str, Any],
    above: int = 0,
    below: int = MARGIN["b"],
) -> go.Figure:
    """`titled`, of traces and a layout that are plain dictionaries.

    Five times as quick as adding traces one by one, which matters under a slider. `above` and
    `below` are pixels: more above the plot than the title takes, and all of those below it.
    """
    base = _look(finding)
    base["margin"] |= {"t": base["margin"]["t"] + above, "b": below}
    return go.Figure({"data": list(data), "layout": {**base, **layout}})


def _look(finding: str, width: int = 84) -> dict[str, Any]:
    """The layout that every picture begins with."""
    lines = _wrapped(finding, width)
    return {
        "template": TEMPLATE,
        "title": {"text": "<br>".join(escape(line) for line in lines)},
        "height": HEIGHT,
        "margin": {**MARGIN, "t": MARGIN["t"] + 21 * (len(lines) - 1)},
    }


def _wrapped(finding: str, width: int) -> list[str]:
    """As few lines as it takes, about equally long; a number keeps its percent sign."""
    text = finding.replace(" %", "\u00a0%")
    lines = textwrap.wrap(text, width) or [""]
    narrower = lines
    while len(lines) > 1 and len(narrower) == len(lines):
        lines, width = narrower, width - 1
        narrower = textwrap.wrap(text, width)
    return [line.replace("\u00a0", " ") for line in lines]


def band(part: pd.DataFrame, x: str, colour: str) -> dict[str, Any]:
    """The interval (`low`, `high`) over column `x` as a filled band: one trace, there and back."""
    known = part.dropna(subset=["low", "high"])
    return {
        "type": "scatter",
        "x": [*known[x], *known[x][::-1]],
        "y": [*known["high"], *known["low"][::-1]],
        "fill": "toself",
        "fillcolor": faint(colour),
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
    }


def bars(
    value: Sequence[float] | pd.Series,
    low: Sequence[float] | pd.Series,
    high: Sequence[float] | pd.Series,
    colour: str,
) -> dict[str, Any]:
    """An interval around points, as plotly's error_x or error_y."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [end - at for at, end in zip(value, high, strict=True)],
        "arrayminus": [at - end for at, end in zip(value, low, strict=True)],
        "thickness": 1.4,
        "width": 3,
        "color": colour,
    }


def panelled(figure: go.Figure, finding: str, above: int = 16) -> go.Figure:
    """`titled`, with room for the panels' own titles and a legend below."""
    titled(figure, finding)
    figure.update_annotations(font_size=13)
    return figure.update_layout(
        margin_t=figure.layout.margin.t + above, margin_b=92, legend=LEGEND_BELOW
    )


def need(frame: pd.DataFrame, columns: Sequence[str], maker: str) -> pd.DataFrame:
    """`frame`, or a sentence naming the column it lacks and the function that makes it.

    Raises
    ------
    ValueError
        When a column is missing or there is no row to draw.
    """
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ValueError(f"The table has no column {missing[0]!r}: make it with {maker}.")
    if frame.empty:
        raise ValueError(
            f"The table has no rows, so there is nothing to draw: make it with {maker}."
        )
    return frame


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows, as plain dictionaries."""
    return cast("list[dict[str, Any]]", frame.to_dict("records"))


def counts(row: Mapping[str, Any]) -> str:
    """What a number rests on, for a tooltip."""
    parts = [
        counted(row[c], c[2:-1])
        for c in ("n_rounds", "n_positions", "n_prompts")
        if c in row and pd.notna(row[c])
    ]
    return ", ".join(parts)
