"""How many tokens to draft now.

A policy is asked twice in a round: `plan` before the drafter starts, from what has been
committed, and `more` after each drafted token, from what the drafter said about it. The
same object runs live in the engine and offline in replay, so this module holds no torch
and a policy keeps no state: everything it may use is in its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import ClassVar, Protocol, runtime_checkable

from specviz.refuse import whole


@runtime_checkable
class TreeSpec(Protocol):
    """What a policy says of the token tree it wants; the engine's shapes can grow one.

    `builder` names the shape without its size, `nodes` and `depth` are upper limits.
    """

    @property
    def builder(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def depth(self) -> int: ...


@dataclass(frozen=True)
class Plan:
    """What a policy asks of one round.

    Attributes
    ----------
    k
        How many tokens to draft at most; 0 is a plain decoding step.
    drafter
        Which drafter, by name; None is the only one.
    threshold
        What this round's drafted tokens have to reach, for a policy whose stopping rule moves
        from round to round: `more` sees the draft and its plan, but not the past.
    tree
        The shape of the token tree to draft; None is a chain. A tree is grown as a whole, and
        `more` is not asked about it.
    """

    k: int
    drafter: str | None = None
    threshold: float | None = None
    tree: TreeSpec | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("A plan's k", self.k, least=0))


@dataclass(frozen=True)
class PastRound:
    """One finished round, as far as a policy may know it.

    `drafted` is how many tokens could have been accepted: of a tree, its depth. `seconds` is the
    round's measured time, None in replay: a policy that reads it has no exact replay.
    """

    anchor: int
    drafter: str
    drafted: int
    accepted: int
    seconds: float | None = None


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


@dataclass(frozen=True)
class CapturedTree:
    """A tree that a capture holds, by its builder's name: enough for replay, not for drafting."""

    builder: str
    nodes: int
    depth: int


@dataclass(frozen=True)
class FixedTree:
    """Draft a token tree of one shape in every round.

    Parameters
    ----------
    shape
        A shape of `specviz.engine.tree_shapes`, such as `BestFirst(32, depth=7)`.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When `shape` is none.
    """

    shape: TreeSpec
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.shape, type) or not isinstance(self.shape, TreeSpec):
            raise ValueError(
                f"{self.shape!r:.60} is no tree shape: pass one such as BestFirst(32, depth=7)."
            )

    @property
    def name(self) -> str:
        return f"{self.shape.builder} x{self.shape.nodes}"

    def plan(self, past: History) -> Plan:
        return Plan(self.shape.depth, self.drafter, tree=self.shape)

    def more(self, view: DraftView) -> bool:
        return True


def number(name: str, value: object, least: float, most: float = float("inf")) -> float:
    """`value` as a plain float, if it is a finite number from `least` to `most`.

    Raises
    ------
    ValueError
        Otherwise, with what it must be.

    Examples
    --------
    >>> number("threshold", 0.4, 0, 1)
    0.4
    """
    if not isinstance(value, bool) and isinstance(value, Real):
        plain = float(value)
        if isfinite(plain) and least <= plain <= most:
            return plain
    upto = f"from {least:g} to {most:g}" if isfinite(most) else f"of at least {least:g}"
    raise ValueError(f"{name} must be a finite number {upto}, not {value!r}.")


def recent(past: History, window: int) -> Sequence[float]:
    """Entropies of the last `window` committed tokens (fewer at the start), in nats.

    Raises
    ------
    ValueError
        When the run records none.
    """
    if not past.entropy:
        raise ValueError(
            "This policy reads the target's entropies, and the run records none: generate with "
            "instrument=True."
        )
    return past.entropy[-window:]
