"""Policies that weigh tokens against seconds: a cost model's, or the bandit's own measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import log, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specviz.cost import CostModel, need_cost
from specviz.policies.base import DraftView, History, PastRound, Plan, number
from specviz.refuse import whole


@dataclass(frozen=True)
class CostOptimal:
    """Draft as long as the next tokens are worth their time.

    R* is the most tokens per second that any fixed k reaches when j or more drafted tokens are
    accepted with probability S_j and a round takes what the cost model says (F4.2). Before a
    round: k = 0 where R* is that of plain decoding, else every priced depth is open. While
    drafting (F4.4): with C the product of the confidences so far, going on to depth m brings
    C (S_(j+1) + ... + S_m) / S_j more tokens, and costs R* (T(m) - T(j)); draft on while some m
    in reach is worth it. Where confidences equal the S_j / S_(j-1), and S_j over its extra time
    falls, that is the marginal rule F4.3 and stops at the best k.

    R* is that of the best fixed k. A policy that listens does better, so its own rate would
    stop it a little sooner.

    Parameters
    ----------
    cost
        Seconds of drafting and verifying. A block drafter's curve is flat after its first
        token, so that only verification counts there.
    survival
        S_1, S_2, ...: the share of rounds that accept j or more; falling, in [0, 1]. Its length
        is the most that is drafted: not above the drafter's K. Take it from other prompts than
        those you judge on.
    drafter
        Whose cost; None takes the only one that the model prices.
    calibration
        Pairs (confidence, chance of a match given that all before matched), rising in both,
        joined by straight lines and level outside. None takes confidences as chances, which
        few drafters' are.
    dynamic
        False ignores confidences: the best fixed k under `survival`.

    Raises
    ------
    ValueError
        When the cost model does not price these drafts, or survival or calibration cannot be.

    Examples
    --------
    A token-by-token drafter at 0.08 plain steps a token, the example of F4.2:

    >>> steps = CostModel.from_array([1 + 0.02 * n for n in range(11)],
    ...                              [0.08 * k for k in range(11)])
    >>> policy = CostOptimal(steps, [0.6**j for j in range(1, 11)], dynamic=False)
    >>> policy.name, policy.plan(History(0, [], [1], [], [], [])).k
    ('cost-optimal-fixed', 3)
    """

    cost: CostModel
    survival: Sequence[float]
    drafter: str | None = None
    calibration: Sequence[tuple[float, float]] | None = None
    dynamic: bool = True
    replayable: ClassVar[bool] = True
    _seconds: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _rate: float = field(init=False, repr=False, compare=False)
    _best: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "survival", _survival(self.survival))
        if self.calibration is not None:
            object.__setattr__(self, "calibration", _calibration(self.calibration))
        seconds = _round_seconds(self.cost, self.drafter, len(self.survival))
        tokens = accumulate(self.survival, initial=1.0)
        rates = [t / s for t, s in zip(tokens, seconds, strict=True)]
        object.__setattr__(self, "_seconds", seconds)
        object.__setattr__(self, "_rate", max(rates))
        object.__setattr__(self, "_best", rates.index(max(rates)))

    @property
    def name(self) -> str:
        return "cost-optimal" if self.dynamic else "cost-optimal-fixed"

    def plan(self, past: History) -> Plan:
        k = len(self.survival) if self.dynamic and self._best else self._best
        return Plan(k, self.drafter)

    def more(self, view: DraftView) -> bool:
        if not self.dynamic:
            return True
        depth = len(view.confidence)
        alive = self.survival[depth - 1]
        if not alive:
            return False
        reach, spent = self._reach(view.confidence), self._seconds[depth]
        tokens = 0.0
        for further in range(depth + 1, min(view.plan.k, len(self.survival)) + 1):
            tokens += self.survival[further - 1] / alive
            if reach * tokens > self._rate * (self._seconds[further] - spent):
                return True
        return False

    def _reach(self, confidence: Sequence[float]) -> float:
        """Chance that every token drafted so far matches."""
        chances = np.asarray(confidence, dtype=float)
        if self.calibration is not None:
            scores, known = np.array(self.calibration).T
            chances = np.interp(chances, scores, known)
        return float(np.prod(chances))


@dataclass(frozen=True)
class Bandit:
    """Learn which k emits the most tokens per second, afresh in every sequence.

    UCB1 over the lengths `ks`: each is tried once, then the one with the largest
    rate / ceiling + explore sqrt(ln n / n_k) after n rounds, n_k of them with this k. The rate
    is tokens emitted over seconds. With a cost model the seconds are modelled and the ceiling is
    the largest rate that any of `ks` could reach: the same choices live and in replay. Without
    one they are the measured seconds of the live rounds, the ceiling is the largest rate so far,
    and there is no replay. The choices are folded over the past rounds, so all of these must be
    the bandit's own. Nothing carries over from one sequence to the next.

    Parameters
    ----------
    ks
        Lengths to choose from, none twice: not above the drafter's K.
    cost
        Seconds of drafting and verifying; None learns from measured seconds.
    drafter
        Whose cost, and who drafts; None takes the only one that the model prices.
    explore
        Weight of the unknown; sqrt(2) is UCB1, less suits short outputs.
    seed
        Of the order in which lengths are first tried, which also breaks ties.

    Raises
    ------
    ValueError
        When `ks` is empty or repeats itself, a length is not priced, or a number is out of
        range; from `plan`, when measured seconds are needed and the rounds have none.

    Examples
    --------
    >>> from specviz.presets import t4_like
    >>> Bandit((1, 3, 7), t4_like()).name
    'bandit-1-3-7'
    >>> Bandit((1, 3, 7)).name, Bandit((1, 3, 7)).replayable
    ('bandit-measured-1-3-7', False)
    """

    ks: Sequence[int]
    cost: CostModel | None = None
    drafter: str | None = None
    explore: float = sqrt(2)
    seed: int = 0
    _seconds: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _ceiling: float = field(init=False, repr=False, compare=False)
    _order: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.ks, str) or not isinstance(self.ks, Sequence) or not self.ks:
            raise ValueError(f"ks must be a list of lengths, such as (1, 3, 7), not {self.ks!r}.")
        ks = tuple(whole("Every one of ks", k, least=0) for k in self.ks)
        if len(set(ks)) < len(ks):
            raise ValueError(f"ks must not name a length twice: {ks}.")
        object.__setattr__(self, "ks", ks)
        object.__setattr__(self, "explore", number("explore", self.explore, 0))
        object.__setattr__(self, "seed", whole("seed", self.seed, least=0))
        seconds: tuple[float, ...] = ()
        if self.cost is not None:
            seconds = _round_seconds(self.cost, self.drafter, max(ks))
        object.__setattr__(self, "_seconds", seconds)
        ceiling = max((k + 1) / seconds[k] for k in ks) if seconds else 0.0
        object.__setattr__(self, "_ceiling", ceiling)
        order = np.random.default_rng(self.seed).permutation(len(ks))
        object.__setattr__(self, "_order", tuple(ks[i] for i in order))

    @property
    def name(self) -> str:
        how = "bandit" if self.replayable else "bandit-measured"
        return f"{how}-{'-'.join(str(k) for k in self.ks)}"

    @property
    def replayable(self) -> bool:
        return self.cost is not None

    def plan(self, past: History) -> Plan:
        times, tokens, seconds = (dict.fromkeys(self.ks, 0.0) for _ in range(3))
        for each in past.rounds:
            k = self._choice(times, tokens, seconds)  # what was planned then
            times[k] += 1
            tokens[k] += each.accepted + 1
            seconds[k] += self._spent(each, k)
        return Plan(self._choice(times, tokens, seconds), self.drafter)

    def more(self, view: DraftView) -> bool:
        return True

    def _spent(self, each: PastRound, k: int) -> float:
        if self._seconds:
            return self._seconds[min(each.drafted, k)]
        if each.seconds is None:
            raise ValueError(
                "This bandit learns from measured seconds, and these rounds have none: run it "
                "live, or give it a cost model."
            )
        return each.seconds

    def _choice(
        self, times: dict[int, float], tokens: dict[int, float], seconds: dict[int, float]
    ) -> int:
        for k in self._order:
            if not times[k]:
                return k
        unknown = log(sum(times.values()))
        rate = {k: tokens[k] / max(seconds[k], 1e-9) for k in self._order}
        ceiling = self._ceiling or max(rate.values())

        def bound(k: int) -> float:
            return rate[k] / ceiling + self.explore * sqrt(unknown / times[k])

        return max(self._order, key=bound)


def _round_seconds(cost: CostModel, drafter: str | None, longest: int) -> tuple[float, ...]:
    """Modelled seconds of rounds that draft 0..longest tokens."""
    priced = list(need_cost(cost).draft)
    if drafter is None and len(priced) != 1:
        raise ValueError(
            f"Say whose drafts these are: the cost model {cost.name!r} prices "
            f"{', '.join(priced) or 'no drafter'}."
        )
    seconds = cost.round_seconds(drafter or priced[0], np.arange(longest + 1))
    return tuple(seconds.tolist())


def _numbers(values: object) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.asarray(np.nan)


def _survival(values: object) -> tuple[float, ...]:
    alive = _numbers(values)
    if alive.ndim != 1 or not alive.size or not np.all((alive >= 0) & (alive <= 1)):
        raise ValueError(
            f"survival must be a list of shares S_1, S_2, ... in [0, 1], not {values!r}."
        )
    if np.any(np.diff(alive) > 0):
        raise ValueError(f"survival must not rise with depth: {alive.tolist()}.")
    return tuple(alive.tolist())


def _calibration(pairs: object) -> tuple[tuple[float, float], ...]:
    table = _numbers(pairs)
    if table.ndim != 2 or table.shape[1] != 2 or not len(table):
        raise ValueError(
            "calibration must be pairs (confidence, chance of a match), such as "
            f"((0.0, 0.1), (1.0, 0.95)), not {pairs!r}."
        )
    rising = np.all(np.diff(table[:, 0]) > 0) and np.all(np.diff(table[:, 1]) >= 0)
    if not (rising and np.all((table >= 0) & (table <= 1))):
        raise ValueError(f"calibration must rise, and lie in [0, 1]: {table.tolist()}.")
    return tuple((float(score), float(chance)) for score, chance in table)
