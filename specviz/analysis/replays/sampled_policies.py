"""Asking a policy over a sampled capture, and noticing what its answers rest on.

The trace of a sampled output holds what was committed, but neither the drafts that a live run
would have drawn nor the rounds it would have gone through. A policy may use committed text
freely; whether it looks at past rounds decides how it is replayed, and looking inside the draft
is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, Ints, by_position, read_anchors
from specviz.analysis.replays.simulate import check_k, chosen_drafter
from specviz.policies import DraftView, FixedK, History, PastRound, Policy
from specviz.trace import Trace


class _NoRounds(Sequence[PastRound]):
    """Past rounds that are not known: none are shown, and even counting them is noted."""

    def __init__(self) -> None:
        self.looked_at = False

    def __len__(self) -> int:
        self.looked_at = True
        return 0

    def __getitem__(self, place: Any) -> Any:
        self.looked_at = True
        return [][place]

    def __eq__(self, other: object) -> bool:
        self.looked_at = True
        return isinstance(other, Sequence) and len(other) == 0

    __hash__ = None  # type: ignore[assignment]


class _Unseen(Sequence[float]):
    """A drafted column whose length is known and whose content is not: looking in is noted."""

    def __init__(self, length: int) -> None:
        self._length, self.looked_at = length, False

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        self.looked_at = True
        return ([0.5] * self._length)[place]


class Walk:
    """One sequence while it is walked: its committed columns, and the rounds so far."""

    def __init__(self, columns: Sequence[list[Any]], first: int) -> None:
        self.first, self.anchor = first, 0
        self.rounds: list[PastRound] = []
        self._columns = columns

    @property
    def here(self) -> int:
        """Flat index of the anchor."""
        return self.first + self.anchor

    def history(self, rounds: Sequence[PastRound]) -> History:
        upto = self.anchor + 1
        return History(self.anchor, rounds, *(column[:upto] for column in self._columns))

    def follow(self, drafter: str, drafted: int, accepted: int) -> None:
        self.rounds.append(PastRound(self.anchor, drafter, drafted, accepted))
        self.anchor += accepted + 1


class Asker:
    """A policy, asked at anchors of a sampled capture as the live loop asks it.

    `anchors` are those of the trace's first drafter: the sequences are the same for all.
    """

    def __init__(self, trace: Trace, policy: Policy, drafter: str | None) -> None:
        self._trace, self._policy, self._drafter = trace, policy, drafter
        self._known: dict[str, Anchors] = {}
        self.anchors = self.anchors_of(trace.drafters[0])
        self._columns = [
            by_position(trace, self.anchors, name).tolist()
            for name in ("token_id", "entropy", "p_max", "margin")
        ]
        self._first = np.concatenate([[0], np.cumsum(self.anchors.n)]).tolist()

    def anchors_of(self, drafter: str) -> Anchors:
        if drafter not in self._known:
            self._known[drafter] = read_anchors(self._trace, drafter)
        return self._known[drafter]

    def walk(self, sequence: int) -> Walk:
        low, high = self._first[sequence], self._first[sequence + 1]
        columns = [column[low:high] for column in self._columns]
        return Walk(columns, int(self.anchors.start[sequence]))

    def ask(self, walk: Walk, rounds: Sequence[PastRound]) -> tuple[str, int]:
        """The drafter and how many tokens it drafts there."""
        plan = self._policy.plan(walk.history(rounds))
        if plan.tree is not None:
            raise ValueError(
                f"The policy {self._policy.name!r} asks for token trees, whose chances of being "
                "kept are other than a chain's: run it live, or replay a policy of chains."
            )
        name = chosen_drafter(self._trace, plan, self._drafter)
        anchors = self.anchors_of(name)
        check_k(plan.k, anchors)
        most = min(plan.k, int(anchors.offered[walk.here]))
        asked = dataclasses.replace(plan, k=min(plan.k, int(anchors.room[walk.here])), drafter=name)
        depth = min(most, 1)
        while 0 < depth < most:
            columns = [_Unseen(depth) for _ in range(3)]
            wanted = self._policy.more(DraftView(asked, *columns))
            if any(column.looked_at for column in columns):
                raise ValueError(
                    f"The policy {self._policy.name!r} looks inside the draft, and the drafts "
                    "that sampling would have drawn are not in the trace: run it live with "
                    "run_prompts, or replay a policy that looks at committed text only."
                )
            if not wanted:
                break
            depth += 1
        return name, depth

    def everywhere(self) -> tuple[NDArray[np.object_], Ints] | None:
        """Drafter and drafted tokens at every anchor; None once the policy looks at the past."""
        anchors = self.anchors
        if type(self._policy) is FixedK:
            plan = self._policy.plan(History(0, (), (), (), (), ()))
            name = chosen_drafter(self._trace, plan, self._drafter)
            own = self.anchors_of(name)
            check_k(plan.k, own)
            return np.full(len(own.anchor), name, object), np.minimum(own.offered, plan.k)
        names, drafted = np.empty(len(anchors.anchor), object), np.zeros(len(anchors.anchor), int)
        rounds = _NoRounds()
        for sequence, n in enumerate(anchors.n.tolist()):
            walk = self.walk(sequence)
            for walk.anchor in range(n - 1):
                names[walk.here], drafted[walk.here] = self.ask(walk, rounds)
                if rounds.looked_at:
                    return None
        return names, drafted
