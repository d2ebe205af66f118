"""How often drafters are right at every depth, given the text's own tokens before it."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.panels import groups_in, panels
from specviz.figures.theme import SHARES, need, records
from specviz.markup import counted, escape


def plot_depth_match(table: pd.DataFrame, *, by: str = "content_type") -> go.Figure:
    """Match against depth: a panel per content type, a line with its interval per drafter.

    A flat line belongs to a drafter that sees the text's tokens and no more: depth is nothing to
    it. A line that falls shows how much a drafter loses by looking further ahead.

    Parameters
    ----------
    table
        As `specviz.depth_match` gives: drafter, `by`, `depth`, `match`, `low`,
        `high`, and optionally n_anchors and n_prompts. "all" is drawn only when it is alone.
    by
        The grouping column.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        When a column is missing or the table is empty.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"drafter": "eagle", "content_type": "code", "depth": [1, 7],
    ...     "match": [0.5, 0.2], "low": [0.45, 0.16], "high": [0.55, 0.24]})
    >>> plot_depth_match(table).layout.title.text
    'Most often right at depth 1: code 50 % (eagle); at depth 7: code 20 % (eagle)'
    """
    columns = ("drafter", by, "depth", "match", "low", "high")
    need(table, columns, "specviz.depth_match")
    figure = panels(
        table,
        "depth",
        "match",
        lambda row: (
            f"{escape(row['drafter'])}, depth {row['depth']}: {100 * row['match']:.1f} %"
            f"<br>{100 * row['low']:.1f} to {100 * row['high']:.1f} %"
            + (f"; {counted(row['n_anchors'], 'anchor')}" if "n_anchors" in row else "")
        ),
        by=by,
        count="n_anchors",
        title=_finding(table, by),
        x_title="depth j in the draft (tokens)",
        y_title="share of anchors whose likeliest<br>token at depth j is the text's own",
    )
    return figure.update_yaxes(SHARES)


def _finding(table: pd.DataFrame, by: str) -> str:
    said = []
    for depth in sorted({int(table["depth"].min()), int(table["depth"].max())}):
        there = table[(table["depth"] == depth) & table["match"].notna()].sort_values("match")
        tops = [there[there[by].astype(str) == g].tail(1) for g in groups_in(table, by)[:4]]
        best = [
            f"{row[by]} {100 * row['match']:.0f} % ({row['drafter']})"
            for row in records(pd.concat(tops))
        ]
        said.append(f"at depth {depth}: {', '.join(best)}")
    return f"Most often right {'; '.join(said)}"
