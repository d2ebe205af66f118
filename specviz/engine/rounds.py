"""One round, and what a policy may know of the rounds before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pandas as pd

from specviz.engine.observe import RowStats
from specviz.engine.protocols import Acceptance, Draft, Drafter, Target
from specviz.markup import escape, table_html
from specviz.policies import History, PastRound


@dataclass(frozen=True)
class Round:
    """One round: draft, verify, accept.

    Attributes
    ----------
    anchor
        Index of the output token the round started from.
    draft, accepted, tokens, stop
        What was drafted, how many of it were kept, what was emitted (accepted tokens and the
        target's own), and why it ended: reject, full, eos or limit.
    stats
        The target's distribution at every verified row: row 0 follows the anchor, row 1 + i
        follows draft node i. None when the run is not instrumented.
    path
        Accepted nodes; rows of other nodes are conditioned on rejected tokens.
    draft_seconds, verify_seconds, other_seconds
        Measured wall time.
    """

    number: int
    anchor: int
    policy: str
    drafter: str
    draft: Draft
    path: tuple[int, ...]
    tokens: tuple[int, ...]
    stop: str
    stats: RowStats | None
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    text: str = ""

    @property
    def drafted(self) -> int:
        """How many tokens could be accepted: of a tree, its depth."""
        return self.draft.depth

    @property
    def nodes(self) -> int:
        """Draft nodes that were verified, one row each beside the anchor's."""
        return len(self.draft)

    @property
    def accepted(self) -> int:
        return len(self.path)

    @property
    def emitted(self) -> int:
        return len(self.tokens)

    @property
    def rows(self) -> pd.DataFrame:
        """One row per verified row: node, depth, on_path, entropy (nats), p_max, margin."""
        if self.stats is None:
            raise ValueError("This run was not instrumented: generate(..., instrument=True).")
        n = self.nodes
        return pd.DataFrame(
            {
                "node": range(-1, n),
                "depth": [0, *self.draft.depths()],
                "on_path": [True, *(node in self.path for node in range(n))],
                "entropy": self.stats.entropy,
                "p_max": self.stats.p_max,
                "margin": self.stats.margin,
            }
        )

    def __repr__(self) -> str:
        tree = "" if self.draft.is_chain else f" in a tree of {self.nodes}"
        return (
            f"Round {self.number} at {self.anchor}: accepted {self.accepted} of {self.drafted} "
            f"from {self.drafter}{tree}, emitted {self.emitted} ({self.stop}): {self.text!r}"
        )

    def _repr_html_(self) -> str:
        head = f"<p><b>Round {self.number}</b> {escape(repr(self).partition(': ')[2])}</p>"
        return head if self.stats is None else head + table_html(self.rows)


class Recorded(Protocol):
    """What a run has to show for itself; the trace and the certificate are made of it."""

    target: Target
    drafters: dict[str, Drafter]
    acceptance: Acceptance
    prompt_ids: tuple[int, ...]
    prompt_text: str
    token_ids: list[int]
    position_tokens: list[tuple[float, float, int]]
    log: list[Round]
    max_new_tokens: int
    seed: int
    instrument: bool

    @property
    def text(self) -> str: ...
    @property
    def finished(self) -> bool: ...
    @property
    def finish_reason(self) -> str: ...
    def all_stats(self) -> RowStats: ...


class Past:
    """The growing lists a policy's History shows."""

    def __init__(self) -> None:
        self.rounds: list[PastRound] = []
        self.tokens: list[int] = []
        self.entropy: list[float] = []
        self.p_max: list[float] = []
        self.margin: list[float] = []

    def see(self, stats: RowStats) -> None:
        # Rounded as the trace stores them, so that a policy sees the same live and in replay.
        for name in ("entropy", "p_max", "margin"):
            getattr(self, name).extend(getattr(stats, name).astype("float32").tolist())

    def history(self, anchor: int) -> History:
        return History(anchor, self.rounds, self.tokens, self.entropy, self.p_max, self.margin)
