"""BoundsLab: what was measured, against every bound that applies to it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from specviz.analysis.anchors import need_every_anchor
from specviz.analysis.ceilings.measured import MeasuredBounds, measured_bounds
from specviz.analysis.ceilings.tree import tree_ceiling
from specviz.analysis.ceilings.which import which_ceiling
from specviz.figures.bounds import plot_bounds
from specviz.markup import counted, escape, number, table_html
from specviz.refuse import whole
from specviz.trace import Trace, need_trace
from specviz.trace.target_trees import TargetTrees, need_trees
from specviz.widgets.controls import choice, slider
from specviz.widgets.explorer import (
    DRAWS,
    EVERY,
    Explorer,
    ends,
    furthest,
    kinds_of,
    one_of,
    refusal,
    rows_of,
)
from specviz.widgets.own_trees import misfit, place

_QUANTITIES = {
    "tokens per round": "tokens per round (bonus counted)",
    "first token kept": "share of first draft tokens kept (no bonus)",
}


class BoundsLab(Explorer):
    """Measured tokens per round against every bound that applies, its assumption beside it.

    A greedy and a sampled target have different bounds: each capture has its own panel.

    Parameters
    ----------
    trace
        A capture, greedy or sampled.
    beside
        Another capture with the same drafters, sampled where the first is greedy.
    trees
        The target's own likeliest paths of the sampled capture: the ceiling of k fixed tokens
        (T5.3), as far as the trees go, at the places where they stand.
    drafter
        Whose drafts; by default the one that gets furthest (greedy), or the first.
    kind
        Content type; None takes all prompts together.
    k
        Tokens of a chain; the drafter's K by default.
    draws
        Resamples of prompts behind every interval.

    Raises
    ------
    ValueError
        When the captures have no drafter in common, an argument is not in them, or the trees are
        of other texts than the sampled capture.

    Examples
    --------
    >>> import specviz as sv
    >>> lab = BoundsLab(sv.bundled_trace("smollm2-trees"), drafter="lm", draws=100)
    >>> list(lab.panels)
    ['greedy target']
    """

    title = "What bounds it?"

    def __init__(
        self,
        trace: Trace,
        beside: Trace | None = None,
        *,
        trees: TargetTrees | None = None,
        drafter: str | None = None,
        kind: str | None = None,
        k: int | None = None,
        draws: int = DRAWS,
    ) -> None:
        self.traces = [need_trace(t) for t in ([trace] if beside is None else [trace, beside])]
        self.trees = None if trees is None else need_trees(trees)
        self.draws = whole("draws", draws, least=1)
        apart = [misfit(trees, t) for t in self.traces] if trees is not None else []
        self.fits = [not why for why in apart] or [False] * len(self.traces)
        wrong = [why for why, t in zip(apart, self.traces, strict=False) if not t.meta.greedy]
        if wrong and not any(self.fits):  # greedy captures alone have no use for them
            raise ValueError(wrong[0])
        self._bounds = lru_cache(maxsize=None)(self._measure)
        self._tree_rows = lru_cache(maxsize=None)(self._ceiling)
        missing = next(filter(None, (refusal(partial(_need, t)) for t in self.traces)), "")
        super().__init__(lambda: self._controls(drafter, kind, k), missing)

    def _controls(self, drafter: str | None, kind: str | None, k: int | None) -> dict[str, Any]:
        names = [n for n in self.traces[0].drafters if all(n in t.drafters for t in self.traces)]
        if not names:
            raise ValueError("These captures have no drafter in common.")
        name = one_of("drafter", drafter or furthest(self.traces[0], names), names)
        kinds = kinds_of(self.traces[0])
        one_of("kind", kind or EVERY, [EVERY, *kinds.values()])
        most = self._longest(name)
        start = most if k is None else whole("k", k, least=1)
        if start > most:
            raise ValueError(f"{name} drafted {most} tokens here: k = {start} is not known.")
        made = {
            "drafter": choice("drafter", names, name),
            "kind": choice("text", kinds, kind),
            "quantity": choice("of", list(_QUANTITIES)),
            "k": slider("k, drafted tokens", start, 1, most),
        }
        made["k"].continuous_update = False
        return made

    def _longest(self, drafter: str) -> int:
        return min(int(t.meta.drafters[drafter]["k"]) for t in self.traces)

    # -- state ----------------------------------------------------------------------------

    @property
    def measured(self) -> dict[int, MeasuredBounds]:
        """By number of the capture, for those that have the chosen text."""
        return {
            which: self._bounds(which, self["drafter"], self["k"], self.kind)
            for which, trace in enumerate(self.traces)
            if self.kind in (None, *trace.content_types)
        }

    @property
    def panels(self) -> dict[str, pd.DataFrame]:
        """Per setting, the bounds of the chosen quantity on the chosen text."""
        return self.kept("panels", self._chosen)

    def _chosen(self) -> dict[str, pd.DataFrame]:
        found: dict[str, pd.DataFrame] = {}
        for which, bounds in self.measured.items():
            rows = bounds.table
            rows = rows[rows["quantity"] == self["quantity"]]
            if self.fits[which] and self._reach and self["quantity"] == "tokens per round":
                best = [self._trees_of(which, self["k"])]
                kept = rows["side"] == "measured"
                rows = pd.concat([rows[kept], *best, rows[~kept]], ignore_index=True)
            title = f"{bounds.setting} target"
            if title in found:
                title = f"{title}, second capture"
            found[title] = rows.reset_index(drop=True)
        return found

    def react(self, name: str) -> None:
        if name == "drafter":
            self.controls["k"].max = self._longest(self["drafter"])

    def _measure(self, which: int, drafter: str, k: int, kind: str | None) -> MeasuredBounds:
        trace, text = self.traces[which], kind or "all"
        return measured_bounds(trace, drafter, k=k, content_type=text, draws=self.draws)

    @property
    def _reach(self) -> bool:
        """Whether the trees have k nodes."""
        return self.trees is not None and self["k"] <= int(self.trees.meta["nodes"])

    def _ceiling(self, which: int, k: int) -> pd.DataFrame:
        assert self.trees is not None
        trees, seqs = self.trees, self.traces[which].sequences["seq"].tolist()
        held = trees.table.filter(pc.is_in(trees.table["seq"], pa.array(seqs, pa.int32())))
        return tree_ceiling(replace(trees, table=held), [k], draws=self.draws)

    def _trees_of(self, which: int, k: int) -> pd.DataFrame:
        """The best tree, and as far as the trees are deep the best chain, of k fixed tokens."""
        assert self.trees is not None
        mine = rows_of(self._tree_rows(which, k), self.kind)
        texts = self.traces[which].sequences
        texts = texts[texts["n_output"] > 1]
        texts = texts if self.kind is None else texts[texts["content_type"] == self.kind]
        many = texts["prompt_id"].nunique()
        where = [
            place(self.trees, row["shape"], k)
            + (f" of {row['n_prompts']} of {many} prompts" if row["n_prompts"] < many else "")
            for row in mine[["shape", "n_prompts"]].to_dict("records")
        ]
        return pd.DataFrame(
            {
                "quantity": "tokens per round",
                "bound": [
                    f"best {shape} of {counted(k, 'fixed token')}, {there}"
                    for shape, there in zip(mine["shape"], where, strict=True)
                ],
                "side": "at most",
                "value": mine["at_most"].to_numpy(),
                "low": mine["low"].to_numpy(),
                "high": mine["high"].to_numpy(),
                "holds": "theorem",
                "assumes": [
                    ("" if there.startswith("over its own") else "not over rounds; ")
                    + "drafts that know nothing of the draw"
                    for there in where
                ],
                "formula": "T5.3",
                "n": mine["n_anchors"].to_numpy(),
                "unit": "anchors",
                "n_prompts": mine["n_prompts"].to_numpy(),
            }
        )

    # -- what is shown --------------------------------------------------------------------

    def picture(self) -> go.Figure:
        shown = {f"{title}, {self['drafter']}": table for title, table in self.panels.items()}
        return plot_bounds(shown, unit=_QUANTITIES[self["quantity"]])

    def sentences(self) -> list[str]:
        said, rests = [], []
        for title, rows in self.panels.items():
            measured = rows[rows["side"] == "measured"].head(1).to_dict("records")
            sure = (rows["side"] == "at most") & (rows["holds"] == "theorem")
            above = rows[sure].sort_values("value")
            parts = [
                f"{number(float(row['value']))}{ends(row['low'], row['high'])} measured"
                for row in measured
            ]
            rests += [
                f"{title}: {counted(row['n'], row['unit'][:-1])} of "
                f"{counted(row['n_prompts'], 'prompt')}"
                for row in measured
            ]
            if len(above):
                least = number(float(above["value"].iloc[0]))
                parts.append(f"at most {least} ({above['bound'].iloc[0]})")
            said.append(f"{title}: {', '.join(parts)}")
        first = "; ".join(said)
        found = [*self.measured.values()]
        lines = [
            first[:1].upper() + first[1:],
            self._lacking(),
            self._says(),
            f"Measured over: {'; '.join(rests)}." if rests else "",
            self._short(),
            *(bounds.caption for bounds in found[:1]),
            "Filled marks are theorems, hollow ones models of text; greedy and sampled targets "
            "have axes of their own.",
        ]
        return [line for line in lines if line]

    def _lacking(self) -> str:
        """Which capture has none of the chosen text."""
        none = [trace for i, trace in enumerate(self.traces) if i not in self.measured]
        settings = ["greedy" if trace.meta.greedy else "sampled" for trace in none]
        return f"The {' and '.join(settings)} capture has no {self.kind} text." if none else ""

    def _short(self) -> str:
        """What the trees do not reach, and where they stand."""
        if self.trees is None or not any(self.fits) or self["quantity"] != "tokens per round":
            return ""
        k, nodes, depth = self["k"], self.trees.meta["nodes"], self.trees.meta["depth"]
        if not self._reach:
            return f"The target's trees have {nodes} nodes: of k = {k} tokens they say nothing."
        said = f"The best fixed tokens are those of the target's trees, {place(self.trees, '', 0)}"
        said += ": this drafter's rounds begin elsewhere, and what they reach is another mean."
        deep = f" They are {depth} tokens deep: of longer chains they say nothing."
        return said + (deep if k > int(depth) else "")

    def _says(self) -> str:
        """What kind of ceiling applies, in the words of `which_ceiling`."""
        said = []
        for trace in (self.traces[i] for i in self.measured):
            if trace.meta.greedy:
                found = which_ceiling(target="greedy", acceptance="greedy", drafter="fixed")
            else:
                found = which_ceiling(target="sampled", acceptance="sample-match", drafter="fixed")
            said.append(found.says)
        return " ".join(dict.fromkeys(said))

    def details(self) -> str:
        columns = ["bound", "side", "value", "low", "high", "holds", "assumes", "formula"]
        tables = [
            table_html(rows[[*columns, "n", "unit", "n_prompts"]], caption=title)
            for title, rows in self.panels.items()
        ]
        found = [*self.measured.values()]
        remarks = dict.fromkeys(remark for bounds in found for remark in bounds.remarks)
        notes = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
        return (
            "<details><summary>the same as a table, and remarks</summary>"
            f"{''.join(tables)}<ul>{notes}</ul></details>"
        )


def _need(trace: Trace) -> None:
    """Refuse a trace without a draft at every anchor."""
    need_every_anchor(
        trace,
        ", so its bounds cannot be measured: make a capture of the same prompts first.",
    )
    trace.require("drafts", "positions")
    if "vocab_size" not in trace.meta.target:
        raise ValueError(
            "This trace does not say how many tokens its target knows (`vocab_size` of the target "
            "in trace.json), so its bounds cannot be worked out: capture it again."
        )
