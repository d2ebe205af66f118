"""Everything a trace can show, in tabs; and the one picture that says most about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import ipywidgets
from plotly.offline import get_plotlyjs

from specviz.cost import CostModel
from specviz.markup import escape, page_html
from specviz.trace import Trace, need_trace
from specviz.trace.target_trees import TargetTrees, need_trees
from specviz.widgets.base import Widget, in_kernel
from specviz.widgets.bounds_lab import BoundsLab
from specviz.widgets.capacity_planner import CapacityPlanner
from specviz.widgets.claim_audit import ClaimAudit
from specviz.widgets.drafter_race import DrafterRace
from specviz.widgets.entropy_lens import EntropyLens
from specviz.widgets.explorer import furthest
from specviz.widgets.k_explorer import KExplorer
from specviz.widgets.own_trees import misfit
from specviz.widgets.policy_race import PolicyRace
from specviz.widgets.round_stepper import RoundStepper
from specviz.widgets.token_strip import TokenStrip
from specviz.widgets.tree_lab import TreeLab


class Dashboard:
    """Widgets on one trace in tabs, each made when its tab is first opened.

    Parameters
    ----------
    makers
        Title of a tab to a function that makes its widget.

    Attributes
    ----------
    made
        The widgets made so far, by title.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Widget]]) -> None:
        self.makers, self.made = dict(makers), dict[str, Widget]()

    @property
    def tabs(self) -> list[str]:
        """Titles of the tabs."""
        return list(self.makers)

    def open(self, title: str) -> Widget:
        """The widget of a tab, made if it was not yet.

        Raises
        ------
        ValueError
            When there is no such tab.
        """
        if title not in self.makers:
            raise ValueError(f"There is no tab {title!r}; there are {', '.join(self.makers)}.")
        if title not in self.made:
            self.made[title] = self.makers[title]()
        return self.made[title]

    @cached_property
    def view(self) -> ipywidgets.Tab:
        """The tabs as an ipywidget; the first is open."""
        boxes = [ipywidgets.VBox(layout=ipywidgets.Layout(width="100%")) for _ in self.makers]
        tab = ipywidgets.Tab(boxes, titles=self.tabs, layout=ipywidgets.Layout(width="100%"))

        def fill(place: int | None) -> None:
            if place is not None and not boxes[place].children:
                boxes[place].children = [self._inside(self.tabs[place])]

        tab.observe(lambda change: fill(change["new"]), "selected_index")
        tab.selected_index = 0
        fill(0)
        return tab

    def _inside(self, title: str) -> ipywidgets.Widget:
        """The view of a tab's widget; where it cannot be made, why."""
        try:
            return self.open(title).view
        except Exception as error:
            if not in_kernel() and not isinstance(error, ValueError):
                raise
            return ipywidgets.HTML(f'<p role="alert">{escape(error)}</p>')

    def to_html(self, path: str | Path | None = None) -> str:
        """Every tab's present state, one below the other, as one offline page.

        Parameters
        ----------
        path
            Where to write it, too.
        """
        parts = []
        for title in self.tabs:
            try:
                parts.append(self.open(title)._body())
            except ValueError as error:
                parts.append(f"<h1>{escape(title)}</h1><p>{escape(error)}</p>")
        head = f"<script>{get_plotlyjs()}</script>\n"
        page = page_html("specviz", "\n".join(parts), head)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        first = self._first()
        still = {} if first is None else first._repr_mimebundle_()
        return {**still, **self.view._repr_mimebundle_(), "text/plain": repr(self)}

    def _first(self) -> Widget | None:
        try:
            return self.open(self.tabs[0])
        except ValueError:
            return None

    def __repr__(self) -> str:
        return f"Dashboard({', '.join(self.tabs)})"


def dashboard(
    trace: Trace,
    *,
    trees: TargetTrees | None = None,
    beside: Trace | None = None,
    cost: CostModel | Iterable[CostModel] = (),
) -> Dashboard:
    """Everything specviz shows of a trace, in tabs.

    Parameters
    ----------
    trace
        Any trace; a tab that needs what it lacks says so.
    trees
        The target's own likeliest paths in `trace` or `beside`, for the trees and the bounds.
    beside
        A capture of the other kind (sampled beside greedy), for the bounds and its own trees.
    cost
        Cost models to choose from, first the one to start with.

    Returns
    -------
    Dashboard
        Shows itself in a notebook; `.to_html(path)` writes all of it to one page.

    Raises
    ------
    ValueError
        When `trace` is no trace, or `trees` are none.

    Examples
    --------
    >>> import specviz as sv
    >>> dashboard(sv.bundled_trace("smollm2-trees")).tabs[0]
    'the text'
    """
    need_trace(trace)
    if trees is not None:
        need_trees(trees)
    theirs = None  # the capture that the trees are of, where it is not `trace`
    if trees is not None and beside is not None and not misfit(trees, need_trace(beside)):
        theirs = beside

    @cache
    def best() -> str | None:
        """The drafter that every tab starts with."""
        return furthest(trace, trace.drafters) if trace.drafters else None

    costs = (cost,) if isinstance(cost, CostModel) else tuple(cost)
    return Dashboard(
        {
            "the text": lambda: TokenStrip(trace, drafter=best()),
            "rounds": lambda: RoundStepper(trace, drafter=best()),
            "entropy": lambda: EntropyLens(trace, drafter=best()),
            "draft length": lambda: KExplorer(trace, cost=costs),
            "drafters": lambda: DrafterRace(trace),
            "trees": lambda: TreeLab(trace, theirs, trees=trees),
            "policies": lambda: PolicyRace(trace, cost=costs),
            "bounds": lambda: BoundsLab(trace, beside, trees=trees),
            "capacity": lambda: CapacityPlanner(trace, cost=costs),
            "claims": ClaimAudit,
        }
    )


def show(trace: Trace) -> Widget:
    """The one obvious picture of a trace.

    Parameters
    ----------
    trace
        A greedy capture is shown by its k (`KExplorer`), a sampled one by its bounds (`BoundsLab`),
        a run or an imported log by the rounds that ran (`DrafterRace`), and what has neither by
        its text (`TokenStrip`).

    Returns
    -------
    Widget
        Shows itself in a notebook; `.figure` is its picture, `.to_html(path)` writes a page.

    Raises
    ------
    ValueError
        When `trace` is no trace or an empty one.

    Examples
    --------
    >>> import specviz as sv
    >>> type(show(sv.bundled_trace("smollm2-trees"))).__name__
    'KExplorer'
    """
    need_trace(trace)
    drafts = trace.table("drafts").num_rows > 0
    if trace.meta.kind == "capture" and trace.meta.exhaustive and drafts:
        return KExplorer(trace) if trace.meta.greedy else BoundsLab(trace)
    if trace.table("rounds").num_rows:
        return DrafterRace(trace)
    if trace.table("positions").num_rows:
        return TokenStrip(trace)
    raise ValueError("This trace has no drafts, rounds or positions: there is nothing to show.")
