"""How widely the target's distribution branches, by content type."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import GRID, INK, colours, counts, faint, need, records, titled
from specviz.markup import escape, number

_EBF_TICKS = (1, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000, 10_000)


def plot_entropy_by_type(
    positions: pd.DataFrame, summary: pd.DataFrame, *, by: str = "content_type"
) -> go.Figure:
    """Distribution of the target's entropy at each position, with its mean and interval.

    The two axes are the same reading: below, entropy H in nats; above, EBF = exp(H). A mean
    over positions on the lower axis is therefore the geometric mean on the upper (F1.6).

    Parameters
    ----------
    positions
        One row per output token: `by` and `entropy` (nats).
    summary
        One row per group, as `specviz.analysis.branching.entropy_by` gives: `by`, `entropy`,
        `entropy_low`, `entropy_high`, `ebf_geometric`, `n_positions`, `n_prompts`.
    by
        The grouping column.

    Returns
    -------
    plotly.graph_objects.Figure
        A box (5, 25, 50, 75 and 95 % of positions) and a diamond (mean) per group.

    Raises
    ------
    ValueError
        When a column is missing or a table is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> positions = pd.DataFrame({"content_type": "code", "entropy": [0.1, 0.9]})
    >>> summary = pd.DataFrame([{"content_type": "code", "entropy": 0.5, "entropy_low": 0.4,
    ...     "entropy_high": 0.6, "ebf_geometric": 1.65, "n_positions": 2, "n_prompts": 2}])
    >>> plot_entropy_by_type(positions, summary).layout.title.text
    'Code branches 1.65 ways (geometric-mean EBF)'
    """
    need(positions, (by, "entropy"), "Trace.positions joined with Trace.sequences")
    need(
        summary,
        (by, "entropy", "entropy_low", "entropy_high", "ebf_geometric", "n_prompts"),
        "specviz.analysis.branching.entropy_by",
    )
    ordered = summary.sort_values("entropy", ascending=False)
    groups = [str(g) for g in ordered[by]]
    tint = colours(groups)
    spread = positions.groupby(positions[by].astype(str))["entropy"].quantile(
        np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    )
    figure = go.Figure()
    for group in groups:
        low, q1, median, q3, high = (float(v) for v in spread[group])
        figure.add_box(
            y=[escape(group)],
            q1=[q1],
            median=[median],
            q3=[q3],
            lowerfence=[low],
            upperfence=[high],
            orientation="h",
            width=0.5,
            line={"color": tint[group], "width": 1.5},
            fillcolor=faint(tint[group], 0.22),
            name=escape(group),
            showlegend=False,
        )
    figure.add_scatter(
        x=ordered["entropy"],
        y=[escape(g) for g in groups],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": ordered["entropy_high"] - ordered["entropy"],
            "arrayminus": ordered["entropy"] - ordered["entropy_low"],
            "thickness": 2,
            "width": 5,
            "color": INK,
        },
        mode="markers",
        marker={
            "symbol": "diamond",
            "size": 11,
            "color": [tint[g] for g in groups],
            "line": {"color": INK, "width": 1.5},
        },
        customdata=[
            f"mean H {number(r['entropy'])} nats ({number(r['entropy_low'])} to "
            f"{number(r['entropy_high'])})<br>geometric-mean EBF {number(r['ebf_geometric'])}"
            f"<br>{counts(r)}"
            for r in records(ordered)
        ],
        hovertemplate="%{y}<br>%{customdata}<extra></extra>",
        showlegend=False,
        xaxis="x2",
    )
    reach = 1.05 * float(np.nanmax([*spread.to_numpy(), *ordered["entropy_high"], 0.5]))
    figure.update_layout(
        xaxis={"title": "entropy H of the target's distribution (nats)", "range": [0, reach]},
        xaxis2={
            "title": "EBF = exp(H): how many tokens it branches into",
            "overlaying": "x",
            "side": "top",
            "range": [0, reach],
            "tickvals": [float(np.log(t)) for t in _EBF_TICKS],
            "ticktext": [f"{t:,g}" for t in _EBF_TICKS],
            "showgrid": False,
            "linecolor": GRID,
        },
        yaxis={"title": "", "showgrid": False, "autorange": "reversed"},
    )
    titled(figure, _finding(ordered, by))
    figure.update_layout(
        height=170 + 52 * max(len(groups), 3), margin_t=figure.layout.margin.t + 44
    )
    return figure


def _finding(ordered: pd.DataFrame, by: str) -> str:
    rows = records(ordered)
    widest, narrowest = rows[0], rows[-1]
    wide = f"{str(widest[by]).capitalize()} branches"
    if len(ordered) == 1:
        return f"{wide} {number(widest['ebf_geometric'])} ways (geometric-mean EBF)"
    ratio = widest["ebf_geometric"] / narrowest["ebf_geometric"]
    return (
        f"{wide} {ratio:.2g}x as widely as {narrowest[by]} (geometric-mean EBF "
        f"{number(widest['ebf_geometric'])} against {number(narrowest['ebf_geometric'])})"
    )
