"""Whose cost a picture uses: measured, a preset, free drafts, or the reader's own sliders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specviz.cost import ANY, LONGEST, CostModel, need_cost
from specviz.presets import free_drafts, t4_like
from specviz.trace import Trace
from specviz.widgets.controls import choice, decimal
from specviz.widgets.explorer import one_of

OWN = "own sliders"
_SLIDERS = ("per_token", "per_row")


class Costs:
    """The cost models a reader can choose from.

    Parameters
    ----------
    trace
        Its own cost models are "measured".
    given
        Further ones, named first.

    Raises
    ------
    ValueError
        When one is no cost model, or two share a name.
    """

    def __init__(self, trace: Trace, given: CostModel | Iterable[CostModel] = ()) -> None:
        own = [CostModel.from_dict(raw) for raw in trace.meta.cost_models]
        mine = [given] if isinstance(given, CostModel) else [need_cost(cost) for cost in given]
        measured = [*mine, *own]
        # Free drafts take the plain step of a model that knows seconds, so that rates compare.
        models = [*measured, t4_like(), free_drafts((measured or [t4_like()])[0])]
        self.models: dict[str, CostModel] = {}
        for i, model in enumerate(models):
            if model.name in self.models:
                if i >= len(measured):  # a preset that was given, too
                    continue
                raise ValueError(f"Two cost models have one name: {model.name!r}. Rename one.")
            self.models[model.name] = model
        self.plain = models[0].plain_seconds

    def first(self, drafter: str, k: int) -> str:
        """The first model that prices this drafter up to k tokens; presets price any."""
        for name, model in self.models.items():
            try:
                model.round_seconds(drafter, k)
            except ValueError:
                continue
            return name
        return OWN

    def controls(self, chosen: str) -> dict[str, Any]:
        """The choice, and the two sliders that show where the reader's own are chosen."""
        one_of("cost", chosen, [*self.models, OWN])
        shown = {_label(model): name for name, model in self.models.items()}
        made = {
            "cost": choice("cost", {**shown, OWN: OWN}, chosen),
            "per_token": decimal("drafting a token, plain steps", 0.1, 0, 1),
            "per_row": decimal("verifying a further row, plain steps", 0.02, 0, 0.5, 0.005, ".3f"),
        }
        for name in _SLIDERS:
            made[name].layout.width = "440px"  # their labels are long
        show_sliders(made)
        return made

    def of(self, state: Mapping[str, Any]) -> CostModel:
        """The model that the controls stand at."""
        if state["cost"] != OWN:
            return self.models[state["cost"]]
        token, row = state["per_token"], state["per_row"]
        return CostModel(
            OWN,
            "given",
            verify=(self.plain, self.plain * (1 + row)),
            draft={ANY: tuple(self.plain * token * k for k in range(LONGEST + 1))},
            note=f"Set by hand: a drafted token takes {token:.2f} plain steps, a further verified "
            f"row {row:.3f}; a plain step {1e3 * self.plain:.3g} ms.",
        )


def show_sliders(controls: Mapping[str, Any]) -> None:
    """Show the reader's own sliders only where they count."""
    for name in _SLIDERS:
        controls[name].layout.display = "" if controls["cost"].value == OWN else "none"


def whose(cost: CostModel, drafter: str = "") -> str:
    """The sentence that every picture over k carries: whose cost it uses."""
    name = cost.name if cost.name == cost.provenance else f"{cost.name} ({cost.provenance})"
    simulated = f" The cost of {drafter} is simulated." if drafter in cost.simulated else ""
    note = f" {cost.note.rstrip('.')}." if cost.note else ""
    return f"Cost: {name}.{note}{simulated}"


def _label(model: CostModel) -> str:
    same = model.provenance in (model.name, "")
    return model.name if same else f"{model.name} ({model.provenance})"
