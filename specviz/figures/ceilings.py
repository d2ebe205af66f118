"""What drafters reach beside what their own candidates would allow."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.panels import groups_in
from specviz.figures.theme import (
    GRID,
    INK,
    LEGEND_BELOW,
    bars,
    colours,
    need,
    records,
    symbols,
    titled,
)
from specviz.markup import counted, escape, number

_NEEDED = [
    *("k", "top", "tokens_per_round", "low", "high", "recall", "recall_low", "recall_high"),
    *("share", "share_low", "share_high", "n_rounds", "n_rounds_recall", "n_prompts"),
]


def plot_ceilings(table: pd.DataFrame, *, by: str = "content_type") -> go.Figure:
    """A row per drafter and content type: the chain, the recall ceilings, and k + 1.

    The number above the widest ceiling is the share of it that the chain reaches. Where that is
    alike for two content types, the drafter serves both equally well and one is just harder. A
    drafter with one candidate (ngram, bigram) has no ceiling but k + 1, and no number.

    Parameters
    ----------
    table
        As `specviz.recall_lengths` gives, for one k. "all" is drawn only when
        it is alone. A ceiling that lies on the chain, as that of m = 1 does, is not drawn again.
    by
        The grouping column.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        When a column is missing, the table is empty or holds several k.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"drafter": "lm", "content_type": "prose", "k": 7, "top": [4, 16],
    ...     "tokens_per_round": 2.0, "low": 1.9, "high": 2.1, "recall": [3.0, 4.0],
    ...     "recall_low": [2.8, 3.8], "recall_high": [3.2, 4.2], "share": [0.67, 0.5],
    ...     "share_low": [0.6, 0.45], "share_high": [0.7, 0.55], "n_rounds": 90,
    ...     "n_rounds_recall": [60, 45], "n_prompts": 6})
    >>> plot_ceilings(table).layout.title.text
    'Of what the first 16 candidates allow, the chain reaches: lm prose 50 %'
    """
    need(table, ("drafter", by, *_NEEDED), "specviz.recall_lengths")
    if table["k"].nunique() > 1:
        raise ValueError("Draw the ceilings of one k at a time: this table holds several.")
    k = int(table["k"].iloc[0])
    table = table[table[by].astype(str).isin(groups_in(table, by))]
    pairs = table["drafter"].astype(str) + ", " + table[by].astype(str)
    lines = list(dict.fromkeys(pairs))
    place = pairs.map(lines.index)
    widest = int(table["top"].max())
    tops = sorted({int(m) for m in table["top"]} - {1})
    names = ["the chain", *(f"first {m} allowed" for m in tops)]
    tint, mark = colours(names), symbols(names)
    figure = go.Figure()
    last = table[table["top"] == widest]
    for row in records(last.assign(place=place)):
        figure.add_shape(
            type="line",
            x0=row["tokens_per_round"],
            x1=row["recall"],
            y0=row["place"],
            y1=row["place"],
            line={"color": GRID, "width": 5},
            layer="below",
        )
    further = table[table["recall"] > table["tokens_per_round"]]  # the others lie on the chain
    for m, name in zip([0, *tops], names, strict=True):
        part = last if m == 0 else further[further["top"] == m]
        value, low, high, rounds = (
            ("tokens_per_round", "low", "high", "n_rounds")
            if m == 0
            else ("recall", "recall_low", "recall_high", "n_rounds_recall")
        )
        figure.add_scatter(
            x=part[value],
            y=place[part.index],
            mode="markers+text" if m == widest else "markers",
            text=[f"{100 * share:.0f} %" for share in part["share"]] if m == widest else None,
            textposition="top center",
            marker={"symbol": mark[name], "size": 10, "color": tint[name]},
            error_x=bars(part[value], part[low], part[high], tint[name]),
            name=name,
            customdata=[
                f"{escape(row['drafter'])}, {escape(row[by])}: {number(row[low])} to "
                f"{number(row[high])}<br>{counted(row[rounds], 'round')}, "
                f"{counted(row['n_prompts'], 'prompt')}"
                + (
                    f"<br>the chain reaches {100 * row['share']:.0f} % of it "
                    f"({100 * row['share_low']:.0f} to {100 * row['share_high']:.0f} %)"
                    if m
                    else ""
                )
                for row in records(part)
            ],
            hovertemplate="%{x:.3g} tokens per round<br>%{customdata}<extra></extra>",
        )
    figure.add_vline(
        x=k + 1,
        line={"color": INK, "width": 1.5, "dash": "dash"},
        annotation={"text": "k + 1", "font": {"color": INK}},
    )
    figure.update_layout(
        xaxis={"title": f"tokens per round (bonus counted), k = {k}", "range": [0.8, k + 1.3]},
        yaxis={
            "tickvals": list(range(len(lines))),
            "ticktext": [escape(line) for line in lines],
            "range": [len(lines) - 0.5, -0.9],
        },
    )
    titled(figure, _finding(last, by, widest))
    return figure.update_layout(
        height=max(figure.layout.height, 190 + 30 * len(lines)), margin_b=92, legend=LEGEND_BELOW
    )


def _finding(last: pd.DataFrame, by: str, widest: int) -> str:
    rising = last[last["recall"] > last["tokens_per_round"]]
    ranked = records(rising.sort_values("share", ascending=False))
    said = [f"{row['drafter']} {row[by]} {100 * row['share']:.0f} %" for row in ranked]
    if not said:
        return "No candidate beyond the first would carry a draft further"
    if len(said) > 4:
        said = [f"from {said[-1]} to {said[0]}"]
    return f"Of what the first {widest} candidates allow, the chain reaches: {', '.join(said)}"
