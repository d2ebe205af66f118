"""A picture of nothing, that says why."""

from __future__ import annotations

import plotly.graph_objects as go

from specviz.figures.theme import titled


def plot_nothing(why: str) -> go.Figure:
    """An empty figure whose title is the reason.

    Parameters
    ----------
    why
        One sentence, plain text.

    Examples
    --------
    >>> plot_nothing("This trace has no drafts.").layout.title.text
    'This trace has no drafts.'
    """
    figure = titled(go.Figure(), why)
    figure.update_layout(xaxis_visible=False, yaxis_visible=False)
    return figure.update_layout(height=figure.layout.margin.t + 16, margin_b=8)
