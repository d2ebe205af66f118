"""Does it pay to switch k and drafter with the kind of text? Choices, detection, comparison.

The plans of a `ContentAdaptive` are chosen on one capture and judged on another; detection is
held against labels that somebody gave by reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from specviz.analysis.anchors import anchors_of, fixed_rounds, require_capture
from specviz.analysis.replays.replay import Replay
from specviz.analysis.resampling import DRAWS, LEVEL, Interval, ratio_interval
from specviz.cost import CostModel, need_cost
from specviz.policies.adaptive import ContentAdaptive
from specviz.policies.base import History, Plan
from specviz.policies.detector import Detector
from specviz.refuse import whole
from specviz.trace import Trace

#: Fewer rounds of a class than this do not choose its plan.
FEWEST = 30


def content_of(trace: Trace, policy: ContentAdaptive) -> list[list[str]]:
    """What the policy takes the text for after every output token, sequence by sequence.

    Reads tokens and entropies only: the trace may hold any drafters, or be a live run.
    """
    found = []
    for seq in np.sort(trace.column("sequences", "seq")).tolist():
        mine = np.flatnonzero(trace.column("positions", "seq") == seq)
        mine = mine[np.argsort(trace.column("positions", "t")[mine])]
        tokens, entropy = (
            trace.column("positions", name)[mine].tolist() for name in ("token_id", "entropy")
        )
        found.append(
            [
                policy.content(History(t, (), tokens[: t + 1], entropy[: t + 1], (), ()))
                for t in range(len(tokens))
            ]
        )
    return found


def class_rates(trace: Trace, detector: Detector, cost: CostModel, hold: int = 4) -> pd.DataFrame:
    """Modelled tokens per second of every drafter and k, by the detected class of the anchor.

    Parameters
    ----------
    trace
        A greedy capture of the detector's target.
    detector, hold
        As for `ContentAdaptive`.
    cost
        Seconds of drafting and verifying.

    Returns
    -------
    DataFrame
        content (the detected class), drafter, k, tokens_per_round (bonus counted),
        tokens_per_second (modelled), n_rounds, n_prompts. A round counts for the class at its
        anchor; the rounds are those of a fixed k over all of the text.
    """
    rows = [
        {
            "content": each.content,
            "drafter": each.drafter,
            "k": each.k,
            "tokens_per_round": each.tokens / each.rounds,
            "tokens_per_second": each.tokens / each.seconds,
            "n_rounds": each.rounds,
            "n_prompts": each.prompts,
        }
        for each in _class_sums(trace, detector, cost, hold)
    ]
    return pd.DataFrame(rows)


class _Sums(NamedTuple):
    """What a drafter with one k did in the rounds of one class."""

    content: str
    drafter: str
    k: int
    tokens: int
    seconds: float
    rounds: int
    prompts: int


def _class_sums(trace: Trace, detector: Detector, cost: CostModel, hold: int) -> list[_Sums]:
    need_cost(cost)
    require_capture(trace)
    plans = dict.fromkeys(detector.classes, Plan(0))
    content = content_of(trace, ContentAdaptive(detector, plans, hold))
    at = np.array([name for names in content for name in names[:-1]], dtype=object)
    sums = []
    for drafter in trace.drafters:
        anchors = anchors_of(trace, drafter)
        seconds = np.asarray(cost.round_seconds(drafter, np.arange(anchors.k + 1)))
        for k in range(anchors.k + 1):
            where, drafted, accepted = fixed_rounds(anchors, k)
            for name in detector.classes:
                mine = at[where] == name
                if n := int(mine.sum()):
                    tokens, spent = int(accepted[mine].sum()) + n, seconds[drafted[mine]].sum()
                    prompts = len(np.unique(anchors.owner[where[mine]]))
                    sums.append(_Sums(name, drafter, k, tokens, float(spent), n, prompts))
    return sums


def fit_choices(
    trace: Trace,
    detector: Detector,
    cost: CostModel,
    drafters: Sequence[str] | None = None,
    hold: int = 4,
) -> dict[str, Plan]:
    """The k and drafter with the most tokens per second in each detected class.

    Choose on other prompts than those you judge on. Rates from fewer than 30 rounds choose
    nothing: a class without others gets the plan that is best over all classes together.

    Parameters
    ----------
    trace, detector, cost, hold
        As for `class_rates`.
    drafters
        To choose from; None takes every drafter of the trace.

    Returns
    -------
    dict
        A `Plan` per class, for `ContentAdaptive`. On ties the shorter draft wins.

    Raises
    ------
    ValueError
        When a drafter is not in the trace, and as `replay` and `CostModel`.

    Examples
    --------
    >>> choices = fit_choices(training, load_detector(), cost)             # doctest: +SKIP
    >>> policy = ContentAdaptive(load_detector(), choices)                 # doctest: +SKIP
    """
    names = [trace.drafter_name(name) for name in (drafters or trace.drafters)]
    every = _class_sums(trace, detector, cost, whole("hold", hold, least=1))
    found: dict[tuple[str, int], list[_Sums]] = {}
    for each in sorted(every, key=lambda each: each.k):
        if each.drafter in names:
            found.setdefault((each.drafter, each.k), []).append(each)

    def rate(classes: Sequence[str], sums: list[_Sums]) -> float:
        mine = [each for each in sums if each.content in classes]
        if sum(each.rounds for each in mine) < FEWEST:
            return 0.0
        return sum(each.tokens for each in mine) / sum(each.seconds for each in mine)

    choices = {}
    for name in detector.classes:
        rates = {which: rate([name], sums) for which, sums in found.items()}
        if not any(rates.values()):
            rates = {which: rate(detector.classes, sums) for which, sums in found.items()}
        drafter, k = max(rates, key=lambda which: rates[which])
        choices[name] = Plan(k, drafter)
    return choices


@dataclass(frozen=True)
class Detection:
    """How well the classes a policy believed in agree with labels.

    Attributes
    ----------
    confusion
        Tokens by label (rows) and by what the policy took the text for after them (columns).
    delays
        Per labelled span that begins within an output: prompt, start (token), label, delay:
        tokens from its first one until the policy believes it, 0 when it does so at once; NaN
        where it never does within the span.
    false_switches
        Changes to a class that the token's label is not.
    """

    confusion: pd.DataFrame
    delays: pd.DataFrame
    false_switches: int

    @property
    def tokens(self) -> int:
        return int(self.confusion.to_numpy().sum())

    @property
    def right(self) -> float:
        """Share of tokens that are taken for what they are labelled."""
        return float(np.trace(self.confusion.to_numpy()) / self.tokens)

    @property
    def false_per_100(self) -> float:
        """False switches per 100 tokens."""
        return 100 * self.false_switches / self.tokens


def detection(
    content: Sequence[Sequence[str]],
    labels: Sequence[Sequence[str]],
    classes: Sequence[str],
    prompts: Sequence[str] | None = None,
) -> Detection:
    """Hold what a policy took the text for against labels, token by token.

    Parameters
    ----------
    content
        Per sequence, the class after every token, as `content_of` gives.
    labels
        Per sequence, the label of every token; as long as `content`.
    classes
        Every class, in the order of the confusion table.
    prompts
        Names of the sequences; None numbers them.

    Raises
    ------
    ValueError
        When there is nothing to compare, lengths differ, or a label is none of the classes.

    Examples
    --------
    >>> found = detection([["prose", "prose", "prose", "code"]],
    ...                   [["prose", "code", "code", "code"]], ["code", "prose"])
    >>> found.right, found.delays["delay"].tolist(), found.false_switches
    (0.5, [2.0], 0)
    """
    names = list(prompts) if prompts is not None else [str(i) for i in range(len(content))]
    sizes = [len(each) for each in content]
    if not sum(sizes) or sizes != [len(each) for each in labels] or len(names) != len(sizes):
        raise ValueError(
            "content, labels and prompts must have the same sequences, and content and labels as "
            f"many tokens: {sizes[:5]} against {[len(each) for each in labels][:5]}, ..."
        )
    unknown = {name for each in (*content, *labels) for name in each} - set(classes)
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]!r} is none of the classes {', '.join(classes)}.")
    place = {name: i for i, name in enumerate(classes)}
    counts = np.zeros((len(place), len(place)), dtype=np.int64)
    delays, wrong = [], 0
    for prompt, said, true in zip(names, content, labels, strict=True):
        for t, (a, b) in enumerate(zip(said, true, strict=True)):
            counts[place[b], place[a]] += 1
            wrong += int(t > 0 and a != said[t - 1] and a != b)
        starts = [t for t in range(1, len(true)) if true[t] != true[t - 1]]
        for start, end in pairwise([*starts, len(true)]):
            hits = [t - start for t in range(start, end) if said[t] == true[start]]
            delays.append((prompt, start, true[start], float(hits[0]) if hits else np.nan))
    table = pd.DataFrame(delays, columns=["prompt", "start", "label", "delay"])
    confusion = pd.DataFrame(counts, index=list(place), columns=list(place))
    return Detection(confusion, table, wrong)


def speed_ratio(
    one: Replay,
    other: Replay,
    cost: CostModel,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Modelled tokens per second of one replay over those of another, on the same prompts.

    Both emit the same tokens, so it is the other's seconds over the one's: above 1 the one is
    faster. The interval resamples prompts and does not cover the noise of the timings.

    Raises
    ------
    ValueError
        When the two replays are not of the same prompts.
    """
    top, bottom = _seconds(other, need_cost(cost)), _seconds(one, cost)
    if set(top.index) != set(bottom.index):
        raise ValueError("The two replays are of different prompts: replay both on one trace.")
    return ratio_interval(top, bottom.reindex(top.index), level, draws, seed)


def _seconds(run: Replay, cost: CostModel) -> pd.Series:
    """Modelled seconds of every prompt."""
    rounds = run.rounds
    seconds = np.zeros(len(rounds))
    for name in run.drafters:
        mine = (rounds["drafter"] == name).to_numpy()
        seconds[mine] = cost.round_seconds(name, rounds["drafted"].to_numpy()[mine])
    return pd.Series(seconds).groupby(rounds["prompt_id"].to_numpy(), sort=False).sum()
