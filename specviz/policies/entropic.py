"""Policies that set k from the target's own recent entropy, known for committed tokens only.

The distribution the next token comes from is not among them: only verification shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, fsum
from typing import ClassVar

from specviz.cost import LONGEST
from specviz.policies.base import DraftView, History, Plan, number, recent
from specviz.refuse import whole


@dataclass(frozen=True)
class EntropyGate:
    """Draft `k` tokens while the target has been sure of itself, none while it has not.

    The mean entropy of the last `window` committed tokens closes the gate at `high` or above
    and opens it at `low` or below; in between it stays as it was (hysteresis). The state is
    recomputed from the committed positions, whatever rounds they came in, and starts open.

    Parameters
    ----------
    low, high
        Mean entropies in nats, 0 <= low <= high.
    k
        Tokens while open: not above the drafter's K.
    window
        Committed tokens to average; fewer at the start of the output.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When a number is out of its range; from `plan`, when the run records no entropies.

    Examples
    --------
    >>> EntropyGate(0.5, 1.5).name
    'gate-0.5-1.5-k7'
    """

    low: float
    high: float
    k: int = 7
    window: int = 8
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", number("low", self.low, 0))
        object.__setattr__(self, "high", number("high", self.high, 0))
        object.__setattr__(self, "k", whole("k", self.k, least=0))
        object.__setattr__(self, "window", whole("window", self.window, least=1))
        if self.low > self.high:
            raise ValueError(
                f"The gate opens at low and closes at high, so low = {self.low:g} must not be "
                f"above high = {self.high:g}."
            )

    @property
    def name(self) -> str:
        return f"gate-{self.low:g}-{self.high:g}-k{self.k}"

    def plan(self, past: History) -> Plan:
        return Plan(self.k if self._is_open(past) else 0, self.drafter)

    def more(self, view: DraftView) -> bool:
        return True

    def _is_open(self, past: History) -> bool:
        recent(past, self.window)  # refuses a run without entropies
        for end in range(len(past.entropy), 0, -1):  # back to the last time it was moved
            values = past.entropy[max(0, end - self.window) : end]
            mean = fsum(values) / len(values)
            if mean <= self.low:
                return True
            if mean >= self.high:
                return False
        return True


@dataclass(frozen=True)
class EBFMatched:
    """k from the target's effective branching factor: "k should match the branching factor".

    B is the geometric mean of the branching factor over the last `window` committed tokens,
    exp(mean H) (F1.6). Two readings of the sentence, halves rounded up:

    - "run": k = round(1 / (B - 1)). If every drafted token matched with chance 1 / B, that
      many would be accepted from an endless draft (F2.2). B = 1.2 gives 5 tokens, 2 gives 1,
      above 3 nothing is drafted.
    - "equal": k = round(B), the words as they stand. It drafts *more* where text is harder.

    Either takes entropy for the chance of a match, which it is not (a greedy target has no
    such ceiling): the policy is here to be compared.

    Parameters
    ----------
    window
        Committed tokens to average; fewer at the start of the output.
    most
        Tokens at most: not above the drafter's K.
    reading
        "run" or "equal".
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When a value is out of range; from `plan`, when the run records no entropies.

    Examples
    --------
    >>> EBFMatched(8).name
    'ebf-run-8'
    """

    window: int = 8
    most: int = LONGEST
    reading: str = "run"
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", whole("window", self.window, least=1))
        object.__setattr__(self, "most", whole("most", self.most, least=1))
        if self.reading not in ("run", "equal"):
            raise ValueError(f'reading must be "run" or "equal", not {self.reading!r}.')

    @property
    def name(self) -> str:
        return f"ebf-{self.reading}-{self.window}"

    def plan(self, past: History) -> Plan:
        values = recent(past, self.window)
        mean = fsum(values) / len(values)
        if self.reading == "equal":
            k = exp(mean)
        else:
            beyond_one = max(expm1(mean), 1 / (self.most + 1))  # B = 1 would draft without end
            k = 1 / beyond_one
        return Plan(min(int(k + 0.5), self.most), self.drafter)

    def more(self, view: DraftView) -> bool:
        return True
