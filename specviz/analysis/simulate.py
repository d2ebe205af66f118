"""Any policy, round by round over a capture, asked exactly as the live loop asks it."""

from __future__ import annotations

import dataclasses

import numpy as np

from specviz.analysis.anchors import Anchors, Ints, anchors_of, by_position
from specviz.policies import DraftView, History, PastRound, Plan, Policy
from specviz.trace import Trace


class _Drafter:
    """One drafter's anchors and free-running columns, read when a plan first names it."""

    def __init__(self, trace: Trace, name: str | None) -> None:
        self.anchors = anchors_of(trace, name)
        self._columns = [
            trace.matrix(column, self.anchors.drafter)
            for column in ("logq", "entropy", "confidence")
        ]

    def ask(self, policy: Policy, plan: Plan, at: int) -> int:
        """How many tokens a plan drafts at a flat anchor before the policy says stop."""
        k = min(plan.k, int(self.anchors.room[at]))
        plan = dataclasses.replace(plan, k=k, drafter=self.anchors.drafter)
        most = min(plan.k, int(self.anchors.offered[at]))
        row = self.anchors.row[at]
        logq, entropy, confidence = (column[row, :most].tolist() for column in self._columns)
        depth = min(most, 1)
        while 0 < depth < most and policy.more(
            DraftView(plan, logq[:depth], entropy[:depth], confidence[:depth])
        ):
            depth += 1
        return depth


def simulate(
    trace: Trace, policy: Policy, drafter: str | None
) -> tuple[Anchors, Ints, Ints, Ints, tuple[str, ...], Ints]:
    """Rounds of any policy: the anchors, then per round where, drafted, accepted, drafter.

    `where` is flat, as in `Anchors`; the drafter is an index into the names returned before.
    """
    drafters: dict[str, _Drafter] = {}
    anchors = anchors_of(trace, trace.drafters[0])  # of any drafter: the sequences are the same
    columns = [
        by_position(trace, anchors, name).tolist()
        for name in ("token_id", "entropy", "p_max", "margin")
    ]
    first = np.concatenate([[0], np.cumsum(anchors.n)]).tolist()
    rounds: list[tuple[int, int, int, str]] = []
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
            chosen, at = drafters[name], int(anchors.start[s]) + a
            check_k(plan.k, chosen.anchors)
            drafted = chosen.ask(policy, plan, at)
            accepted = min(drafted, int(chosen.anchors.acceptable[at]))
            rounds.append((at, drafted, accepted, name))
            past.append(PastRound(a, name, drafted, accepted))
            a += 1 + max(accepted, 0)  # every round emits a token, so the loop ends
    used = tuple(name for name in trace.drafters if name in drafters)
    table = np.array([(at, d, m, used.index(name)) for at, d, m, name in rounds], dtype=np.int64)
    where, drafts, accepts, which = table.reshape(-1, 4).T
    return anchors, where, drafts, accepts, used, which


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
