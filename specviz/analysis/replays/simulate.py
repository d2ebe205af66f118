"""Any policy, round by round over a capture, asked exactly as the live loop asks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specviz.analysis.anchors import Anchors, Ints, anchors_of, by_position
from specviz.analysis.replays.tree_rounds import TreeRounds, tree_rounds
from specviz.analysis.resampling import Floats
from specviz.cost import CostModel, need_cost
from specviz.policies import DraftView, History, PastRound, Plan, Policy
from specviz.trace import Trace


@dataclass(frozen=True)
class Rounds:
    """Rounds in order, one entry each.

    Attributes
    ----------
    where
        Flat index of the anchor, as in `Anchors`.
    drafted, accepted, nodes
        Depth of the draft, accepted tokens, verified draft nodes.
    drafter, builder
        Indices into `drafters` and `builders`; builder "" is a chain.
    """

    where: Ints
    drafted: Ints
    accepted: Ints
    nodes: Ints
    drafter: Ints
    builder: Ints
    drafters: tuple[str, ...]
    builders: tuple[str, ...] = ("",)

    def between(self, low: int, high: int) -> Rounds:
        """The rounds from the `low`-th to before the `high`-th."""
        names = ("where", "drafted", "accepted", "nodes", "drafter", "builder")
        return replace(self, **{name: getattr(self, name)[low:high] for name in names})

    @classmethod
    def chains(cls, where: Ints, drafted: Ints, accepted: Ints, drafter: str) -> Rounds:
        """Rounds of one drafter's chains."""
        nought = np.zeros(len(where), dtype=np.int64)
        return cls(where, drafted, accepted, drafted, nought, nought, (drafter,))


class _Drafter:
    """One drafter's anchors and free-running columns, read when a plan first names it."""

    def __init__(self, trace: Trace, name: str | None) -> None:
        self.trace, self.anchors = trace, anchors_of(trace, name)
        self._columns = [
            trace.matrix(column, self.anchors.drafter)
            for column in ("logq", "entropy", "confidence")
        ]
        self._trees: dict[tuple[str, int], TreeRounds] = {}

    def play(self, policy: Policy, plan: Plan, at: int) -> tuple[int, int, int]:
        """What a plan drafts, has accepted and verifies at a flat anchor."""
        k = min(plan.k, int(self.anchors.room[at]))
        if plan.tree is not None and k > 0:
            wanted = plan.tree.builder, plan.tree.nodes
            if wanted not in self._trees:
                self._trees[wanted] = tree_rounds(self.trace, self.anchors.drafter, *wanted)
            tree = self._trees[wanted]
            return int(tree.drafted[at]), int(tree.accepted[at]), int(tree.nodes[at])
        plan = dataclasses.replace(plan, k=k, drafter=self.anchors.drafter)
        most = min(plan.k, int(self.anchors.offered[at]))
        row = self.anchors.row[at]
        logq, entropy, confidence = (column[row, :most].tolist() for column in self._columns)
        depth = min(most, 1)
        while 0 < depth < most and policy.more(
            DraftView(plan, logq[:depth], entropy[:depth], confidence[:depth])
        ):
            depth += 1
        return depth, min(depth, int(self.anchors.acceptable[at])), depth


def priced(
    names: tuple[Sequence[str], Sequence[str]],
    drafter: Ints,
    builder: Ints,
    drafted: Ints,
    nodes: Ints,
    cost: CostModel,
) -> Floats:
    """Modelled seconds of rounds; `drafter` and `builder` are indices into `names`."""
    spent = np.zeros(len(drafter))
    for i, who in enumerate(names[0]):
        for j, shape in enumerate(names[1]):
            mine = (drafter == i) & (builder == j)
            if mine.any():
                spent[mine] = need_cost(cost).round_seconds(
                    who, drafted[mine], nodes[mine] + 1, shape
                )
    return spent


def simulate(trace: Trace, policy: Policy, drafter: str | None) -> tuple[Anchors, Rounds]:
    """The rounds of any policy, and the anchors they stand on."""
    drafters: dict[str, _Drafter] = {}
    anchors = anchors_of(trace, trace.drafters[0])  # of any drafter: the sequences are the same
    columns = [
        by_position(trace, anchors, name).tolist()
        for name in ("token_id", "entropy", "p_max", "margin")
    ]
    first = np.concatenate([[0], np.cumsum(anchors.n)]).tolist()
    rounds: list[tuple[int, int, int, int, str, str]] = []
    for s, n in enumerate(anchors.n.tolist()):
        tokens, entropy, p_max, margin = (c[first[s] : first[s + 1]] for c in columns)
        past: list[PastRound] = []
        a = 0
        while a < n - 1:
            upto = a + 1
            plan = policy.plan(
                History(a, tuple(past), tokens[:upto], entropy[:upto], p_max[:upto], margin[:upto])
            )
            name = chosen_drafter(trace, plan, drafter)
            if name not in drafters:
                drafters[name] = _Drafter(trace, name)
            chosen, here = drafters[name], int(anchors.start[s]) + a
            check_k(plan.k, chosen.anchors)
            drafted, accepted, nodes = chosen.play(policy, plan, here)
            builder = plan.tree.builder if plan.tree is not None and nodes else ""
            rounds.append((here, drafted, accepted, nodes, name, builder))
            past.append(PastRound(a, name, drafted, accepted))
            a += 1 + max(accepted, 0)  # every round emits a token, so the loop ends
    used = tuple(name for name in trace.drafters if name in drafters)
    shapes = tuple(dict.fromkeys(("", *(each[5] for each in rounds))))
    table = np.array(
        [(*each[:4], used.index(each[4]), shapes.index(each[5])) for each in rounds],
        dtype=np.int64,
    )
    where, drafts, accepts, verified, who, how = table.reshape(-1, 6).T
    return anchors, Rounds(where, drafts, accepts, verified, who, how, used, shapes)


def chosen_drafter(trace: Trace, plan: Plan, drafter: str | None) -> str:
    """The drafter of one round."""
    if drafter is not None and plan.drafter not in (None, drafter):
        raise ValueError(
            f"The policy plans with the drafter {plan.drafter!r}, but drafter={drafter!r} was "
            "given: leave `drafter` out."
        )
    return trace.drafter_name(drafter if drafter is not None else plan.drafter)


def check_k(k: int, anchors: Anchors) -> None:
    """Refuse a k that this capture cannot replay."""
    if k < 0:
        raise ValueError(f"A plan must draft 0 tokens or more, not {k}.")
    if k > anchors.k:
        raise ValueError(
            f"The plan drafts {k} tokens, but this capture holds drafts of at most "
            f"K = {anchors.k} by {anchors.drafter!r}: use k <= {anchors.k}, or capture with a "
            "larger k."
        )
