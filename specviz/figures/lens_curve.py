"""Accepted length against the branching factor: a curve per content type, and one text's points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures.strip_heat import token_text
from specviz.figures.theme import (
    INK,
    LEGEND_BELOW,
    bars,
    colours,
    composed,
    need,
    records,
    symbols,
)
from specviz.markup import counted, escape, number

#: With more curves than this, intervals stand in the tooltips only.
_BARRED = 3
_TICKS = (1, 1.25, 2, 4, 8, 16, 32, 64, 128)


def plot_lens_curve(
    curve: pd.DataFrame,
    points: pd.DataFrame,
    *,
    chosen: Sequence[int] = (),
    k: int,
    drafter: str,
) -> go.Figure:
    """Mean accepted length in steps of EBF, and every anchor of one text as a point.

    Parameters
    ----------
    curve
        content_type, ebf (geometric mean of the step), accepted, low, high, n_anchors, n_prompts.
    points
        Of the text: t (the place after the anchor), ebf, accepted, text. Drawn as the last trace.
    chosen
        Places t that are brushed; the others fade.
    k, drafter
        Of the drafts.

    Raises
    ------
    ValueError
        When a column is missing or a table is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = pd.DataFrame([{"content_type": "code", "ebf": e, "accepted": a, "low": a,
    ...     "high": a, "n_anchors": 9, "n_prompts": 3} for e, a in ((1.1, 4.0), (6.0, 1.0))])
    >>> points = pd.DataFrame([{"t": 1, "ebf": 1.2, "accepted": 3, "text": "x"}])
    >>> plot_lens_curve(curve, points, k=7, drafter="lm").layout.title.text
    'Code: 4.00 accepted where EBF is near 1.10, 1.00 near 6.00 (lm, k = 7)'
    """
    need(
        curve,
        ("content_type", "ebf", "accepted", "low", "high", "n_anchors", "n_prompts"),
        "EntropyLens.curve",
    )
    need(points, ("t", "ebf", "accepted", "text"), "EntropyLens.own")
    kinds = list(dict.fromkeys(curve["content_type"]))
    tint, shape = colours(kinds), symbols(kinds)
    data: list[dict[str, Any]] = []
    for kind in kinds:
        part = curve[curve["content_type"] == kind]
        colour = tint[str(kind)]
        data.append(
            {
                "type": "scatter",
                "x": part["ebf"],
                "y": part["accepted"],
                "error_y": bars(part["accepted"], part["low"], part["high"], colour)
                if len(kinds) <= _BARRED
                else None,
                "mode": "lines+markers",
                "line": {"color": colour, "width": 2},
                "marker": {"color": colour, "size": 8, "symbol": shape[str(kind)]},
                "name": escape(kind),
                "customdata": [
                    f"{escape(kind)}<br>EBF near {number(r['ebf'])}: "
                    f"{number(r['accepted'])} accepted "
                    f"({number(r['low'])} to {number(r['high'])})<br>"
                    f"{counted(r['n_anchors'], 'anchor')}, {counted(r['n_prompts'], 'prompt')}"
                    for r in records(part)
                ],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    rng = np.random.default_rng(0)  # points on whole numbers would hide each other
    lit = set(chosen)
    strong = [not lit or t in lit for t in points["t"]]
    data.append(
        {
            "type": "scatter",
            "x": points["ebf"],
            "y": points["accepted"] + rng.uniform(-0.18, 0.18, len(points)),
            "mode": "markers",
            "marker": {
                "size": [9 if lit and s else 7 for s in strong],
                "color": INK,
                "opacity": [0.85 if s else 0.15 for s in strong],
            },
            "name": "anchors of this text",
            "customdata": [
                f"y[{r['t']}] “{token_text(r['text'], 30)}”<br>EBF {number(r['ebf'])}, "
                f"{r['accepted']} accepted"
                for r in records(points)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
    )
    layout = {
        "xaxis": {
            "type": "log",
            "tickvals": _TICKS,
            "ticktext": [f"{t:g}" for t in _TICKS],
            "title": "EBF = exp(H) of the target, for the token after the anchor (log scale)",
        },
        "yaxis": {"title": "accepted (bonus not counted)", "range": [-0.4, k + 0.5]},
        "height": 430,
        "legend": LEGEND_BELOW,
        "dragmode": "select",
    }
    return composed(data, _finding(curve, kinds, k, drafter), layout, below=96)


def _finding(curve: pd.DataFrame, kinds: Sequence[object], k: int, drafter: str) -> str:
    first = curve.groupby("content_type", sort=False)["n_anchors"].sum().idxmax()
    part = curve[curve["content_type"] == first].sort_values("ebf")
    low, high = records(part)[0], records(part)[-1]
    whose = f"({drafter}, k = {k})"
    name = str(first).capitalize()
    if len(part) == 1:
        return f"{name}: {number(low['accepted'])} accepted {whose}"
    return (
        f"{name}: {number(low['accepted'])} accepted where EBF is near {number(low['ebf'])}, "
        f"{number(high['accepted'])} near {number(high['ebf'])} {whose}"
    )
