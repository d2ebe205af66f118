"""TokenStrip: the generated text itself, coloured, with every token's numbers at hand."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from specviz.figures.strip_heat import plot_strip_heat
from specviz.figures.theme import records
from specviz.markup import counted, escape, number
from specviz.strip import token_strip_html
from specviz.trace import Trace
from specviz.widgets.base import Widget
from specviz.widgets.controls import choice, label
from specviz.widgets.replayed import Replayed, sequence_options
from specviz.widgets.strip_data import COLOURS, Strips
from specviz.widgets.strip_view import StripView, strip_page_html

#: The token whose numbers are shown at first: the first after prefill's.
_FIRST = 1
_ROLES = ("prefill", "accepted", "bonus", "own", "own")


class TokenStrip(Widget):
    """Generated text, token by token: entropy, branching, and each token's part in its round.

    Point at a token, click it, or walk with the arrow keys: its p, q, rank, the target's best
    alternatives and its round stand under the text. Selecting text copies it as it was.

    Parameters
    ----------
    trace
        Any trace with positions. Of a greedy capture, k is chosen here and replayed.
    seq
        Which sequence; the first by default.
    drafter
        Whose rounds; the trace's first by default.
    k
        Drafted tokens per round.
    colour
        "entropy", "ebf" or "role".

    Raises
    ------
    ValueError
        When the trace has no positions, or no such sequence, drafter, k or colour.

    Examples
    --------
    >>> import specviz as sv                                                # doctest: +SKIP
    >>> TokenStrip(sv.bundled_trace("smollm2-greedy"), drafter="lm", k=7)   # doctest: +SKIP
    """

    title = "The text, token by token"

    def __init__(
        self,
        trace: Trace,
        *,
        seq: int | None = None,
        drafter: str | None = None,
        k: int = 4,
        colour: str = "entropy",
    ) -> None:
        self.trace, self.strips, self.replayed = trace, Strips(trace), Replayed(trace)
        if colour not in COLOURS.values():
            raise ValueError(f"colour must be one of {[*COLOURS.values()]}, not {colour!r}.")
        options = sequence_options(trace)
        if seq is not None and seq not in options.values():
            raise ValueError(f"This trace has no sequence {seq}.")
        super().__init__(
            {
                "seq": choice("text", options, seq),
                "colour": choice("colour", COLOURS, colour),
                **self.replayed.controls(drafter, k),
            }
        )

    # -- state ----------------------------------------------------------------------------

    @property
    def drafter(self) -> str | None:
        return self["drafter"] if "drafter" in self.controls else None

    @property
    def k(self) -> int:
        return int(self["k"]) if "k" in self.controls else 0

    @property
    def rounds(self) -> pd.DataFrame | None:
        """Rounds of the text that is shown."""
        return self.replayed.rounds(self["seq"], self.drafter, self.k)

    @property
    def paint(self) -> dict[str, Any]:
        return self.strips.paint(self["seq"], self["colour"], self.rounds, self.drafter)

    def react(self, name: str) -> None:
        if name == "drafter":
            self.controls["k"].max = self.replayed.most(self.drafter)
        if name == "seq" and "strip" in self.__dict__:
            self.strip.at = _FIRST

    def refresh(self) -> None:
        super().refresh()
        if "strip" in self.__dict__:
            tokens = self.strips.tokens(self["seq"])
            with self.strip.hold_sync():  # one message
                if tokens != self.strip.tokens:
                    self.strip.tokens = tokens
                self.strip.paint = self.paint

    # -- what is shown --------------------------------------------------------------------

    @cached_property
    def strip(self) -> StripView:
        """The living strip."""
        return StripView(tokens=self.strips.tokens(self["seq"]), paint=self.paint, at=_FIRST)

    def parts(self) -> list[ipywidgets.Widget]:
        return [self.panel, self.alert, self.strip, self.text]

    def draw(self) -> go.Figure:
        rows = self.strips.positions(self["seq"])
        roles = [_ROLES[r] for r in self.paint["roles"]]
        colour = self["colour"]
        return plot_strip_heat(
            rows["text"].tolist(), rows["entropy"].tolist(), roles=roles, colour=colour
        )

    def words(self) -> list[str]:
        rows = self.strips.positions(self["seq"])
        mean = float(rows["entropy"].mean())
        name = label(self.strips.prompt_id(self["seq"]))
        said = (
            f"{counted(len(rows), 'token')} of {name}: mean entropy of the target's "
            f"distribution {number(mean)} nats (temperature 1)."
        )
        return [*self.replayed.words(self["seq"], self.drafter, self.k), said]

    def _body(self) -> str:
        strip = strip_page_html(self.strips.tokens(self["seq"]), self.paint, _FIRST)
        shown = ", ".join(f"{name} {value}" for name, value in self.state.items())
        return f"<h1>{escape(self.title)}</h1><p class='note'>{escape(shown)}</p>" + (
            f"{strip}{self._prose()}"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The widget; where no widget manager is, the strip as plain HTML."""
        rows = self.strips.positions(self["seq"])
        rounds = self.rounds
        still = token_strip_html(
            rows["text"].tolist(),
            rows["entropy"].tolist(),
            rounds=None if rounds is None else records(rounds),
        )
        return {
            **self.view._repr_mimebundle_(),
            "text/html": still + self._prose(),
            "text/plain": repr(self),
        }
