"""What a fresh draft gains over the tail of the one before it."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.panels import groups_in, panels
from specviz.figures.theme import INK, need, records
from specviz.markup import counted, escape, number


def plot_reanchoring(table: pd.DataFrame, *, by: str = "content_type") -> go.Figure:
    """Gain of drafting anew after j right tokens: a panel per content type, a line per drafter.

    Zero is a drafter that would only repeat itself; above it, the target's newer states told the
    drafter something. Points of fewer than 20 pairs are hollow and have no band.

    Parameters
    ----------
    table
        As `specviz.reanchoring_gain` gives: drafter, `by`, `k`, `j`, `gain`,
        `low`, `high`, `n_pairs`, `n_prompts`. Its rows over all j speak in the title only; "all"
        content types are drawn only when they are alone.
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
    >>> table = pd.DataFrame({"drafter": "block", "content_type": "prose", "k": 3,
    ...     "j": [1, 2, "all"], "gain": [0.3, 0.1, 0.25], "low": [0.2, 0, 0.2],
    ...     "high": [0.4, 0.2, 0.3], "n_pairs": [30, 10, 40], "n_prompts": 4})
    >>> plot_reanchoring(table).layout.title.text
    'Tokens a fresh draft gains over the old tail, over all j: prose 0.250 (block)'
    """
    columns = ("drafter", by, "k", "j", "gain", "low", "high", "n_pairs", "n_prompts")
    need(table, columns, "specviz.reanchoring_gain")
    steps = table[table["j"].astype(str) != "all"]
    steps = steps.assign(j=steps["j"].astype(int))
    need(steps, columns, "specviz.reanchoring_gain")
    figure = panels(
        steps,
        "j",
        "gain",
        lambda row: (
            f"{escape(row['drafter'])}, after {counted(row['j'], 'token')}: "
            f"{number(row['gain'])} tokens<br>{number(row['low'])} to {number(row['high'])}; "
            f"{counted(row['n_pairs'], 'pair')}, {counted(row['n_prompts'], 'prompt')}"
        ),
        by=by,
        count="n_pairs",
        title=_finding(table, by),
        x_title=f"j: right tokens of the old draft (k = {int(table['k'].max())})",
        y_title="right tokens of the new draft less those of<br>the old tail (no bonus in either)",
    )
    return figure.add_hline(y=0, line={"color": INK, "width": 1.2, "dash": "dash"})


def _finding(table: pd.DataFrame, by: str) -> str:
    over = table[(table["j"].astype(str) == "all") & table["gain"].notna()]
    if len(over) and (over["gain"] == 0).all():
        return "A fresh draft only repeats the tail of the old one"
    tops = [
        over[over[by].astype(str) == group].sort_values("gain").tail(1)
        for group in groups_in(table, by)[:4]
    ]
    said = [
        f"{row[by]} {number(row['gain'])} ({row['drafter']})" for row in records(pd.concat(tops))
    ]
    return "Tokens a fresh draft gains over the old tail" + (
        f", over all j: {', '.join(said)}" if said else ""
    )
