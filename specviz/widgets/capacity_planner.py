"""CapacityPlanner: a mix of kinds of text, its speed, and whether a promise is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import ipywidgets
import plotly.graph_objects as go

from specviz.analysis.anchors import require_capture
from specviz.analysis.replays.prepared import PreparedK
from specviz.analysis.serving.capacity import SLA, Capacity, planned
from specviz.analysis.serving.prepared import PreparedLoads
from specviz.cost import CostModel
from specviz.figures.capacity import plot_capacity
from specviz.markup import counted, number, table_html
from specviz.policies import FixedK, Policy
from specviz.refuse import whole
from specviz.trace import Trace, need_trace
from specviz.widgets.controls import choice, decimal, slider
from specviz.widgets.costs import Costs, show_sliders, whose
from specviz.widgets.explorer import Explorer, ends, furthest, one_of, refusal

ONE, EACH = "one k for all", "the best k of each kind"
_MOST_STEPS = 6  # the promise of waiting goes up to so many plain steps
#: The p95 of a mix is found again in every resample: fewer of them keep the sliders quick.
PLANNED = 400


class CapacityPlanner(Explorer):
    """Content-mix sliders to throughput, waiting and an SLA verdict, replayed from a capture.

    Parameters
    ----------
    trace
        A greedy capture; of another trace the widget says what is missing.
    drafter
        Whose drafts; by default the one that gets furthest.
    mix
        Content type to its weight, 0 to 10; by default all the same.
    k
        Tokens drafted per round where one k serves all.
    cost
        As for `KExplorer`.
    draws
        Resamples of prompts behind every interval.

    Raises
    ------
    ValueError
        When the mix names a kind the trace lacks or a weight is out of range, or as `KExplorer`.

    Examples
    --------
    >>> import specviz as sv
    >>> plan = CapacityPlanner(sv.bundled_trace("smollm2-trees"), drafter="lm", mix={"code": 3})
    >>> plan.plan.table["content_type"].tolist()
    ['code', 'mix']
    """

    title = "What a mix of text needs"

    def __init__(
        self,
        trace: Trace,
        *,
        drafter: str | None = None,
        mix: Mapping[str, int] | None = None,
        k: int | None = None,
        cost: CostModel | Iterable[CostModel] = (),
        draws: int = PLANNED,
    ) -> None:
        self.trace, self.draws = need_trace(trace), whole("draws", draws, least=1)
        self.costs = Costs(trace, cost)
        self.weights = {f"mix {i}": kind for i, kind in enumerate(trace.content_types)}
        self._prepared = lru_cache(maxsize=None)(lambda name: PreparedK(trace, name, draws=draws))
        self._loads = lru_cache(maxsize=None)(lambda name: PreparedLoads(trace, name, draws=draws))
        self._found: tuple[str, Capacity | None] = ("", None)
        super().__init__(
            lambda: self._controls(drafter, mix, k), refusal(lambda: require_capture(trace))
        )

    def _controls(
        self, drafter: str | None, mix: Mapping[str, int] | None, k: int | None
    ) -> dict[str, Any]:
        names = self.trace.drafters
        name = self.trace.drafter_name(drafter or furthest(self.trace, names))
        longest = int(self.trace.meta.drafters[name]["k"])
        start = min(3, longest) if k is None else whole("k", k, least=0)
        if start > longest:
            raise ValueError(f"{name} drafts at most {longest} tokens here, not {start}.")
        wanted = dict.fromkeys(self.weights.values(), 1) if mix is None else dict(mix)
        for kind, weight in wanted.items():
            one_of("mix", kind, self.weights.values())
            if whole(f"The weight of {kind}", weight, least=0) > 10:
                raise ValueError(f"Weights go from 0 to 10, and {kind} has {weight}.")
        made: dict[str, Any] = {
            "drafter": choice("drafter", names, name),
            "policy": choice("draft", [ONE, EACH]),
            "k": slider("k, drafted tokens", start, 0, longest),
            **self.costs.controls(self.costs.first(name, longest)),
        }
        for key, kind in self.weights.items():
            made[key] = slider(kind, wanted.get(kind, 0), 0, 10)
        made["speed"] = decimal("SLA: tokens per second, at least (0: none)", 0, 0, 1, 0.5, ".1f")
        made["wait"] = decimal("SLA: ms per token, p95 at most (0: none)", 0, 0, 1, 1, ".0f")
        made["demand"] = slider("tokens per second wanted in all", 1000, 0, 10_000, 100)
        for key in ("k", "per_token", "per_row", *self.weights, "speed", "wait"):
            made[key].continuous_update = False  # the resamples take a little
        for key in ("speed", "wait", "demand"):
            made[key].layout.width = "520px"
        self.controls = made
        self._fit()
        return made

    # -- state ----------------------------------------------------------------------------

    @property
    def mix(self) -> dict[str, int]:
        """Content type to weight, those with one."""
        return {kind: self[key] for key, kind in self.weights.items() if self[key] > 0}

    @property
    def plan(self) -> Capacity:
        """What `specviz.capacity` says of the mix as the controls stand."""
        state = {name: value for name, value in self.state.items() if name != "demand"}
        if self._found[0] != repr(state) or self._found[1] is None:
            if not self.mix:
                raise ValueError("The mix is empty: give at least one kind of text a weight.")
            promised = self["speed"] or None, (self["wait"] or 0) / 1000 or None
            sla = SLA(promised[0], promised[1]) if any(promised) else None
            ready = self._loads(self["drafter"])
            found = planned(ready, self.mix, self.costs.of(state), self.policies, sla)
            self._found = repr(state), found
        found_now = self._found[1]
        assert found_now is not None
        return found_now

    @property
    def policies(self) -> Policy | dict[str, Policy]:
        """The fixed k of every kind of the mix."""
        if self["policy"] == ONE:
            return FixedK(self["k"])
        cost, prepared = self.costs.of(self.state), self._prepared(self["drafter"])
        return {kind: FixedK(prepared.priced(cost, kind).best["k"]) for kind in self.mix}

    def react(self, name: str) -> None:
        if name == "drafter":
            self.controls["k"].max = int(self.trace.meta.drafters[self["drafter"]]["k"])
        if name == "policy":
            self.controls["k"].layout.display = "" if self["policy"] == ONE else "none"
        if name == "cost":
            show_sliders(self.controls)
            self._fit()

    def _fit(self) -> None:
        """Promises in the range of what the cost model can give."""
        plain = self.costs.of({n: c.value for n, c in self.controls.items()}).plain_seconds
        for name, most in (("speed", 4 / plain), ("wait", 1000 * _MOST_STEPS * plain)):
            control = self.controls[name]
            control.max = most
            control.step = most / 80

    # -- what is shown --------------------------------------------------------------------

    def picture(self) -> go.Figure:
        cost = self.costs.of(self.state)
        return plot_capacity(
            self.plan.table,
            cost.plain_seconds,
            speed=self["speed"] or None,
            wait=(self["wait"] or 0) / 1000 or None,
            cost=cost.name,
        )

    def sentences(self) -> list[str]:
        found = self.plan
        mix = found.table.iloc[-1]
        speed = number(float(mix["tokens_per_second"])) + ends(
            mix["tokens_per_second_low"], mix["tokens_per_second_high"]
        )
        verdict = f"; SLA: {mix['sla']}" if "sla" in mix else ""
        said = [f"The mix: {speed} tokens per second for one request at a time{verdict}"]
        if self["demand"]:
            few, many = found.servers(self["demand"])
            more = f" ({many} at the lower end of the interval)" if many > few else ""
            said.append(
                f"{self['demand']:,} tokens per second in all take {few} such streams{more}, each "
                "as fast as this: two on one device are not."
            )
        return [
            *said,
            f"Bonus counted; {counted(mix['n_rounds'], 'round')} of "
            f"{counted(mix['n_prompts'], 'prompt')}, replayed exactly; 95 % intervals resample the "
            "prompts of each kind. Shares are of the tokens, not of the requests.",
            whose(self.costs.of(self.state), self["drafter"]),
        ]

    def details(self) -> str:
        found = self.plan
        rows = [{"in words": sentence} for sentence in found.sentences]
        return f"<details><summary>kind by kind</summary>{table_html(rows)}</details>"

    def parts(self) -> list[ipywidgets.Widget]:
        if self.missing:
            return super().parts()
        wrap = ipywidgets.Layout(flex_flow="row wrap", width="100%")
        mixed = [self.controls[key] for key in self.weights]
        last = [self.controls[key] for key in ("speed", "wait", "demand")]
        rest = [c for c in self.controls.values() if c not in [*mixed, *last]]
        rows = [ipywidgets.HBox(part, layout=wrap) for part in (rest, mixed, last)]
        return [*rows, self.alert, self.plot, self.text]
