"""A policy that switches k and drafter by the kind of text that is being written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from specviz.policies.base import DraftView, History, Plan, recent
from specviz.policies.detector import Detector
from specviz.refuse import whole

#: How far back the last settled class is looked for, in tokens.
REACH = 32


@dataclass(frozen=True)
class ContentAdaptive:
    """One plan (k and drafter) for every kind of text; the detector says which kind it is.

    The kind changes when another class has led at `hold` committed tokens in a row, so that a
    single odd token switches nothing (hysteresis). Nothing is remembered: the last such run
    among the last 32 tokens is looked up whenever a round is planned; where there is none, as
    in the first tokens, the class that leads now counts. All this depends on the committed text
    alone, not on the rounds it came in.

    Parameters
    ----------
    detector
        From `load_detector`, fitted on the target that it is used with.
    choices
        A `Plan` for every class of the detector: k not above that drafter's K.
    hold
        Tokens in a row that a class has to lead before the policy believes it.

    Raises
    ------
    ValueError
        When a class has no plan or a plan no class; from `plan`, when the run records no
        entropies or its tokens are not the detector's. An unknown drafter, and a k above its K,
        are refused by `generate` and `replay`.

    Notes
    -----
    The switch itself costs the next draft more: the drafter switched to has to catch up with
    the tokens that came while it rested.

    Examples
    --------
    >>> from specviz.policies.detector import load_detector
    >>> choices = {"code": Plan(7, "eagle-code"), "prose": Plan(2, "eagle-prose"),
    ...            "structured": Plan(7, "eagle-mixed"), "other": Plan(4, "eagle-mixed")}
    >>> ContentAdaptive(load_detector(), choices).name
    'content-hold-4'
    """

    detector: Detector
    choices: Mapping[str, Plan]
    hold: int = 4
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.detector, Detector):
            raise ValueError(
                f"detector must be a Detector, such as load_detector(), not {self.detector!r:.60}."
            )
        classes = list(self.detector.classes)
        if not isinstance(self.choices, Mapping) or set(self.choices) != set(classes):
            named = list(self.choices) if isinstance(self.choices, Mapping) else self.choices
            raise ValueError(
                f"choices must give one Plan for each of {', '.join(classes)}, not {named!r:.80}."
            )
        for name, plan in self.choices.items():
            if not isinstance(plan, Plan):
                raise ValueError(f"The choice for {name} must be a Plan(k, drafter), not {plan!r}.")
        hold = whole("hold", self.hold, least=1)
        if hold > REACH:
            raise ValueError(f"hold must be at most {REACH} tokens, not {hold}.")
        object.__setattr__(self, "choices", dict(self.choices))
        object.__setattr__(self, "hold", hold)

    @property
    def name(self) -> str:
        return f"content-hold-{self.hold}"

    def plan(self, past: History) -> Plan:
        return self.choices[self.content(past)]

    def more(self, view: DraftView) -> bool:
        return True

    def content(self, past: History) -> str:
        """The class that the text is taken for after these tokens."""
        recent(past, 1)  # refuses a run without entropies
        labels = self.detector.labels(past.tokens, past.entropy, REACH).tolist()
        leader, led = labels[-1], 0
        for place in range(len(labels) - 1, -1, -1):  # back to the last run that was long enough
            led = led + 1 if led and labels[place] == labels[place + 1] else 1
            if led == self.hold:
                leader = labels[place]
                break
        name: str = self.detector.classes[leader]
        return name
