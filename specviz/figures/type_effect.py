"""What the kind of text still says of acceptance once other things are held."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from specviz.figures.theme import INK, LEGEND_BELOW, bars, colours, need, records, symbols, titled
from specviz.markup import counted, escape

_APART = 0.2  # of a row, between what is held


def plot_type_effect(effects: pd.DataFrame) -> go.Figure:
    """Difference in P(accept) between two kinds of text, a row per drafter, by what is held.

    Parameters
    ----------
    effects
        As `specviz.residual_type_effect` gives, for one contrast of types; for several drafters
        one table below the other, each with a column `drafter`: `given`, `contrast`,
        `difference`, `difference_low`, `difference_high`, `n_tokens`, `n_prompts`.

    Returns
    -------
    plotly.graph_objects.Figure
        Percentage points, with the intervals of the table.

    Raises
    ------
    ValueError
        When a column is missing, the table is empty, or it holds several contrasts.

    Examples
    --------
    >>> import pandas as pd
    >>> effects = pd.DataFrame({"drafter": "lm", "given": ["nothing", "entropy"],
    ...     "contrast": "prose against code", "difference": [-0.05, 0.12],
    ...     "difference_low": [-0.1, 0.07], "difference_high": [0.0, 0.17], "n_tokens": 99,
    ...     "n_prompts": 9})
    >>> plot_type_effect(effects).layout.title.text
    'Prose against code, given entropy: accepted more with 1 of 1 drafter (1 clear of 0)'
    """
    columns = ("given", "contrast", "difference", "difference_low", "difference_high")
    need(effects, (*columns, "n_tokens", "n_prompts"), "specviz.residual_type_effect")
    contrasts = list(dict.fromkeys(effects["contrast"].astype(str)))
    if len(contrasts) > 1:
        raise ValueError(f"This table compares {', '.join(contrasts)}: draw one of them at a time.")
    if "drafter" not in effects.columns:
        effects = effects.assign(drafter="")
    drafters = list(dict.fromkeys(effects["drafter"].astype(str)))
    held = list(dict.fromkeys(effects["given"].astype(str)))
    tint, mark = colours(held), symbols(held)
    figure = go.Figure()
    for i, given in enumerate(held):
        part = effects[effects["given"].astype(str) == given]
        points = 100 * part[["difference", "difference_low", "difference_high"]]
        row = part["drafter"].astype(str).map(drafters.index)
        figure.add_scatter(
            x=points["difference"],
            y=row + _APART * (i - (len(held) - 1) / 2),
            error_x=bars(
                points["difference"],
                points["difference_low"],
                points["difference_high"],
                tint[given],
            ),
            mode="markers",
            marker={"color": tint[given], "symbol": mark[given], "size": 9},
            name=escape(f"given {given}"),
            customdata=[
                f"{escape(each['drafter'])}: {counted(each['n_tokens'], 'token')}, "
                f"{counted(each['n_prompts'], 'prompt')}"
                for each in records(part)
            ],
            hovertemplate="%{x:+.1f} points<br>%{customdata}",
        )
    figure.add_vline(x=0, line={"color": INK, "width": 1.2, "dash": "dash"})
    titled(figure, _finding(effects, contrasts[0], held[-1]))
    return figure.update_layout(
        xaxis={"title": f"P(accept), {escape(contrasts[0])} (percentage points)"},
        yaxis={
            "tickvals": list(range(len(drafters))),
            "ticktext": [escape(name) for name in drafters],
            "range": [len(drafters) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        },
        legend={**LEGEND_BELOW, "orientation": "v"},
        height=210 + 62 * max(len(drafters), 2) + 20 * len(held),
        margin_b=76 + 22 * len(held),
    )


def _finding(effects: pd.DataFrame, contrast: str, given: str) -> str:
    last = effects[effects["given"].astype(str) == given]
    more = last["difference"] > 0
    way, mine = ("more", last[more]) if 2 * more.sum() >= len(last) else ("less", last[~more])
    sure = (mine["difference_low"] > 0) | (mine["difference_high"] < 0)
    drafters = counted(len(last), "drafter")
    what = contrast[:1].upper() + contrast[1:]
    return (
        f"{what}, given {given}: accepted {way} with {len(mine)} of {drafters} "
        f"({sure.sum()} clear of 0)"
    )
