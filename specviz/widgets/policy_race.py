"""PolicyRace: policies on the same text, and what the oracle would still win."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.anchors import require_capture
from specviz.analysis.levers.race import Race
from specviz.cost import CostModel
from specviz.figures.policy_race import plot_policy_race
from specviz.markup import counted, number
from specviz.policies import (
    SVIP,
    ConfidenceStop,
    EBFMatched,
    EMAWindow,
    EntropyGate,
    FixedK,
    Heuristic,
    Policy,
)
from specviz.refuse import whole
from specviz.trace import Trace, need_trace
from specviz.widgets.controls import choice, decimal, slider
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


class PolicyRace(Explorer):
    """Fixed k, stopping rules, gates and schedules side by side, on the same prompts.

    Parameters
    ----------
    trace
        A greedy capture; of another trace the widget says what is missing.
    policies
        Further policies by label, replayed beside the usual ones.
    drafter, kind, cost, draws
        As for `KExplorer`.

    Raises
    ------
    ValueError
        When a policy is none or cannot replay, or as `KExplorer`.

    Examples
    --------
    >>> import specviz as sv
    >>> race = PolicyRace(sv.bundled_trace("smollm2-trees"), drafter="lm", draws=100)
    >>> race.table["policy"].tolist()[0]
    'oracle'
    """

    title = "Policies on the same text"

    def __init__(
        self,
        trace: Trace,
        policies: Mapping[str, Policy] | None = None,
        *,
        drafter: str | None = None,
        kind: str | None = None,
        cost: CostModel | Iterable[CostModel] = (),
        draws: int = DRAWS,
    ) -> None:
        if policies is not None and not isinstance(policies, Mapping):
            raise ValueError(
                f'policies must map labels to policies, such as {{"mine": FixedK(3)}}, not '
                f"{policies!r:.60}."
            )
        self.trace, self.draws = need_trace(trace), whole("draws", draws, least=1)
        self.costs = Costs(trace, cost)
        self.policies = dict(policies or {})
        self._race = lru_cache(maxsize=None)(lambda name: Race(trace, name, draws=draws))
        self._found: tuple[str, pd.DataFrame] = ("", pd.DataFrame())
        missing = refusal(lambda: require_capture(trace))
        super().__init__(lambda: self._controls(drafter, kind), missing)
        if not missing:
            for policy in self.policies.values():
                self._race(self["drafter"]).run(policy)  # refused here rather than when shown

    def _controls(self, drafter: str | None, kind: str | None) -> dict[str, Any]:
        names = self.trace.drafters
        name = self.trace.drafter_name(drafter or furthest(self.trace, names))
        longest = self._longest(name)
        kinds = kinds_of(self.trace)
        one_of("kind", kind or EVERY, [EVERY, *kinds.values()])
        made = {
            "drafter": choice("drafter", names, name),
            "kind": choice("text", kinds, kind),
            "k": slider("fixed k", min(4, longest), 0, longest),
            "threshold": decimal("confidence to go on", 0.4, 0, 1, 0.05),
            **self.costs.controls(self.costs.first(name, longest)),
        }
        made["threshold"].continuous_update = False  # a replay asks the rule at every token
        return made

    def _longest(self, drafter: str) -> int:
        return int(self.trace.meta.drafters[drafter]["k"])

    # -- state ----------------------------------------------------------------------------

    @property
    def racers(self) -> dict[str, Policy]:
        """The policies as the controls stand."""
        most, k = self._longest(self["drafter"]), self["k"]
        racers: dict[str, Policy] = {
            f"fixed k = {k}": FixedK(k),
            f"stop below confidence {self['threshold']:.2f}": ConfidenceStop(
                self["threshold"], most
            ),
            "stop at drafter's entropy (SVIP)": SVIP(k=most),
            "longer after success (heuristic)": Heuristic(start=min(5, most), most=most),
            "moving average of accepted": EMAWindow(start=min(4.0, most), most=most),
        }
        if self.trace.table("positions").num_rows:
            racers["k from branching factor"] = EBFMatched(most=most)
            racers["entropy gate"] = EntropyGate(0.5, 1.5, most)
        return racers | self.policies

    @property
    def table(self) -> pd.DataFrame:
        """The race as the controls stand: `Race.table`."""
        state = self.state
        key = repr(state)
        if self._found[0] != key:
            cost = self.costs.of(state)
            found = self._race(state["drafter"]).table(self.racers, cost, self.kind)
            found.loc[1, "policy"] = str(found.loc[1, "policy"]).replace("fixed-", "fixed k = ")
            self._found = key, found
        return self._found[1]

    def react(self, name: str) -> None:
        if name == "drafter":
            self.controls["k"].max = self._longest(self["drafter"])
        if name == "cost":
            show_sliders(self.controls)

    # -- what is shown --------------------------------------------------------------------

    def picture(self) -> go.Figure:
        return plot_policy_race(self.table, kind=self.kind or "all", unit=self._unit)

    @property
    def _unit(self) -> str:
        plain = self.costs.of(self.state).plain_seconds
        return "tokens per plain step" if plain == 1 else "tokens per second"

    def sentences(self) -> list[str]:
        table = self.table
        oracle, others = table.iloc[0], table.iloc[1:]
        best = others.iloc[int(others["tokens_per_second"].to_numpy().argmax())]
        speed = number(float(best["tokens_per_second"])) + ends(
            best["tokens_per_second_low"], best["tokens_per_second_high"]
        )
        more = f"{number(100 * float(best['regret']), 2)} %" + ends(
            100 * best["regret_low"], 100 * best["regret_high"], " %"
        )
        text = f"{self['kind'].capitalize()} text" if self.kind else "All text"
        return [
            f"Fastest: {best['policy']}, {speed} {self._unit}",
            f"It takes {more} more time than the oracle, which knows beforehand what will be "
            f"accepted and reaches {number(float(oracle['tokens_per_second']))} {self._unit}: no "
            "policy of this drafter can be faster.",
            f"The best fixed k is chosen on all prompts of this trace, with hindsight. {text}, "
            f"drafter {self['drafter']}, {counted(best['n_prompts'], 'prompt')}; 95 % intervals "
            "resample prompts. Seconds are modelled, prefill left out.",
            whose(self.costs.of(self.state), self["drafter"]),
        ]
