"""How many tokens to draft now.

A policy is asked twice in a round: `plan` before the drafter starts, from what has been
committed, and `more` after each drafted token, from what the drafter said about it. The
same object runs live in the engine and offline in replay, so this module holds no torch
and a policy keeps no state: everything it may use is in its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from specviz.refuse import whole


@dataclass(frozen=True)
class Plan:
    """What a policy asks of one round.

    Attributes
    ----------
    k
        How many tokens to draft at most; 0 is a plain decoding step.
    drafter
        Which drafter, by name; None is the only one.
    """

    k: int
    drafter: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("A plan's k", self.k, least=0))


@dataclass(frozen=True)
class PastRound:
    """One finished round, as far as a policy may know it."""

    anchor: int
    drafter: str
    drafted: int
    accepted: int


@dataclass(frozen=True)
class History:
    """What is committed when a round is planned.

    The per-position sequences have `anchor + 1` entries: entry t describes output token
    y[t] and the target's distribution it came from (nats). The distribution *after* the
    anchor is not among them: only verification will show it.
    """

    anchor: int
    rounds: Sequence[PastRound]
    tokens: Sequence[int]
    entropy: Sequence[float]
    p_max: Sequence[float]
    margin: Sequence[float]


@dataclass(frozen=True)
class DraftView:
    """What the drafter said of the tokens drafted so far in this round.

    `logq` and `entropy` are in nats, `confidence` is the drafter's own score in [0, 1];
    each has one entry per drafted token, so `len(view.logq)` is the depth reached.
    """

    plan: Plan
    logq: Sequence[float]
    entropy: Sequence[float]
    confidence: Sequence[float]


@runtime_checkable
class Policy(Protocol):
    """Decides how many tokens a round drafts.

    `replayable` is False for policies that learn from measured seconds: those have no
    exact replay and `specviz.replay` refuses them.
    """

    @property
    def name(self) -> str: ...
    @property
    def replayable(self) -> bool: ...
    def plan(self, past: History) -> Plan: ...
    def more(self, view: DraftView) -> bool: ...


@dataclass(frozen=True)
class FixedK:
    """Draft `k` tokens in every round, with one drafter.

    Parameters
    ----------
    k
        Tokens to draft per round; 0 decodes plainly.
    drafter
        Name of the drafter; None takes the only one.

    Examples
    --------
    >>> FixedK(7).name
    'fixed-7'
    """

    k: int
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("k", self.k, least=0))

    @property
    def name(self) -> str:
        return f"fixed-{self.k}"

    def plan(self, past: History) -> Plan:
        return Plan(self.k, self.drafter)

    def more(self, view: DraftView) -> bool:
        return True
