"""Entropy along one output, with the rounds of one drafter and k marked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import INK, LEGEND_BELOW, ROLE_COLOURS, need, records, titled
from specviz.markup import escape, number

_NAMES = {
    "prefill": "prefill",
    "accepted": "accepted draft token",
    "bonus": "bonus, after a full draft",
    "own": "the target's own, draft ended",
    "plain": "output token",
}
_PATTERNS = {"prefill": "x", "accepted": "", "bonus": "/", "own": ".", "plain": ""}


def plot_position_entropy(
    positions: pd.DataFrame, rounds: pd.DataFrame | None = None, *, name: str = ""
) -> go.Figure:
    """One bar per output token: the entropy of the distribution that it came from.

    Parameters
    ----------
    positions
        Positions of one sequence: `t`, `text`, `entropy` (nats).
    rounds
        Its rounds: `anchor`, `drafted`, `accepted`. Bars are then coloured and hatched by
        the token's part in its round, and a line opens every round.
    name
        What the sequence is called in the title.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    ValueError
        When a column is missing, the table is empty or holds more than one sequence.

    Examples
    --------
    >>> import pandas as pd
    >>> positions = pd.DataFrame({"t": [0, 1], "text": ["a", "b"], "entropy": [0.5, 1.5]})
    >>> plot_position_entropy(positions).layout.title.text
    'Mean entropy 1.00 nats over 2 tokens'
    """
    need(positions, ("t", "text", "entropy"), "Trace.positions of one sequence")
    along = positions.sort_values("t")
    if along["t"].duplicated().any():
        raise ValueError("These are positions of several sequences: choose one `seq` first.")
    role = np.full(int(along["t"].max()) + 1, "plain", dtype=object)
    starts: list[int] = []
    if rounds is not None:
        need(rounds, ("anchor", "drafted", "accepted"), "specviz.replay(...).rounds")
        role[:] = "prefill"
        for row in records(rounds):
            first, last = row["anchor"] + 1, row["anchor"] + row["accepted"] + 1
            role[first:last] = "accepted"
            role[last : last + 1] = "bonus" if 0 < row["drafted"] == row["accepted"] else "own"
            starts.append(first)
    figure = go.Figure()
    for kind, label in _NAMES.items():
        part = along[role[along["t"].to_numpy()] == kind]
        if part.empty:
            continue
        figure.add_bar(
            x=part["t"],
            y=part["entropy"],
            width=0.92,  # else as wide as the nearest two of its own kind are apart
            marker={
                "color": ROLE_COLOURS.get(kind, "#0072B2"),
                "pattern": {"shape": _PATTERNS[kind], "fillmode": "overlay"},
                "line": {"width": 0},
            },
            name=label,
            customdata=[_shown(text) for text in part["text"]],
            hovertemplate="y[%{x}] “%{customdata}”<br>H = %{y:.3g} nats<extra></extra>",
        )
    top = max(float(np.nanmax([0.1, *along["entropy"]])), 0.1)
    if starts:
        figure.add_scatter(  # one trace for all the lines, broken by gaps
            x=[x for s in starts for x in (s - 0.5, s - 0.5, None)],
            y=[y for _ in starts for y in (0, 1.04 * top, None)],
            mode="lines",
            line={"color": INK, "width": 1, "dash": "dot"},
            name="a round starts",
            hoverinfo="skip",
        )
    figure.update_layout(
        barmode="overlay",
        xaxis={"title": "output position t", "showgrid": False},
        yaxis={"title": "entropy of the target there (nats)", "rangemode": "tozero"},
        legend=LEGEND_BELOW,
    )
    titled(figure, _finding(along, role, name))
    figure.update_layout(margin_b=92)
    return figure


def _shown(text: str) -> str:
    short = text if len(text) <= 40 else text[:40] + "…"
    return escape(short.replace("\n", "↵").replace("\t", "→"))


def _finding(along: pd.DataFrame, role: np.ndarray, name: str) -> str:
    lead = f"{name}: " if name else ""
    mean = along["entropy"].groupby(role[along["t"].to_numpy()]).mean().to_dict()
    if "accepted" in mean and "own" in mean:
        said = (
            f"mean entropy {number(mean['accepted'])} nats where drafts held, "
            f"{number(mean['own'])} where they ended"
        )
    else:
        said = f"mean entropy {number(along['entropy'].mean())} nats over {len(along)} tokens"
    return lead + (said if name else said.capitalize())
