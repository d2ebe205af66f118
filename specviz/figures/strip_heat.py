"""Generated text as a heat strip: one cell per token, in reading order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from specviz.figures.theme import ROLE_COLOURS, titled
from specviz.markup import counted, escape, number

#: Up to this many tokens each cell carries its text.
_READABLE = 320
# Opaque, so that plotly picks the ink that reads on each cell, on any paper.
_SCALE = [[0.0, "#fdf3ea"], [1.0, "#f0a050"]]
_LINE = 26


def token_text(text: str, longest: int = 10) -> str:
    """A token as a label: whitespace visible, cut, escaped.

    Examples
    --------
    >>> token_text(" <b>\\n")
    '␣&lt;b&gt;↵'
    """
    cut = text[:longest] + ("…" if len(text) > longest else "")
    return escape(cut.replace("\n", "↵").replace("\t", "→").replace(" ", "␣"))


def plot_strip_heat(
    tokens: Sequence[str],
    entropy: Sequence[float],
    *,
    roles: Sequence[str] | None = None,
    colour: str = "entropy",
    finding: str = "",
) -> go.Figure:
    """One cell per token, row after row, coloured by what the target or the round says of it.

    Parameters
    ----------
    tokens
        Text of every output token.
    entropy
        Of the target's distribution there, nats; NaN leaves a cell empty.
    roles
        Per token "accepted", "bonus", "own" or "prefill"; needed to colour by "role".
    colour
        "entropy" (nats), "ebf" (exp of it, on a log scale) or "role".
    finding
        The title; one is made of the entropies otherwise.

    Raises
    ------
    ValueError
        When lengths differ, there is no token, or colour is another.

    Examples
    --------
    >>> figure = plot_strip_heat(["a", " b"], [0.2, 1.5])
    >>> figure.layout.title.text
    '2 tokens, mean entropy 0.850 nats'
    """
    n = len(tokens)
    if not n or len(entropy) != n or (roles is not None and len(roles) != n):
        raise ValueError(
            f"A strip needs one entropy (and role) per token: {n} tokens, {len(entropy)} given."
        )
    if colour not in ("entropy", "ebf", "role") or (colour == "role" and roles is None):
        raise ValueError(f'colour must be "entropy", "ebf" or "role" with roles, not {colour!r}.')
    wide = 16 if n <= _READABLE else 50
    deep = -(-n // wide)
    names = list(ROLE_COLOURS)
    values = [
        float(names.index((roles or [])[t])) if colour == "role" else float(entropy[t])
        for t in range(n)
    ]

    def rows(cells: Sequence[object], fill: object) -> list[list[object]]:
        padded = [*cells, *([fill] * (deep * wide - n))]
        return [padded[i * wide : (i + 1) * wide] for i in range(deep)]

    hover = [
        f"y[{t}] “{token_text(tokens[t], 40)}”<br>entropy {number(entropy[t])} nats, "
        f"EBF {number(math.exp(entropy[t]))}" + (f"<br>{roles[t]}" if roles else "")
        for t in range(n)
    ]
    shown = [token_text(text, 5) for text in tokens] if n <= _READABLE else [""] * n
    figure = go.Figure(
        go.Heatmap(
            z=rows(values, None),
            text=rows(shown, ""),
            customdata=rows(hover, ""),
            texttemplate="%{text}",
            textfont={"size": 11, "family": "ui-monospace, Menlo, Consolas, monospace"},
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            xgap=2,
            ygap=2,
            **_colours(colour, names),
        )
    )
    mean = sum(v for v in entropy if not math.isnan(v)) / max(
        1, sum(not math.isnan(v) for v in entropy)
    )
    titled(figure, finding or f"{counted(n, 'token')}, mean entropy {number(mean)} nats")
    figure.update_xaxes(visible=False)
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        zeroline=False,
        tickvals=list(range(deep)),
        ticktext=[f"y[{i * wide}]" for i in range(deep)],
        ticks="",
    )
    height = _LINE * max(deep, 5) if n <= _READABLE else min(900, 12 * deep + 60)
    return figure.update_layout(height=height + figure.layout.margin.t + 20, margin_b=20)


def _colours(colour: str, names: Sequence[str]) -> dict[str, object]:
    if colour == "role":
        n = len(names)
        scale: list[list[object]] = []
        for i, name in enumerate(names):
            tint = ROLE_COLOURS[name]
            scale += [[i / n, tint], [(i + 1) / n, tint]]
        bar = {"tickvals": list(range(n)), "ticktext": list(names), "title": {"text": "token"}}
        return {"colorscale": scale, "zmin": -0.5, "zmax": n - 0.5, "colorbar": _bar(bar)}
    ticks = [0, 1, 2, 3]
    bar = {"tickvals": ticks, "title": {"text": "entropy<br>(nats)"}}
    if colour == "ebf":
        bar = {
            "tickvals": ticks,
            "ticktext": [f"{math.exp(t):.3g}" for t in ticks],
            "title": {"text": "EBF"},
        }
    return {"colorscale": _SCALE, "zmin": 0, "zmax": 3, "colorbar": _bar(bar)}


def _bar(more: dict[str, object]) -> dict[str, object]:
    return {"thickness": 12, "outlinewidth": 0, "len": 1, **more}
