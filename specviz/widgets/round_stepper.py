"""RoundStepper: one round at a time, and in it one step at a time."""

from __future__ import annotations

from functools import cached_property

import ipywidgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from specviz.analysis.levers.tree_nodes import captured_nodes
from specviz.analysis.replays.replay import Replay, replay
from specviz.figures.round_steps import STEPS, RoundPicture, plot_round_chain, plot_round_tree
from specviz.markup import counted, number
from specviz.policies import CapturedTree, FixedTree
from specviz.strip import token_strip_html
from specviz.trace import Trace
from specviz.widgets.base import Widget
from specviz.widgets.controls import button, choice, slider
from specviz.widgets.replayed import Replayed, sequence_options
from specviz.widgets.strip_data import Strips

_CHAIN = "chain"
_SHOWN = 60  # tokens of the text before the round


class RoundStepper(Widget):
    """Draft, verify, accept, the target's own token, rewind: one round after another.

    Parameters
    ----------
    trace
        A greedy capture; with trees, such as the bundled "smollm2-trees", it steps them, too.
    seq, drafter
        Which sequence and whose drafts; the first by default.
    k
        Drafted tokens per round, where the draft is a chain.
    builder
        A tree builder of the capture, or "chain".
    budget
        Nodes of the tree.

    Raises
    ------
    ValueError
        When the trace is no greedy capture, or lacks the sequence, drafter or builder.

    Examples
    --------
    >>> import specviz as sv                                                    # doctest: +SKIP
    >>> RoundStepper(sv.bundled_trace("smollm2-trees"), drafter="lm", k=5)      # doctest: +SKIP
    """

    title = "One round at a time"

    def __init__(
        self,
        trace: Trace,
        *,
        seq: int | None = None,
        drafter: str | None = None,
        k: int = 5,
        builder: str = _CHAIN,
        budget: int = 16,
    ) -> None:
        self.trace, self.strips, self.replayed = trace, Strips(trace), Replayed(trace)
        if not self.replayed.can:
            raise ValueError(
                "Stepping through rounds needs every draft, so a greedy capture: this "
                f"{trace.meta.kind} trace has none to show."
            )
        name = trace.drafter_name(drafter) if drafter else trace.drafters[0]
        shapes = self._shapes(name)
        if builder not in shapes:
            raise ValueError(f"{name} has no {builder!r} drafts here; it has {', '.join(shapes)}.")
        options = sequence_options(trace)
        if seq is not None and seq not in options.values():
            raise ValueError(f"This trace has no sequence {seq}.")
        chosen = self.replayed.controls(name, min(k, self.replayed.most(name)))
        chosen["k"].min = 1  # a round without a draft has no steps
        super().__init__(
            {
                "seq": choice("text", options, seq),
                "drafter": chosen["drafter"],
                "builder": choice("draft", shapes, builder),
                "k": chosen["k"],
                "budget": slider("nodes", budget, 1, max(budget, self._most_nodes(name, builder))),
                "round": slider("round", 1, 1, 2),
                "step": choice("step", STEPS),
            }
        )
        with self.held():
            self._fit()

    # -- state ----------------------------------------------------------------------------

    def _shapes(self, drafter: str) -> list[str]:
        return [_CHAIN, *self.trace.meta.trees.get(drafter, {})]

    def _most_nodes(self, drafter: str, builder: str) -> int:
        known = self.trace.meta.trees.get(drafter, {}).get(builder, {})
        return int(known.get("nodes", 1))

    @property
    def is_tree(self) -> bool:
        return self["builder"] != _CHAIN

    @property
    def replay(self) -> Replay:
        """The replay that the rounds are of."""
        if not self.is_tree:
            return self.replayed.at(self["drafter"], self["k"])
        return self._tree_replay(self["drafter"], self["builder"], self["budget"])

    def _tree_replay(self, drafter: str, builder: str, budget: int) -> Replay:
        key = (drafter, builder, budget)
        if key not in self._trees:
            depth = int(self.trace.meta.trees[drafter][builder]["depth"])
            policy = FixedTree(CapturedTree(builder, budget, depth), drafter)
            self._trees[key] = replay(self.trace, policy, drafter)
        return self._trees[key]

    @cached_property
    def _trees(self) -> dict[tuple[str, str, int], Replay]:
        return {}

    @property
    def rounds(self) -> pd.DataFrame:
        """Rounds of the text that is shown."""
        return self.replay.rounds_of(self["seq"])

    def _fit(self) -> None:
        """Give the controls the reach that drafter, shape and text have."""
        drafter = self["drafter"]
        self.controls["k"].max = self.replayed.most(drafter)
        if self.is_tree:
            most = self._most_nodes(drafter, self["builder"])
            nested = self.trace.meta.trees[drafter][self["builder"]]["nested"]
            self.controls["budget"].max = most
            self.controls["budget"].min = 1 if nested else most
        for name, needed in (("k", not self.is_tree), ("budget", self.is_tree)):
            self.controls[name].layout.display = "" if needed else "none"
        self.controls["round"].max = len(self.rounds)

    def react(self, name: str) -> None:
        if name == "drafter":
            shapes = self._shapes(self["drafter"])
            was = self["builder"]
            self.controls["builder"].options = shapes
            self.controls["builder"].value = was if was in shapes else _CHAIN
        if name in ("seq", "drafter", "builder", "k", "budget"):
            self._fit()
        if name in ("seq", "drafter", "builder"):
            self.controls["round"].value = 1
            self.controls["step"].value = STEPS[0]

    def advance(self, by: int = 1) -> None:
        """Go on (or back) by so many steps, over the ends of rounds."""
        n = len(STEPS)
        at = (self["round"] - 1) * n + STEPS.index(self["step"]) + by
        at = min(max(at, 0), self.controls["round"].max * n - 1)
        self.set(round=at // n + 1, step=STEPS[at % n])

    # -- what is shown --------------------------------------------------------------------

    @cached_property
    def panel(self) -> ipywidgets.Widget:
        # Play's own buttons have no names, so it stays hidden and a named button works it.
        clock = ipywidgets.Play(
            min=0, max=10_000, interval=1200, layout=ipywidgets.Layout(display="none")
        )
        clock.observe(lambda change: self.guarded(self.advance)(), "value")
        play = ipywidgets.ToggleButton(
            description="play",
            tooltip="play the steps, or pause",
            icon="play",
            layout=ipywidgets.Layout(width="auto"),
        )
        ipywidgets.jslink((play, "value"), (clock, "playing"))
        back = button("back", "one step back", "step-backward")
        on = button("next", "one step on", "step-forward")
        back.on_click(lambda _: self.guarded(self.advance)(-1))
        on.on_click(lambda _: self.guarded(self.advance)())
        row = ipywidgets.Layout(flex_flow="row wrap", align_items="center", width="100%")
        chosen = [self.controls[n] for n in ("seq", "drafter", "builder", "k", "budget")]
        moving = [self.controls["round"], self.controls["step"], back, on, play, clock]
        return ipywidgets.VBox(
            [ipywidgets.HBox(chosen, layout=row), ipywidgets.HBox(moving, layout=row)]
        )

    @property
    def picture(self) -> RoundPicture:
        """The round that is shown, as text and probabilities."""
        record = self.rounds.iloc[self["round"] - 1]
        anchor, drafted, accepted = (int(record[c]) for c in ("anchor", "drafted", "accepted"))
        rows = self.strips.positions(self["seq"])
        texts, p = rows["text"].tolist(), np.exp(rows["logp"].to_numpy())
        emitted = slice(anchor + 1, anchor + accepted + 2)
        full = accepted == drafted and record["stop"] == "full"
        closing = "bonus" if full else "own"
        common = (texts[emitted], p[emitted].tolist(), closing)
        if self.is_tree:
            where = (self["builder"], self["seq"], anchor)
            nodes = captured_nodes(self.trace, self["drafter"], *where, self["budget"], drafted)
            nodes = nodes.head(int(record["nodes"]))
            path = np.flatnonzero(nodes["on_path"] & (nodes["depth"] <= accepted)).tolist()
            q = nodes["chance"].iloc[path].tolist()
            return RoundPicture(texts[anchor], texts[emitted][:accepted], q, *common, nodes, path)
        draft = self.strips.drafts(self["seq"], self["drafter"])
        names = [self.strips.text_of(t) for t in draft["token"][anchor, :drafted]]
        q = np.exp(draft["logq"][anchor, :drafted].astype(float)).tolist()
        return RoundPicture(texts[anchor], names, q, *common)

    def draw(self) -> go.Figure:
        picture, plot = self.picture, plot_round_tree if self.is_tree else plot_round_chain
        return plot(picture, self["step"], finding=self._finding(picture))

    def _finding(self, picture: RoundPicture) -> str:
        where = f"Round {self['round']} of {self.controls['round'].max}, {self['step']}: "
        m, k = picture.accepted, len(picture.draft)
        nodes = k if picture.nodes is None else len(picture.nodes)
        what = counted(nodes, "node") if self.is_tree else counted(k, "token")
        return (
            where
            + {
                "draft": f"{self['drafter']} drafts {what}",
                "verify": f"the target reads {nodes} + 1 inputs in one pass",
                "accept": f"{m} of {what} accepted",
                "own token": f"one more from the target itself, {m + 1} emitted",
                "rewind": f"{counted(nodes - m, 'input')} forgotten, {m + 1} emitted",
            }[self["step"]]
        )

    def words(self) -> list[str]:
        rounds = self.rounds
        n, kept = len(rounds), float(rounds["accepted"].sum())
        return [
            f"{number((kept + n) / n)} tokens per round in this text",
            _WHY[self["step"]][self.is_tree],
            "Tokens per round: emitted tokens over rounds, the target's own token counted; "
            f"{counted(n, 'round')}, 1 prompt, {self['drafter']}, {self.replay.policy}, "
            "replayed exactly.",
        ]

    def extra(self) -> str:
        """The text so far, this round's tokens underlined."""
        record = self.rounds.iloc[self["round"] - 1]
        step, anchor, accepted = self["step"], int(record["anchor"]), int(record["accepted"])
        new = {"draft": 0, "verify": 0, "accept": accepted}.get(step, accepted + 1)
        end = anchor + 1 + new
        start = max(0, anchor + 1 - _SHOWN)
        rows = self.strips.positions(self["seq"]).iloc[start:end]
        marked = None
        if new == accepted + 1:
            shown = {c: int(record[c]) for c in ("drafted", "accepted")}
            marked = [{"anchor": anchor - start, **shown}]
        return token_strip_html(
            rows["text"].tolist(),
            rows["entropy"].tolist(),
            rounds=marked,
            caption="The text so far" + (", its beginning left out" if start else ""),
            legend=False,
        )


#: Why each step is there: (chain, tree).
_WHY: dict[str, tuple[str, str]] = {
    "draft": (
        "The drafter guesses the next tokens one after another; that is cheap, and may be wrong.",
        "The drafter guesses a tree: several continuations at the places where it is unsure.",
    ),
    "verify": (
        "K + 1 inputs: the anchor has been chosen but not read yet, so it goes in with the k "
        "drafted tokens. One pass gives k + 1 rows: row j says what follows input j. Rows 0 to "
        "k - 1 judge the k drafts, and the last has no draft to judge: it is the bonus.",
        "The anchor, chosen but not read yet, goes in with every node, one row each. A mask lets "
        "a node see its ancestors only, so each row is what the target says after that path.",
    ),
    "accept": (
        "Greedy acceptance: a draft is kept while it equals what the target says. After the first "
        "difference the later rows follow a wrong token and say nothing.",
        "From the anchor down, the child that equals what the target says is kept, until none "
        "does. The other nodes cost rows and give nothing.",
    ),
    "own token": (
        "The row after the last accepted input is right whatever was drafted: it gives one token "
        "more. After a fully accepted draft it is called the bonus, else it replaces the wrong "
        "draft. So a round emits accepted + 1 tokens and never fewer than one.",
        "The row after the last accepted node gives one token more; a round emits accepted + 1.",
    ),
    "rewind": (
        "Keys and values of rejected inputs are dropped. The target's own token is the next "
        "anchor: it has not been read, and that is the one in the next round's k + 1 inputs.",
        "Only the accepted path stays in the cache. The target's own token is the next anchor.",
    ),
}
