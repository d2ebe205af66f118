"""Widgets on a trace that may lack what they need: then they say so, in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.replays.replay import replay
from specviz.figures.nothing import plot_nothing
from specviz.markup import escape, number
from specviz.policies import FixedK
from specviz.trace import Trace
from specviz.widgets.base import Widget

#: Resamples of prompts behind every interval of a widget: enough to read, and quick.
DRAWS = 2_000
#: Value of the choice of all content types; None would show as nothing chosen.
EVERY = ""


class Explorer(Widget):
    """A widget that shows `missing`, a sentence, in place of everything else where there is one.

    Subclasses write `picture` and `sentences` for `draw` and `words`.

    Parameters
    ----------
    controls
        Makes the controls; called only where nothing is missing.
    missing
        Why the trace cannot be shown; "" where it can.
    """

    def __init__(self, controls: Callable[[], Mapping[str, Any]], missing: str = "") -> None:
        self.missing = missing
        super().__init__({} if missing else controls())

    @property
    def kind(self) -> str | None:
        """The chosen content type; None for all of them."""
        return self["kind"] or None

    def picture(self) -> go.Figure:
        """As `draw`, of a trace that has what it takes."""
        raise NotImplementedError(f"{type(self).__name__} has no picture().")

    def sentences(self) -> list[str]:
        """As `words`, of a trace that has what it takes."""
        return []

    def details(self) -> str:
        """As `extra`, of a trace that has what it takes."""
        return ""

    def draw(self) -> go.Figure:
        return plot_nothing(self.missing) if self.missing else self.picture()

    def words(self) -> list[str]:
        return [self.missing] if self.missing else self.sentences()

    def extra(self) -> str:
        return "" if self.missing else self.details()

    def parts(self) -> list[ipywidgets.Widget]:
        return [self.text] if self.missing else super().parts()

    def _body(self) -> str:
        if self.missing:
            return f"<h1>{escape(self.title)}</h1>{self._prose()}"
        return super()._body()


def refusal(check: Callable[[], object]) -> str:
    """The sentence with which `check` refuses, or ""."""
    try:
        check()
    except ValueError as error:
        return str(error)
    return ""


def kinds_of(trace: Trace) -> dict[str, str]:
    """Content types to choose from, "all" (`EVERY`) first where there are several."""
    kinds = trace.content_types
    every = {"all": EVERY} if len(kinds) != 1 else {}
    return every | {kind: kind for kind in kinds}


def furthest(trace: Trace, names: Sequence[str]) -> str:
    """The drafter of `names` with the most tokens per round; the first, where none can be replayed.

    What a widget starts with, when nothing else is asked for.
    """
    try:
        k = min(7, *(int(trace.meta.drafters[name]["k"]) for name in names))
        reached = {name: replay(trace, FixedK(k), name).tokens_per_round for name in names}
    except ValueError:
        return names[0]
    return max(reached, key=lambda name: reached[name])


def rows_of(table: pd.DataFrame, kind: str | None) -> pd.DataFrame:
    """The rows of one content type; None is "all", or the only type where there is one."""
    kinds = table["content_type"].unique().tolist()
    wanted = kind or ("all" if "all" in kinds or len(kinds) != 1 else kinds[0])
    return table[table["content_type"] == wanted]


def one_of(name: str, value: Any, options: Any) -> Any:
    """`value`, if it is among the options.

    Raises
    ------
    ValueError
        Otherwise; the sentence lists them.
    """
    known = list(options)
    if value not in known:
        shown = ", ".join(str(o) for o in known if o)
        raise ValueError(f"{name} must be one of {shown}, not {value!r}.")
    return value


def ends(low: float, high: float, unit: str = "") -> str:
    """An interval in parentheses with a space before, or nothing where there is none.

    Examples
    --------
    >>> ends(1.25, 1.5), ends(float("nan"), float("nan"))
    (' (1.25 to 1.50)', '')
    """
    if math.isnan(low) or math.isnan(high):
        return ""
    return f" ({number(float(low))} to {number(float(high))}{unit})"
