"""KExplorer: how long a draft should be, under anybody's cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.anchors import require_capture
from specviz.analysis.replays.prepared import Chances, PreparedK
from specviz.cost import CostModel
from specviz.figures.k_choice import plot_k_choice
from specviz.markup import counted, number
from specviz.refuse import whole
from specviz.trace import Trace, need_trace
from specviz.widgets.controls import choice, slider
from specviz.widgets.costs import Costs, show_sliders, whose
from specviz.widgets.explorer import (
    DRAWS,
    EVERY,
    Explorer,
    ends,
    furthest,
    kinds_of,
    one_of,
    refusal,
)


class KExplorer(Explorer):
    """Tokens per round, speed-up, break-even and best k, every k replayed exactly.

    Click a point of the picture to choose its k.

    Parameters
    ----------
    trace
        A greedy capture; of another trace the widget says what is missing.
    drafter
        Whose drafts; by default the one that gets furthest.
    kind
        Content type; None takes all prompts together.
    k
        Tokens drafted per round; by default 7, or the drafter's K where that is less.
    cost
        Cost models to choose from, first the one to start with. The trace's own, a preset and
        free drafts are there in any case.
    draws
        Resamples of prompts behind every interval.

    Raises
    ------
    ValueError
        When there is no such drafter or content type, k is out of range, or a cost is none.

    Examples
    --------
    >>> import specviz as sv
    >>> widget = KExplorer(sv.bundled_trace("smollm2-trees"), drafter="lm", kind="code", draws=100)
    >>> round(float(widget.chances.curve.tokens_per_round[7]), 2)
    2.13
    """

    title = "How long should a draft be?"

    def __init__(
        self,
        trace: Trace,
        *,
        drafter: str | None = None,
        kind: str | None = None,
        k: int | None = None,
        cost: CostModel | Iterable[CostModel] = (),
        draws: int = DRAWS,
    ) -> None:
        self.trace, self.draws = need_trace(trace), whole("draws", draws, least=1)
        self.costs = Costs(trace, cost)
        self._prepared = lru_cache(maxsize=None)(self._prepare)
        self._priced = lru_cache(maxsize=64)(self._price)
        self._points = lru_cache(maxsize=8)(self._all)
        super().__init__(
            lambda: self._controls(drafter, kind, k), refusal(lambda: require_capture(trace))
        )

    def _controls(self, drafter: str | None, kind: str | None, k: int | None) -> dict[str, Any]:
        names = self.trace.drafters
        name = self.trace.drafter_name(drafter or furthest(self.trace, names))
        longest = int(self.trace.meta.drafters[name]["k"])
        start = min(7, longest) if k is None else whole("k", k, least=0)
        if start > longest:
            raise ValueError(f"{name} drafts at most {longest} tokens here, not {start}.")
        kinds = kinds_of(self.trace)
        one_of("kind", kind or EVERY, [EVERY, *kinds.values()])
        return {
            "drafter": choice("drafter", names, name),
            "kind": choice("text", kinds, kind),
            "k": slider("k, drafted tokens", start, 0, longest),
            **self.costs.controls(self.costs.first(name, longest)),
        }

    # -- state ----------------------------------------------------------------------------

    @property
    def chances(self) -> Chances:
        """Every k of the chosen drafter and text under the chosen cost."""
        state = self.state
        return self._priced(state["drafter"], self.kind, _Key(self.costs.of(state)))

    def react(self, name: str) -> None:
        if name == "drafter":
            self.controls["k"].max = int(self.trace.meta.drafters[self["drafter"]]["k"])
        if name == "cost":
            show_sliders(self.controls)

    def clicked(self, point: Mapping[str, Any]) -> None:
        if self.figure.data[point["trace"]].mode == "lines+markers":
            self.set(k=int(point["x"]))

    # -- what is shown --------------------------------------------------------------------

    def picture(self) -> go.Figure:
        found, kind = self.chances, self.kind
        points = self._points(self["drafter"], _Key(self.costs.of(self.state)))
        return plot_k_choice(
            found.curve,
            found.best,
            self["k"],
            None if kind is None else points[points["content_type"] != kind],
            kind=kind or "all",
            drafter=self["drafter"],
        )

    def sentences(self) -> list[str]:
        cost, k = self.costs.of(self.state), self["k"]
        found = self.chances
        row = found.curve[found.curve["k"] == k].iloc[0]
        around = ends(row["tokens_low"], row["tokens_high"])
        length = f"{number(float(row['tokens_per_round']))} tokens per round{around}"
        speed = f"{number(float(row['speedup']))}x plain decoding" + ends(row["low"], row["high"])
        even = number(float(row["step_ratio"])) + ends(row["ratio_low"], row["ratio_high"])
        text = f"{self['kind']} text" if self.kind else "all text"
        return [
            f"k = {k}: {length}, {speed}",
            f"Break-even: a round of k = {k} takes {even} plain steps, so drafting pays where it "
            "emits more tokens than that.",
            _best(found.best),
            f"Bonus counted. Replayed exactly: {self['drafter']} on {text}, "
            f"{counted(row['n_rounds'], 'round')} of {counted(row['n_prompts'], 'prompt')}. In "
            "parentheses, 95 % intervals over resampled prompts, not the noise of the timings.",
            whose(cost, self["drafter"]),
        ]

    def _prepare(self, drafter: str) -> PreparedK:
        return PreparedK(self.trace, drafter, draws=self.draws)

    def _all(self, drafter: str, cost: _Key) -> pd.DataFrame:
        return self._prepared(drafter).points(cost.model)

    def _price(self, drafter: str, kind: str | None, cost: _Key) -> Chances:
        return self._prepared(drafter).priced(cost.model, kind)


class _Key:
    """A cost model as a dictionary's key."""

    def __init__(self, model: CostModel) -> None:
        self.model, self.text = model, repr(model)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


def _best(best: dict[str, Any]) -> str:
    spread = ""
    if best["n_prompts"] > 1:
        low, high = best["k_low"], best["k_high"]
        spread = f" Over resampled prompts the fastest k is {low}"
        spread += f" to {high}" if high > low else ""
        spread += f"; {100 * best['k_share']:.0f} % of them agree with this one."
    if not best["k"]:
        return (
            "Best k: 0, do not draft. No length is surely faster than plain decoding; the "
            f"nearest, k = {best['second_k']}, gives {number(float(best['second_speedup']))}x."
            + spread
        )
    speed = number(float(best["speedup"])) + "x" + ends(best["low"], best["high"])
    return f"Best k: {best['k']}, {speed}." + spread
