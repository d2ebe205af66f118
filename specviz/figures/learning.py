"""Tokens per round on held-out prompts as a drafter learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import LEGEND_BELOW, colours, need, records, symbols, titled
from specviz.markup import counted, escape, number

_COLUMNS = (
    "drafter",
    "step",
    "tokens",
    "hours",
    "content_type",
    "tokens_per_round",
    "loss",
    "prompts",
    "rounds",
)
_MAKER = "the log of specviz train"
#: Every tokens_per_round of the log is measured so.
_SETTING = "greedy, k = 7, held-out prompts, bonus counted"


def plot_learning(
    log: pd.DataFrame,
    *,
    content_types: Sequence[str] = ("code", "prose"),
    baselines: Mapping[str, Mapping[str, float]] | None = None,
) -> go.Figure:
    """Learning curves: tokens per round on held-out prompts against training tokens seen.

    Parameters
    ----------
    log
        One row per evaluation and content type: `drafter`, `step` (optimiser steps), `tokens`
        (training tokens seen), `hours` (of training), `content_type`, `tokens_per_round`
        (greedy, k = 7, held-out prompts, bonus counted), `loss` (nats, held out), `prompts`,
        `rounds` (what the measurement rests on).
    content_types
        Those to draw, a line for each and every drafter; "all" where the log has it.
    baselines
        Reference values, name -> content type -> tokens per round measured in the same way:
        a dashed line each, such as a bigram's.

    Returns
    -------
    plotly.graph_objects.Figure
        Colours tell content types, markers drafters.

    Raises
    ------
    ValueError
        When a column is missing, or the log has no row of a content type to draw.

    Examples
    --------
    >>> import pandas as pd
    >>> log = pd.DataFrame({"drafter": "eagle", "step": [0, 900], "tokens": [0, 264_000],
    ...     "hours": [0, 0.2], "content_type": "code", "tokens_per_round": [1.02, 1.95],
    ...     "loss": [6.1, 2.2], "prompts": 8, "rounds": [740, 390]})
    >>> plot_learning(log, content_types=["code"]).layout.title.text
    'After 264,000 training tokens eagle emits 1.95 tokens per round on code'
    """
    need(log, _COLUMNS, _MAKER)
    wanted = [content_types] if isinstance(content_types, str) else list(content_types)
    curves = _curves(log, wanted)
    tint, mark = colours(wanted), symbols(drafter for drafter, _ in curves)
    figure = go.Figure()
    for (drafter, content_type), part in curves.items():
        figure.add_scatter(
            x=part["tokens"],
            y=part["tokens_per_round"],
            mode="lines+markers",
            line={"color": tint[content_type], "width": 2.2},
            marker={"symbol": mark[drafter], "size": 7},
            name=escape(f"{drafter}, {content_type}"),
            customdata=[_rests_on(row) for row in records(part)],
            hovertemplate=f"%{{y:.3g}} tokens per round ({_SETTING})<br>%{{customdata}}",
        )
    ends = [float(log["tokens"].min()), float(log["tokens"].max())]
    for name, values in (baselines or {}).items():
        for content_type in wanted:
            if content_type in values:
                figure.add_scatter(
                    x=ends,
                    y=[values[content_type]] * 2,
                    mode="lines",
                    line={"color": tint[content_type], "width": 1.4, "dash": "dash"},
                    name=escape(f"{name}, {content_type}"),
                    hovertemplate=f"%{{y:.3g}} tokens per round ({_SETTING})",
                )
    top = max(max(line.y) for line in figure.data)
    figure.update_layout(
        xaxis={"title": "training tokens seen", "tickformat": "~s"},
        # Every round emits a token: 1 is the floor.
        yaxis={"title": "tokens per round (bonus counted)", "range": [0.95, 1.06 * max(top, 1.2)]},
    )
    titled(figure, _finding(curves))
    figure.update_layout(margin_b=112, legend=LEGEND_BELOW, height=460)
    return figure


def _curves(log: pd.DataFrame, wanted: Sequence[str]) -> dict[tuple[str, str], pd.DataFrame]:
    """The evaluations of every drafter on every content type to draw, in order of tokens."""
    measured = log.dropna(subset=["tokens_per_round"]).sort_values("tokens", kind="stable")
    known = list(dict.fromkeys(measured["content_type"].astype(str)))
    unknown = [content_type for content_type in wanted if content_type not in known]
    if unknown or not wanted:
        raise ValueError(
            f"The log has evaluations of {', '.join(known) or 'no content type'}, so content_types "
            f"cannot be {wanted}."
        )
    curves = {}
    for drafter in dict.fromkeys(log["drafter"].astype(str)):
        mine = measured[measured["drafter"].astype(str) == drafter]
        for content_type in wanted:
            part = mine[mine["content_type"].astype(str) == content_type]
            if len(part):
                curves[drafter, content_type] = part
    return curves


def _rests_on(row: Mapping[str, Any]) -> str:
    return (
        f"{counted(row['tokens'], 'training token')}, {counted(row['step'], 'step')}, "
        f"{number(float(row['hours']))} hours<br>"
        f"held-out loss {number(float(row['loss']))} nats; "
        f"{counted(row['rounds'], 'round')}, {counted(row['prompts'], 'prompt')}"
    )


def _finding(curves: Mapping[tuple[str, str], pd.DataFrame]) -> str:
    """Where every drafter stands at its last evaluation; the best one when there are many."""
    ends = {key: float(part["tokens_per_round"].iloc[-1]) for key, part in curves.items()}
    drafters = list(dict.fromkeys(drafter for drafter, _ in ends))
    if len(drafters) > 3:
        lead = next(iter(ends))[1]
        best = max((d for d, t in ends if t == lead), key=lambda d: ends[d, lead])
        return (
            f"Of {len(drafters)} drafters {best} stands highest on {lead}: "
            f"{number(ends[best, lead])} tokens per round"
        )
    stands = {
        drafter: " and ".join(f"{number(v)} on {t}" for (d, t), v in ends.items() if d == drafter)
        for drafter in drafters
    }
    if len(drafters) > 1:
        said = "; ".join(f"{drafter} {values}" for drafter, values in stands.items())
        return f"Tokens per round at the last evaluation: {said}"
    seen = max(part["tokens"].iloc[-1] for part in curves.values())
    values = stands[drafters[0]].replace(" on ", " tokens per round on ", 1)
    return f"After {counted(seen, 'training token')} {drafters[0]} emits {values}"
