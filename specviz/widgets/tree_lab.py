"""TreeLab: what a token tree adds to a chain, and what one looks like."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.anchors import require_capture
from specviz.analysis.ceilings.tree import BUDGETS, tree_ceiling
from specviz.analysis.levers.tree_nodes import captured_nodes, target_nodes, text_before
from specviz.analysis.levers.tree_sweep import CHAIN, TreeSweep
from specviz.figures.tree_lab import plot_tree_lab
from specviz.markup import counted, number
from specviz.refuse import whole
from specviz.trace import Trace, need_trace
from specviz.trace.target_trees import TargetTrees, need_trees
from specviz.widgets.controls import choice, options_of, slider
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

DRAFTED, OWN = "drafter's trees", "target's own trees"


class TreeLab(Explorer):
    """Builder and node budget against tokens per round and verified rows; the tree of one anchor.

    Parameters
    ----------
    trace
        A greedy capture with trees; of another trace the widget says what is missing.
    beside
        The sampled capture that `trees` are of; left out where `trace` is that one.
    trees
        The target's own likeliest paths (`specviz.capture_tree_ceiling`), which hold tokens,
        parents and path probabilities. Lengths are then what is expected from their anchors on.
    drafter
        Whose trees; by default the one that gets furthest.
    kind
        Content type; None takes all prompts together.
    nodes
        Node budget; by default 16, or as many as there are.
    draws
        Resamples of prompts behind every interval.

    Raises
    ------
    ValueError
        When there is no such content type, the drafter has no trees here, or `trees` are none or
        of other texts than the capture.

    Examples
    --------
    >>> import specviz as sv
    >>> lab = TreeLab(sv.bundled_trace("smollm2-trees"), drafter="lm", nodes=32, draws=100)
    >>> lab.row["builder"], lab.row["nodes"]
    ('best-first-d7', 32)
    """

    title = "What a tree adds to a chain"

    def __init__(
        self,
        trace: Trace,
        beside: Trace | None = None,
        *,
        trees: TargetTrees | None = None,
        drafter: str | None = None,
        kind: str | None = None,
        nodes: int | None = None,
        draws: int = DRAWS,
    ) -> None:
        self.trace = need_trace(trace)
        self.trees = None if trees is None else need_trees(trees)
        self.texts = trace if beside is None else need_trace(beside)  # of the target's own trees
        if beside is not None and trees is None:
            raise ValueError("beside is the capture that trees are of: give trees=, too.")
        apart = "" if trees is None else misfit(trees, self.texts)
        if apart:
            raise ValueError(apart)
        self.draws = whole("draws", draws, least=1)
        why = refusal(lambda: require_capture(trace))
        self.holders = [name for name in trace.drafters if trace.meta.trees.get(name)]
        self.holders = [] if why else self.holders
        if not why and not self.holders:
            why = "This capture holds no token trees: capture again with trees=[BestFirst(16, 7)]."
        if drafter is not None and not why and drafter not in self.holders:
            raise ValueError(
                f"{drafter!r} has no trees here; there are those of {', '.join(self.holders)}."
            )
        self._sweep = lru_cache(maxsize=None)(lambda name: TreeSweep(trace, name, draws=draws))
        self._curve = lru_cache(maxsize=64)(self._lengths)
        super().__init__(lambda: self._controls(drafter, kind, nodes), why if trees is None else "")

    def _controls(self, drafter: str | None, kind: str | None, nodes: int | None) -> dict[str, Any]:
        sources = [DRAFTED] * bool(self.holders) + [OWN] * (self.trees is not None)
        names = self.holders or ["none"]
        name = drafter or furthest(self.trace, names) if self.holders else names[0]
        kinds = kinds_of(self.trace if self.holders else self.texts)
        one_of("kind", kind or EVERY, [EVERY, *kinds.values()])
        builders = self._builders(name)
        made = {
            "source": choice("show", sources),
            "drafter": choice("drafter", names, name),
            "builder": choice("builder", builders),
            "kind": choice("text", kinds, kind),
            "nodes": slider("nodes", 1, 1, 1),
            "seq": choice("tree in", {"": -1}),
            "place": slider("anchor", 0, 0, 0),
        }
        self.controls = made  # the rest depends on what is chosen
        self._fit()
        top = made["nodes"].max
        nodes = min(16, top) if nodes is None else nodes
        if not 1 <= nodes <= top:
            raise ValueError(f"nodes must be from 1 to {top} here, not {nodes!r}.")
        made["nodes"].value = max(nodes, made["nodes"].min)
        return made

    # -- state ----------------------------------------------------------------------------

    @property
    def own(self) -> bool:
        """Whether the target's own trees are shown."""
        return bool(self["source"] == OWN)

    @property
    def shown(self) -> Trace:
        """The trace whose text is shown: the trees' own, or the drafter's."""
        return self.texts if self.own else self.trace

    @property
    def lengths(self) -> pd.DataFrame:
        """Tokens of every shape and budget: per round, or of the target's own trees expected."""
        which = self["drafter"], self["builder"], self.kind, self["nodes"]
        return self._curve(self.own, *which)

    @property
    def row(self) -> dict[str, Any]:
        """The chosen builder at the chosen budget."""
        table, builder = self.lengths, "tree" if self.own else self["builder"]
        mine = table[(table["builder"] == builder) & (table["nodes"] <= self["nodes"])]
        found: dict[str, Any] = mine.sort_values("nodes").iloc[-1].to_dict()
        return found

    @property
    def anchor(self) -> int:
        """The anchor whose tree is drawn."""
        return int(self._places()[self["place"]])

    def react(self, name: str) -> None:
        if name == "drafter":
            self.controls["builder"].options = options_of(self._builders(self["drafter"]))
        if name in ("source", "drafter", "builder", "seq", "kind"):
            self._fit()

    def _builders(self, drafter: str) -> list[str]:
        return list(self.trace.meta.trees.get(drafter, {})) or ["tree"]

    def _fit(self) -> None:
        """Bring budget and anchors in line with what is shown."""
        made = self.controls
        for name in ("drafter", "builder"):
            made[name].layout.display = "none" if self.own else ""
        size, least = int(self.trees.meta["nodes"]) if self.own and self.trees else 1, 1
        if not self.own:
            shape = self.trace.meta.trees[self["drafter"]][self["builder"]]
            size = int(shape["nodes"])
            least = 1 if shape["nested"] else size
        _bounds(made["nodes"], least, size)
        rows = self.shown.sequences
        if self.kind is not None:
            rows = rows[rows["content_type"] == self.kind]
        if self.own and self.trees is not None:
            rows = rows[rows["seq"].isin(self.trees.anchors["seq"])]
        rows = rows[rows["n_output"] > 1]
        options = {
            f"{row['prompt_id']} · {row['content_type']}": int(row["seq"])
            for row in rows.to_dict("records")
        } or {"no text": -1}
        pairs = options_of(options)
        if pairs != [*made["seq"].options]:
            kept = made["seq"].value
            made["seq"].options = pairs
            if kept in options.values():
                made["seq"].value = kept
        _bounds(made["place"], 0, max(len(self._places()) - 1, 0))

    def _places(self) -> Any:
        """Anchors of the chosen text that have a tree."""
        if self.own and self.trees is not None:
            found = self.trees.anchors
            return found.loc[found["seq"] == self["seq"], "anchor"].to_numpy()
        rows = self.trace.sequences
        mine = rows.loc[rows["seq"] == self["seq"], "n_output"]
        return np.arange(int(mine.iloc[0]) - 1 if len(mine) else 0)

    # -- what is shown --------------------------------------------------------------------

    def _lengths(
        self, own: bool, drafter: str, builder: str, kind: str | None, nodes: int
    ) -> pd.DataFrame:
        if own and self.trees is not None:
            most = int(self.trees.meta["nodes"])
            sizes = sorted({*(n for n in BUDGETS if n <= most), nodes})
            table = rows_of(tree_ceiling(self.trees, sizes, draws=self.draws), kind)
            if table.empty:
                raise ValueError(f"The target's trees are of other text than {kind!r}.")
            return table.rename(columns={"shape": "builder", "n": "nodes"})
        sweep = self._sweep(drafter)
        shapes = [(CHAIN, n) for n in sorted({*sweep.budgets(CHAIN, BUDGETS), sweep.k})]
        for name in sweep.builders:
            wanted = sorted({*BUDGETS, nodes}) if name == builder else BUDGETS
            shapes += [(name, n) for n in sweep.budgets(name, wanted)]
        return sweep.table(shapes, kind)

    @property
    def nodes(self) -> pd.DataFrame:
        """The nodes of the tree that is drawn."""
        return self.kept("nodes", self._nodes)

    def _nodes(self) -> pd.DataFrame:
        if not len(self._places()):
            return pd.DataFrame(columns=["depth", "parent", "on_path", "chance", "text"])
        if self.own and self.trees is not None:
            found = self.trees.anchors
            mine = (found["seq"] == self["seq"]) & (found["anchor"] == self.anchor)
            return target_nodes(self.trees, int(np.flatnonzero(mine)[0]), self["nodes"])
        return captured_nodes(
            self.trace, self["drafter"], self["builder"], self["seq"], self.anchor, self["nodes"]
        )

    def picture(self) -> go.Figure:
        row = self.row
        return plot_tree_lab(
            self.lengths,
            self.nodes,
            (row["builder"], row["nodes"]),
            kind=self.kind or "all",
            whose=f"the target itself, {self._place(row)}" if self.own else self["drafter"],
            unit="expected tokens" if self.own else "tokens per round",
        )

    def _place(self, row: dict[str, Any]) -> str:
        """Where the anchors of the target's own trees are."""
        return "" if self.trees is None else place(self.trees, row["builder"], row["nodes"])

    def sentences(self) -> list[str]:
        row, table = self.row, self.lengths
        length = number(float(row["tokens_per_round"])) + ends(row["low"], row["high"])
        what = f"tokens expected, {self._place(row)}" if self.own else "tokens per round"
        said = [f"{row['builder']}, {row['nodes']} nodes: {length} {what}"]
        prompts = counted(row["n_prompts"], "prompt")
        if self.own:
            said.append(
                "No fixed tokens do better from the same anchors: expected over the target's own "
                f"distribution, bonus counted, mean over {counted(row['n_anchors'], 'anchor')} of "
                f"{prompts}; 95 % intervals resample prompts. It binds sampled targets, not greedy "
                "ones."
            )
            if not row["on_policy"]:
                said.append(
                    "These anchors are not those at which its rounds would begin, so this is not "
                    "tokens per round."
                )
        else:
            chains = table[table["builder"] == CHAIN]
            best = chains.iloc[int(chains["tokens_per_round"].to_numpy().argmax())]
            said.append(
                f"{number(float(row['rows_per_round']))} rows are verified a round; the best chain "
                f"(k = {best['nodes']}) gives {number(float(best['tokens_per_round']))} tokens for "
                f"{number(float(best['rows_per_round']))} rows. What rows cost is not in this "
                "picture."
            )
            said.append(
                f"Bonus counted, replayed exactly: {counted(row['n_rounds'], 'round')} of "
                f"{prompts}; 95 % intervals resample prompts."
            )
        return [*said, *self._of_the_tree()]

    def _of_the_tree(self) -> list[str]:
        nodes = self.nodes
        if nodes.empty:
            there = len(self._places()) > 0
            return ["Nothing was drafted here." if there else "There is no tree of this text."]
        held = int(nodes["on_path"].sum())
        texts = self.shown.sequences
        size = int(texts.loc[texts["seq"] == self["seq"], "n_output"].iloc[0])
        kept = min(held, size - 2 - self.anchor)  # the last token is the target's own
        before = text_before(self.shown, self["seq"], self.anchor)
        said = [
            f"The tree after “{before}” holds {held} of the text's own next tokens, so a round "
            f"here would emit {kept + 1}" + (": the text ends there." if kept < held else ".")
        ]
        if nodes["chance"].isna().all():
            return [*said, f"{self['drafter']} copies: its nodes have no probabilities."]
        whose = "target" if self.own else "drafter"
        return [*said, f"Nodes are as large as their path is probable under the {whose}."]


def _bounds(control: Any, low: int, high: int) -> None:
    """New ends of a slider, in an order that never crosses them."""
    value = min(max(control.value, low), high)
    if high >= control.min:
        control.max, control.min = high, low
    else:
        control.min, control.max = low, high
    control.value = value
