"""The identities of F2.5 with stated figures put in: which of them can hold, and what follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from specviz.analysis.audits.ranges import Range

#: Names of the figures that a claim may give, each with its range.
Said = Mapping[str, Range]
ONE = Range.of(1)


@dataclass(frozen=True)
class Finding:
    """One identity with the figures put in: its formula, whether it can hold, and in words."""

    formula: str
    ok: bool
    sentence: str


@dataclass
class Reading:
    """The figures with the bonus token counted in them, or not, and what follows.

    Attributes
    ----------
    bonus_counted
        How the one given count of tokens is read.
    findings
        Every identity that the figures allow to check.
    tokens_per_round
        Bonus counted.
    speedup
        Speculative over plain tokens per second.
    round_seconds, plain_seconds
        Of a round, and of a plain decoding step.
    step_ratio
        Seconds of a round / seconds of a plain step.
    countable
        Whether the counts alone can be true, speeds left aside.
    """

    bonus_counted: bool
    findings: list[Finding] = field(default_factory=list)
    tokens_per_round: Range | None = None
    speedup: Range | None = None
    round_seconds: Range | None = None
    plain_seconds: Range | None = None
    step_ratio: Range | None = None
    countable: bool = True

    @property
    def possible(self) -> bool:
        return all(finding.ok for finding in self.findings)

    def check(self, formula: str, ok: bool, holds: str, fails: str) -> None:
        self.findings.append(Finding(formula, ok, holds if ok else fails))


def read(
    said: Said, survival: Sequence[Range], k: int | None, requests: int, counted: bool
) -> Reading:
    """Check and derive everything under one reading."""
    reading = Reading(counted)
    drafted, yielded = said.get("drafted_per_round"), said.get("draft_yield")
    if drafted is not None and k is not None:
        reading.check(
            "F2.5",
            drafted.at_most(Range.of(k)),
            f"{drafted} tokens drafted per round are no more than k = {k}.",
            f"{drafted} tokens drafted per round are more than k = {k}.",
        )
    if yielded is not None and not yielded.at_most(ONE):
        reading.check("F2.5", False, "", f"A draft yield of {yielded} is above 1.")
    if survival:
        _check_survival(reading, survival)
    _agree(reading, _counts(said, survival, k, counted))
    most = drafted if drafted is not None else None if k is None else Range.of(k)
    if drafted is not None and k is not None:
        most = drafted.within(Range.of(0, k))  # what it was rounded from, too
    _bound(reading, yielded, drafted is None, most)
    reading.countable = reading.possible
    _times(reading, said, requests)
    _check_times(reading, most)
    return reading


# -- counts -----------------------------------------------------------------------------------


def _counts(
    said: Said, survival: Sequence[Range], k: int | None, counted: bool
) -> list[tuple[str, str, Range]]:
    """Tokens per round, bonus counted, from every figure that gives it: formula, words, range."""
    sources: list[tuple[str, str, Range]] = []
    emitted, kept = said.get("tokens_per_round"), said.get("accepted_per_round")
    if emitted is not None and kept is not None:  # each by its own name
        sources += [("F2.5", "tokens per round", emitted), ("F2.5", "accepted + 1", kept + 1)]
    elif emitted is not None or kept is not None:
        count = emitted if emitted is not None else kept
        assert count is not None
        words = "the count as it stands" if counted else "the count + 1"
        sources.append(("F2.5", words, count if counted else count + 1))
    if "draft_yield" in said and "drafted_per_round" in said:
        words = "1 + drafted x draft yield"
        sources.append(("F2.5", words, said["draft_yield"] * said["drafted_per_round"] + 1))
    if survival:
        sources.append(("F2.1", "1 + the sum of survival", _summed(survival, k)))
    return sources


def _summed(survival: Sequence[Range], k: int | None) -> Range:
    """1 + sum of S_j; a depth that is not given has from nothing up to the last share given."""
    total = ONE
    for share in survival:
        total = total + share
    missing = math.inf if k is None else max(k - len(survival), 0)
    last = survival[-1]
    rest = (missing * last.high if last.high else 0.0, missing * last.most if last.most else 0.0)
    return total + Range(0, rest[0], 0, rest[1]) if missing else total


def _check_survival(reading: Reading, survival: Sequence[Range]) -> None:
    falls = all(b.at_most(a) for a, b in pairwise(survival))
    reading.check(
        "F2.5",
        falls and survival[0].at_most(ONE),
        "Survival starts at 1 or below and never rises with depth.",
        "Survival is above 1, or rises with depth: these are no shares of all rounds.",
    )


def _agree(reading: Reading, sources: list[tuple[str, str, Range]]) -> None:
    """Set tokens per round to what every source allows, checking each against those before it."""
    for formula, words, found in sources:
        known = reading.tokens_per_round
        if known is not None:
            reading.check(
                formula,
                known.meets(found),
                f"{known} tokens per round agree with {words} = {found}.",
                f"{known} tokens per round are not {words} = {found}.",
            )
        reading.tokens_per_round = found if known is None else known.within(found)


def _bound(reading: Reading, yielded: Range | None, fixed: bool, most: Range | None) -> None:
    """Tokens per round lie between 1 and k + 1, or below by what the draft yield leaves."""
    tau = reading.tokens_per_round
    if yielded is not None and most is not None and fixed:
        # Nobody says that every round drafts k, only that none drafts more.
        limit = yielded * most + 1
        if tau is None:
            tau = reading.tokens_per_round = limit
        else:
            reading.check(
                "F2.5",
                tau.at_most(limit),
                f"{tau} tokens per round are no more than 1 + k x draft yield = {limit}.",
                f"{tau} tokens per round are more than 1 + k x draft yield = {limit}.",
            )
    if tau is not None and most is not None:
        subject, ends = f"{tau} tokens per round, the bonus counted,", f"1 and k + 1 = {most + 1}"
        reading.check(
            "F2.5",
            ONE.at_most(tau) and tau.at_most(most + 1),
            f"{subject} lie between {ends}.",
            f"{subject} do not lie between {ends}.",
        )
    elif tau is not None and not ONE.at_most(tau):
        reading.check(
            "F2.5", False, "", f"{tau} tokens per round, the bonus counted, are fewer than 1."
        )


# -- times ------------------------------------------------------------------------------------


def _times(reading: Reading, said: Said, requests: int) -> None:
    """Speed-up, seconds and their ratio, from whatever gives them."""
    fast, slow = said.get("tokens_per_second"), said.get("baseline_tokens_per_second")
    tau, speedup = reading.tokens_per_round, said.get("speedup")
    if fast is not None and slow is not None:
        found = fast / slow
        if speedup is not None:
            reading.check(
                "F7.2",
                speedup.meets(found),
                f"A speed-up of {speedup} agrees with {fast} / {slow} tokens/s = {found}.",
                f"A speed-up of {speedup} is not {fast} / {slow} tokens/s = {found}.",
            )
        speedup = found
    round_seconds, plain_seconds = said.get("round_seconds"), said.get("plain_seconds")
    if fast is not None and tau is not None:
        allowed = tau * requests / fast
        if round_seconds is None:
            round_seconds = allowed
        else:
            reading.check(
                "F2.5",
                round_seconds.at_most(allowed),
                f"Rounds of {ms(round_seconds)} fit into the {ms(allowed)} of {fast} tokens/s.",
                f"Rounds of {ms(round_seconds)} exceed the {ms(allowed)} of {fast} tokens/s.",
            )
    if slow is not None:
        step = Range.of(requests) / slow
        if plain_seconds is None:
            plain_seconds = step
        else:
            reading.check(
                "F2.5",
                plain_seconds.meets(step),
                f"A plain step of {ms(plain_seconds)} agrees with {slow} plain tokens/s.",
                f"A plain step of {ms(plain_seconds)} is not the {ms(step)} of {slow} plain "
                "tokens/s.",
            )
    if tau is not None and speedup is not None:
        reading.step_ratio = tau / speedup
        if fast is None and round_seconds is not None and plain_seconds is not None:
            spare = tau * plain_seconds / speedup
            reading.check(
                "F2.5",
                round_seconds.at_most(spare),
                f"Rounds of {ms(round_seconds)} fit a speed-up of {speedup}.",
                f"Rounds of {ms(round_seconds)} exceed the {ms(spare)} of a speed-up of {speedup}.",
            )
    elif round_seconds is not None and plain_seconds is not None:
        reading.step_ratio = round_seconds / plain_seconds
        if tau is not None:
            speedup = tau / reading.step_ratio
    reading.speedup = speedup
    reading.round_seconds, reading.plain_seconds = round_seconds, plain_seconds


def _check_times(reading: Reading, most: Range | None) -> None:
    """A round takes no less time than a plain step, so no speed-up exceeds tokens per round."""
    ratio, speedup, tau = reading.step_ratio, reading.speedup, reading.tokens_per_round
    if ratio is not None:
        over = speedup is not None and most is not None and not speedup.at_most(most + 1)
        also = f", and even above k + 1 = {most + 1}" if over and most is not None else ""
        if speedup is not None and tau is not None:
            holds = f"A speed-up of {speedup} is no more than {tau} tokens per round: "
            fails = f"A speed-up of {speedup} is above {tau} tokens per round{also}: "
        else:
            holds = fails = ""
        reading.check(
            "F2.5",
            ONE.at_most(ratio),
            f"{holds}a round takes {ratio} plain steps.",
            f"{fails}a round would take {ratio} of a plain step, less than 1.",
        )
    elif speedup is not None and most is not None:
        reading.check(
            "F2.5",
            speedup.at_most(most + 1),
            f"A speed-up of {speedup} is no more than k + 1 = {most + 1} tokens per round.",
            f"A speed-up of {speedup} is above k + 1 = {most + 1} tokens per round.",
        )


def ms(seconds: Range) -> str:
    """Seconds as milliseconds, in text."""
    return f"{seconds * 1000} ms"
