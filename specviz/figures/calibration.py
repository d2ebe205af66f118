"""Predicted chances against what came true."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import FEW, INK, SHARES, bars, colours, need, records, titled
from specviz.markup import counted, number


def plot_calibration(table: pd.DataFrame, *, model: str = "") -> go.Figure:
    """Share of tokens accepted against the chance predicted for them, in bins of like size.

    On the dashed line the predictions mean what they say. Points of fewer than 20 tokens are
    hollow.

    Parameters
    ----------
    table
        `HazardModel.calibration`, or as `specviz.analysis.hazards.curves.calibration` gives:
        `predicted`, `accepted`, `low`, `high`, `n_tokens`, `n_prompts`.
    model
        Named in the title when given.

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
    >>> table = pd.DataFrame({"predicted": [0.2, 0.8], "accepted": [0.23, 0.79],
    ...     "low": [0.1, 0.7], "high": [0.3, 0.9], "n_tokens": 50, "n_prompts": 9})
    >>> plot_calibration(table).layout.title.text
    'Predicted chances miss by 2.0 points on average, by 3.0 at most'
    """
    columns = ("predicted", "accepted", "low", "high", "n_tokens", "n_prompts")
    part = need(table, columns, "specviz.hazard_model").sort_values("predicted")
    tint = colours(["code"])["code"]
    figure = go.Figure()
    figure.add_scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        line={"color": INK, "width": 1.2, "dash": "dash"},
        hoverinfo="skip",
        showlegend=False,
    )
    figure.add_scatter(
        x=part["predicted"],
        y=part["accepted"],
        error_y=bars(part["accepted"], part["low"], part["high"], tint),
        mode="markers",
        marker={
            "color": tint,
            "size": 9,
            "symbol": ["circle" + "-open" * (n < FEW) for n in part["n_tokens"]],
        },
        customdata=[
            f"{number(row['low'])} to {number(row['high'])}; {counted(row['n_tokens'], 'token')}, "
            f"{counted(row['n_prompts'], 'prompt')}"
            for row in records(part)
        ],
        hovertemplate="predicted %{x:.1%}, accepted %{y:.1%}<br>%{customdata}<extra></extra>",
        showlegend=False,
    )
    axis = SHARES | {"range": [-0.03, 1.03]}
    figure.update_layout(
        xaxis=axis | {"title": "predicted chance of being accepted (mean of the bin)"},
        yaxis=axis | {"title": "share accepted (prompts resampled)"},
    )
    return titled(figure, _finding(part, model))


def _finding(part: pd.DataFrame, model: str) -> str:
    miss = 100 * (part["predicted"] - part["accepted"]).abs()
    mean = float((miss * part["n_tokens"]).sum() / part["n_tokens"].sum())
    lead = f"{model}: predicted" if model else "Predicted"
    return f"{lead} chances miss by {mean:.1f} points on average, by {miss.max():.1f} at most"
