"""Policies that stop a draft by what the drafter says of its tokens.

A policy is asked after a token has been drafted, so the token that makes it stop stays in the
draft and is verified. Two rules of llama.cpp cannot be written as policies for that reason:
`p_min` leaves the unsure token itself out, and `n_min` throws a short draft away. Where
drafting runs ahead of verification anyway (a block drafter), stopping shortens the verified
window only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from specviz.cost import LONGEST
from specviz.policies.base import DraftView, History, Plan, number
from specviz.refuse import whole


@dataclass(frozen=True)
class ConfidenceStop:
    """Draft up to `k` tokens, and stop after the first one the drafter is unsure of.

    The rule of transformers' assisted generation, whose default threshold is 0.4: the unsure
    token stays in the draft. What a confidence is differs from drafter to drafter (q of the
    token, a score of a match), so a threshold does not carry over. Confidences are compared as
    traces store them, in half precision.

    Parameters
    ----------
    threshold
        Confidence below which to stop, in [0, 1].
    k
        Tokens at most: not above the drafter's K.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When `threshold` or `k` is out of range.

    Examples
    --------
    >>> policy = ConfidenceStop(0.4, 7)
    >>> policy.name
    'confidence-0.4'
    >>> policy.more(DraftView(Plan(7), logq=[-1.2], entropy=[1.5], confidence=[0.3]))
    False
    """

    threshold: float = 0.4
    k: int = LONGEST
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", number("threshold", self.threshold, 0, 1))
        object.__setattr__(self, "k", whole("k", self.k, least=0))

    @property
    def name(self) -> str:
        return f"confidence-{self.threshold:g}"

    def plan(self, past: History) -> Plan:
        return Plan(self.k, self.drafter)

    def more(self, view: DraftView) -> bool:
        return view.confidence[-1] >= self.threshold


def entropy_score(entropy: float, c: float) -> float:
    """1 - sqrt(c H): what AdaEDL and SVIP make of a drafter's entropy (F4.6).

    A calibrated score, not a bound on any probability: it would be one only where
    H(q, p) / H(q) <= 2 c + 1, which needs the target's p. It falls below 0 for H > 1 / c.

    Parameters
    ----------
    entropy
        H(q) of the drafter's distribution, in nats, at least 0.
    c
        Scale per nat, above 0.

    Examples
    --------
    >>> round(entropy_score(0.098039, 0.2), 3)    # q = (.98, .02): yet with p = (.3, .7) it is .32
    0.86
    """
    return 1 - sqrt(c * entropy)


@dataclass(frozen=True)
class SVIP:
    """Stop after the first token whose entropy score is too low (a calibrated score, F4.6).

    Stops when sqrt(c H(q)) > h, that is when `entropy_score(H, c)` < 1 - h. The published code
    has c = 0.15 and h = 0.3, hence H > 0.6 nats; the paper's own form is c = 1. Source: SVIP
    2024 (arXiv 2411.18462), rule and constants second-hand.

    Parameters
    ----------
    h
        Threshold of sqrt(c H), at least 0.
    k
        Tokens at most: not above the drafter's K.
    c
        Scale per nat, above 0.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When a number is out of its range.

    Examples
    --------
    >>> SVIP().name
    'svip-score-0.3'
    """

    h: float = 0.3
    k: int = LONGEST
    c: float = 0.15
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "h", number("h", self.h, 0))
        object.__setattr__(self, "k", whole("k", self.k, least=0))
        object.__setattr__(self, "c", _scale(self.c))

    @property
    def name(self) -> str:
        return f"svip-score-{self.h:g}"

    def plan(self, past: History) -> Plan:
        return Plan(self.k, self.drafter)

    def more(self, view: DraftView) -> bool:
        return sqrt(self.c * view.entropy[-1]) <= self.h


@dataclass(frozen=True)
class AdaEDL:
    """Stop when the entropy score falls below a threshold that follows the past rounds.

    The score is `entropy_score(H(q), c)`: calibrated, not a bound (F4.6). The threshold is
    folded over the past rounds that drafted: a running share of drafted tokens that were
    accepted (weight `keep` on what it was) is held against `goal`, and the threshold moves by
    `step` up when it is below, else down, of which `1 - inertia` is taken. With the published
    numbers that is 0.001 a round: within 100 tokens it hardly leaves `start`. The plan carries
    the threshold, since `more` does not see the past.

    Source: AdaEDL 2024 (arXiv 2410.18351), rule and update second-hand. `start`, and that the
    running share starts at `goal`, are our choice.

    Parameters
    ----------
    k
        Tokens at most: not above the drafter's K.
    goal
        Share of drafted tokens to be accepted, in [0, 1].
    start
        Threshold of the first round, at most 1.
    c
        Scale of the score per nat, above 0.
    step, keep, inertia
        Of the update; the last two in [0, 1].
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When a number is out of its range; from `more`, when a plan arrives without threshold.

    Examples
    --------
    >>> policy = AdaEDL(7)
    >>> policy.name, policy.plan(History(0, [], [1], [0.5], [0.8], [2.0])).threshold
    ('adaedl-score-0.9', 0.6)
    """

    k: int = LONGEST
    goal: float = 0.9
    start: float = 0.6
    c: float = 0.2
    step: float = 0.01
    keep: float = 0.5
    inertia: float = 0.9
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", whole("k", self.k, least=0))
        object.__setattr__(self, "c", _scale(self.c))
        object.__setattr__(self, "start", number("start", self.start, -100, 1))
        for name in ("goal", "step", "keep", "inertia"):
            object.__setattr__(self, name, number(name, getattr(self, name), 0, 1))

    @property
    def name(self) -> str:
        return f"adaedl-score-{self.goal:g}"

    def plan(self, past: History) -> Plan:
        share, threshold = self.goal, self.start
        for each in past.rounds:
            if each.drafted:
                share = self.keep * share + (1 - self.keep) * each.accepted / each.drafted
                moved = threshold + (self.step if share < self.goal else -self.step)
                threshold = self.inertia * threshold + (1 - self.inertia) * moved
        return Plan(self.k, self.drafter, threshold)

    def more(self, view: DraftView) -> bool:
        if view.plan.threshold is None:
            raise ValueError(
                "AdaEDL was asked about a draft whose plan lacks the threshold AdaEDL gave it: "
                "pass on the plan that `plan` returned, with k and drafter replaced."
            )
        return entropy_score(view.entropy[-1], self.c) >= view.plan.threshold


def _scale(c: object) -> float:
    scale = number("c", c, 0)
    if scale == 0:
        raise ValueError("c must be above 0: with 0 the entropy would not count.")
    return scale
