"""One claim among public ones."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.claims import plot_claims
from specviz.figures.theme import INK, titled
from specviz.markup import number

_COLOURS = {"consistent": "#009E73", "inconsistent": "#D55E00"}


def plot_claim_check(
    public: pd.DataFrame,
    verdict: str = "",
    tokens_per_round: float | None = None,
    speedup: float | None = None,
) -> go.Figure:
    """Where a claim's speed-up and tokens per round put it among public claims.

    Parameters
    ----------
    public
        As `specviz.audit_claims` gives.
    verdict
        Of the claim; "" where there is none to judge.
    tokens_per_round, speedup
        What the claim says or implies; the star is drawn where both are known.

    Returns
    -------
    plotly.graph_objects.Figure
        `plot_claims`, its points pale, with the claim as a star.

    Raises
    ------
    ValueError
        As `plot_claims`.
    """
    figure = plot_claims(public)
    figure.update_traces(marker={"opacity": 0.45}, selector={"mode": "markers"})
    both = tokens_per_round is not None and speedup is not None
    if tokens_per_round is not None and speedup is not None:
        figure.add_scatter(
            x=[tokens_per_round],
            y=[speedup],
            mode="markers",
            marker={
                "symbol": "star",
                "size": 20,
                "color": _COLOURS.get(verdict, "#0072B2"),
                "line": {"color": INK, "width": 1.5},
            },
            name="your claim",
            hovertemplate="your claim: %{x:.3g} tokens per round, %{y:.3g} times as fast"
            "<extra></extra>",
        )
        most = 1.08 * max(tokens_per_round, speedup)
        for axis in (figure.layout.xaxis, figure.layout.yaxis):
            axis.range = [axis.range[0], max(axis.range[1], most)]
    height, legend, below = figure.layout.height, figure.layout.legend, figure.layout.margin.b
    titled(figure, _finding(verdict, both, tokens_per_round, speedup))
    return figure.update_layout(height=height, legend=legend, margin_b=below)


def _finding(verdict: str, both: bool, tokens: float | None, speedup: float | None) -> str:
    if not verdict:
        return "Public claims: speed-up against tokens per round"
    if not both or tokens is None or speedup is None:
        return f"Your claim: {verdict}; a point needs tokens per round and a speed-up"
    return (
        f"Your claim: {verdict}; {number(tokens)} tokens per round, {number(speedup)} times as fast"
    )
