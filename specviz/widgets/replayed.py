"""The rounds a widget shows: replayed where the trace is a greedy capture, else as they ran."""

from __future__ import annotations

from typing import Any

import pandas as pd

from specviz.analysis.replays.replay import Replay, replay
from specviz.markup import counted, number
from specviz.policies import FixedK
from specviz.refuse import whole
from specviz.trace import Trace
from specviz.widgets.controls import choice, slider
from specviz.widgets.explorer import DRAWS


class Replayed:
    """Rounds of a trace at any k, remembered.

    Attributes
    ----------
    can
        Whether k can be chosen: of a greedy capture with a draft at every anchor.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        meta = trace.meta
        self.can = meta.kind == "capture" and meta.exhaustive and meta.greedy
        self.can = self.can and trace.table("drafts").num_rows > 0
        self._known: dict[tuple[str, int], Replay] = {}

    def at(self, drafter: str, k: int) -> Replay:
        """The replay of `FixedK(k)`."""
        if (drafter, k) not in self._known:
            self._known[drafter, k] = replay(self.trace, FixedK(k), drafter, draws=DRAWS)
        return self._known[drafter, k]

    def rounds(self, seq: int, drafter: str | None, k: int) -> pd.DataFrame | None:
        """Rounds of one sequence: replayed, else those that ran, else None."""
        if self.can:
            mine = self.at(str(drafter), k).rounds_of(seq)
            return None if mine.empty else mine
        ran = self.trace.rounds
        mine = ran[ran["seq"] == seq]
        return None if mine.empty else mine

    def most(self, drafter: str | None) -> int:
        """The drafter's K: pictures stop there."""
        if drafter is None:
            return 0
        return int(self.trace.meta.drafters[drafter].get("k", self.trace.meta.k))

    def controls(self, drafter: str | None, k: int) -> dict[str, Any]:
        """Drafter and k, where they can be chosen.

        Raises
        ------
        ValueError
            When the drafter is not in the trace or k is above its K.
        """
        k = whole("k", k, least=0)
        if not self.can:
            return {}
        names = self.trace.drafters
        name = self.trace.drafter_name(drafter) if drafter else names[0]
        if k > self.most(name):
            raise ValueError(f"{name} drafts at most {self.most(name)} tokens, not {k}.")
        return {
            "drafter": choice("drafter", names, name),
            "k": slider("k, drafted tokens", k, 0, self.most(name)),
        }

    def words(self, seq: int, drafter: str | None, k: int) -> list[str]:
        """What the rounds of one sequence come to, and those of all."""
        rounds = self.rounds(seq, drafter, k)
        if rounds is None:
            return []
        kept, n = float(rounds["accepted"].sum()), len(rounds)
        first = f"{number((kept + n) / n)} tokens per round in this text"
        if not self.can:
            return [first, f"As it ran, bonus counted: {counted(n, 'round')}, 1 prompt."]
        whole_trace = self.at(str(drafter), k)
        return [
            f"{first}, k = {k}",
            f"Emitted tokens over rounds, the target's own token (bonus) counted: "
            f"{counted(n, 'round')}, 1 prompt, drafter {drafter}, replayed exactly.",
            f"All prompts: {whole_trace.interval} over {counted(whole_trace.n_rounds, 'round')}; "
            "the interval resamples prompts.",
        ]


def sequence_options(trace: Trace, kind: str | None = None) -> dict[str, int]:
    """Sequences to choose from: prompt and content type as text, `seq` as value."""
    rows = trace.sequences
    if kind is not None:
        rows = rows[rows["content_type"] == kind]
    return {
        f"{row['prompt_id']} · {row['content_type']}": int(row["seq"])
        for row in rows.to_dict("records")
    }
