"""EntropyLens: where the target is unsure, drafts are short; brush the text or the curve."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import ipywidgets
import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.branching_lens import BranchingLens
from specviz.figures.lens_curve import plot_lens_curve
from specviz.markup import counted, escape, number
from specviz.trace import Trace
from specviz.widgets.base import Widget
from specviz.widgets.controls import choice, options_of
from specviz.widgets.replayed import Replayed, sequence_options
from specviz.widgets.strip_data import EBF_EDGES, Strips
from specviz.widgets.strip_view import StripView, strip_page_html


class EntropyLens(Widget):
    """The text beside the curve of accepted length against the target's branching factor.

    Every anchor of a greedy capture is a point: across, EBF = exp(H) of the target's
    distribution for the token after it; up, how many drafted tokens would be accepted there.
    Draw a box around points and their places light up in the text; select text, or walk with
    shift and the arrow keys, and its points light up in the curve.

    Parameters
    ----------
    trace
        A greedy capture.
    seq, drafter
        Which text is shown, and whose drafts; the first by default.
    k
        Drafted tokens at most.

    Raises
    ------
    ValueError
        When the trace is no greedy capture, or lacks the sequence or drafter.

    Examples
    --------
    >>> import specviz as sv                                                  # doctest: +SKIP
    >>> EntropyLens(sv.bundled_trace("smollm2-greedy"), drafter="lm")         # doctest: +SKIP
    """

    title = "Entropy against accepted length"

    def __init__(
        self, trace: Trace, *, seq: int | None = None, drafter: str | None = None, k: int = 7
    ) -> None:
        self.trace, self.strips, self.replayed = trace, Strips(trace), Replayed(trace)
        if not self.replayed.can:
            raise ValueError(
                "The lens needs a draft at every anchor, so a greedy capture: this "
                f"{trace.meta.kind} trace has none."
            )
        options = sequence_options(trace)
        if seq is not None and seq not in options.values():
            raise ValueError(f"This trace has no sequence {seq}.")
        kinds = {"all": None, **{kind: kind for kind in trace.content_types}}
        name = trace.drafter_name(drafter) if drafter else trace.drafters[0]
        chosen = self.replayed.controls(name, min(k, self.replayed.most(name)))
        chosen["k"].min = 1
        super().__init__(
            {"kind": choice("content type", kinds), "seq": choice("text", options, seq), **chosen}
        )
        self._points: list[int] = []  # places of the shown text that are brushed
        self._lens = lru_cache(maxsize=None)(lambda name: BranchingLens(trace, name, EBF_EDGES))
        self._curve = lru_cache(maxsize=64)(lambda name, *asked: self._lens(name).curve(*asked))

    # -- state ----------------------------------------------------------------------------

    @property
    def lens(self) -> BranchingLens:
        """The chosen drafter's anchors."""
        return self._lens(self["drafter"])

    @property
    def table(self) -> pd.DataFrame:
        """One row per anchor: seq, prompt_id, content_type, t (= a + 1), ebf, accepted."""
        return self.lens.table(self["k"])

    @property
    def own(self) -> pd.DataFrame:
        """The rows of `table` that are of the shown text."""
        return self.lens.of_text(self["seq"], self["k"])

    @property
    def curve(self) -> pd.DataFrame:
        """Mean accepted length in steps of EBF, by content type; intervals resample prompts."""
        return self._curve(self["drafter"], self["k"], self["kind"])

    def react(self, name: str) -> None:
        if name == "kind":
            options = sequence_options(self.trace, self["kind"])
            self.controls["seq"].options = options_of(options)
        if name == "drafter":
            self.controls["k"].max = self.replayed.most(self["drafter"])
        if name in ("kind", "seq"):
            self._points = []
            if "strip" in self.__dict__:
                self.strip.at, self.strip.span = 1, []

    def refresh(self) -> None:
        super().refresh()
        if "strip" in self.__dict__:
            tokens = self.strips.tokens(self["seq"])
            with self.strip.hold_sync():  # one message
                if tokens != self.strip.tokens:
                    self.strip.tokens = tokens
                self.strip.paint, self.strip.marked = self.paint, self._points

    # -- brushing -------------------------------------------------------------------------

    def brushed(self, points: list[tuple[int, int]]) -> None:
        mine = self.own
        last = len(self.figure.data) - 1  # the shown text's points are drawn last
        self._points = [int(mine["t"].iloc[p]) for trace, p in points if trace == last]
        self.refresh()

    def select(self, first: int, last: int) -> None:
        """Brush the places y[first..last] of the text."""
        self._points = [int(t) for t in self.own["t"] if first <= t <= last]
        self.refresh()

    # -- what is shown --------------------------------------------------------------------

    @property
    def paint(self) -> dict[str, Any]:
        rounds = self.replayed.rounds(self["seq"], self["drafter"], self["k"])
        return self.strips.paint(self["seq"], "ebf", rounds, self["drafter"])

    @cached_property
    def strip(self) -> StripView:
        """The living strip."""
        view = StripView(tokens=self.strips.tokens(self["seq"]), paint=self.paint, at=1)

        def selected(change: Any) -> None:
            first, last = change["new"] or (0, -1)
            self.select(first, last)

        view.observe(self.guarded(selected), "span")
        return view

    def parts(self) -> list[ipywidgets.Widget]:
        return [self.panel, self.alert, self.plot, self.strip, self.text]

    def draw(self) -> go.Figure:
        own = self.own
        texts = self.strips.positions(self["seq"])["text"].tolist()
        return plot_lens_curve(
            self.curve,
            own.assign(text=[texts[t] for t in own["t"]]),
            chosen=self._points,
            k=self["k"],
            drafter=self["drafter"],
        )

    def words(self) -> list[str]:
        own, curve = self.own, self.curve
        n, prompts = int(curve["n_anchors"].sum()), int(curve["n_prompts"].max())
        if self._points:
            some = own[own["t"].isin(self._points)]
            rest = own[~own["t"].isin(self._points)]
            first = f"{number(float(some['accepted'].mean()))} accepted where brushed"
            if len(rest):
                first += f", {number(float(rest['accepted'].mean()))} elsewhere in this text"
            first += f" ({counted(len(some), 'anchor')})"
        else:
            first = f"{number(float(own['accepted'].mean()))} accepted per anchor of this text"
        return [
            first,
            "Accepted: leading drafted tokens that would be kept if a round of "
            f"{self['k']} started at that anchor; bonus not counted. EBF = exp(H), H the entropy "
            "of the target's distribution for the token right after the anchor.",
            f"The curve: {counted(n, 'anchor')} of up to {counted(prompts, 'prompt')} in a step; "
            "95 % intervals resample prompts. All anchors count alike here, though rounds do not "
            "visit all of them: the mean is not tokens per round.",
        ]

    def _body(self) -> str:
        strip = strip_page_html(self.strips.tokens(self["seq"]), self.paint, 1, self._points)
        return f"<h1>{escape(self.title)}</h1>{self._still()}{strip}{self._prose()}"
