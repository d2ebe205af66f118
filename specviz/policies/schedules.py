"""Policies that set k from how the past rounds went."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from specviz.cost import LONGEST
from specviz.policies.base import DraftView, History, Plan, number
from specviz.refuse import whole


@dataclass(frozen=True)
class Heuristic:
    """Draft longer after a draft that was accepted whole, shorter after any other.

    The schedule of transformers' assisted generation: +2 and -1, never below 1 token. k is
    folded over the past rounds. A round that drafted nothing (the drafter had nothing to
    offer) leaves k as it is. transformers knows no upper end.

    Parameters
    ----------
    start
        Tokens of the first draft.
    up, down
        Tokens added after a whole acceptance, and taken off otherwise.
    most
        Tokens at most: not above the drafter's K.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When a length is not a whole number in its range.

    Examples
    --------
    >>> Heuristic().name
    'heuristic-5+2-1'
    """

    start: int = 5
    up: int = 2
    down: int = 1
    most: int = LONGEST
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("start", "most"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=1))
        for name in ("up", "down"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=0))
        if self.start > self.most:
            raise ValueError(f"start must be at most most = {self.most}, not {self.start}.")

    @property
    def name(self) -> str:
        return f"heuristic-{self.start}+{self.up}-{self.down}"

    def plan(self, past: History) -> Plan:
        k = self.start
        for each in past.rounds:
            if each.drafted:
                whole_draft = each.accepted == each.drafted
                k = min(k + self.up, self.most) if whole_draft else max(1, k - self.down)
        return Plan(k, self.drafter)

    def more(self, view: DraftView) -> bool:
        return True


@dataclass(frozen=True)
class EMAWindow:
    """k follows a moving average of the tokens accepted, with a rest when drafting fails.

    After exllamav3's former dynamic draft length: an exponential moving average of `accepted`
    is folded over the past rounds, and the next window is that average rounded up. A draft
    accepted whole counts one token more than it had, since it was cut by its own window
    (F7.3). Below `skip` nothing is drafted, but every `probe`-th round tries one token, or the
    average could never recover. The rates and the start are ours: exllamav3's were measured
    for its own models.

    Parameters
    ----------
    start
        The average before the first round, in tokens.
    up, down
        Weight of a round above the average, and of one below it, each above 0 and at most 1.
    skip
        Average below which drafting rests, in tokens; 0 never rests.
    probe
        After this many rounds without a draft, draft one token.
    most
        Tokens at most: not above the drafter's K.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When a number is out of its range.

    Examples
    --------
    >>> EMAWindow(skip=0.5).name
    'ema-0.5-0.25-skip-0.5'
    """

    start: float = 4.0
    up: float = 0.5
    down: float = 0.25
    skip: float = 0.0
    probe: int = 8
    most: int = LONGEST
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", whole("most", self.most, least=1))
        object.__setattr__(self, "probe", whole("probe", self.probe, least=1))
        for name, most in (("start", self.most), ("skip", self.most), ("up", 1), ("down", 1)):
            object.__setattr__(self, name, number(name, getattr(self, name), 0, most))
        for name in ("up", "down"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be above 0, or the average stands still.")

    @property
    def name(self) -> str:
        rests = f"-skip-{self.skip:g}" if self.skip else ""
        return f"ema-{self.up:g}-{self.down:g}{rests}"

    def plan(self, past: History) -> Plan:
        average, rested = self.start, 0
        for each in past.rounds:
            rested = 0 if each.drafted else rested + 1
            if each.drafted:
                seen = each.accepted + (each.accepted == each.drafted)
                average += (self.up if seen > average else self.down) * (seen - average)
        if average < self.skip:
            return Plan(int(rested >= self.probe), self.drafter)
        return Plan(min(max(ceil(average), 1), self.most), self.drafter)

    def more(self, view: DraftView) -> bool:
        return True
