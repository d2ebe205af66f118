"""Can the figures of a claim all be true at once? Nothing is measured, everything is compared.

A verdict allows for rounding: 7.4 may be anything that rounds to it. What is derived takes the
figures at their word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from specviz.analysis.audits.identities import Finding, Reading, read
from specviz.analysis.audits.ranges import Figure, Range, stated
from specviz.analysis.audits.reconcile import ways_out
from specviz.analysis.theory.tau import invert_tau
from specviz.markup import escape, table_html
from specviz.refuse import whole

__all__ = ["Audit", "Finding", "Reading", "audit"]

#: Figures that cannot be 0.
_SPEEDS = (
    "tokens_per_second",
    "baseline_tokens_per_second",
    "speedup",
    "round_seconds",
    "plain_seconds",
)


@dataclass(frozen=True, repr=False)
class Audit:
    """A claim held against the identities that every count and every time obeys.

    Attributes
    ----------
    said
        The figures as they were given.
    k
        Most tokens drafted per round, if given.
    readings
        The readings tried: as the figure's name has it first, then the other, unless
        `bonus_counted` settled it.
    reconcile
        What would let the figures stand, where they cannot.
    """

    said: Mapping[str, Any]
    k: int | None
    readings: tuple[Reading, ...]
    reconcile: tuple[str, ...] = ()

    @property
    def consistent(self) -> bool:
        """Whether the figures can all be true under some reading.

        True also where they say too little to be checked: `verdict` tells these apart.
        """
        return any(reading.possible for reading in self.readings)

    @property
    def verdict(self) -> str:
        """One of "consistent", "inconsistent" and "not enough said" (nothing could be checked)."""
        if not self.consistent:
            return "inconsistent"
        return "consistent" if any(r.findings for r in self.readings) else "not enough said"

    @property
    def shown(self) -> Reading:
        """The first reading that is possible, else the first: what the numbers here follow."""
        return next((r for r in self.readings if r.possible), self.readings[0])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every identity that could be checked."""
        return tuple(self.shown.findings)

    @property
    def bonus_counted(self) -> bool | None:
        """Whether the count of tokens must include the bonus; None where both or neither can be.

        Where no reading can be true as a whole, the counts alone decide.
        """
        can = [r for r in self.readings if r.possible] or [r for r in self.readings if r.countable]
        return can[0].bonus_counted if len(can) == 1 and self._count is not None else None

    @property
    def convention(self) -> str:
        """What the figures must count, in words."""
        count, tau = self._count, self.tokens_per_round
        if count is None and tau is not None and "draft_yield" in self.said:
            return f"With k drafted in every round, {tau} tokens per round, the bonus counted."
        if count is None:
            return ""
        if len(self.readings) == 1:
            how = "counts" if self.readings[0].bonus_counted else "does not count"
            return f"{count} {how} the bonus token."
        if self.bonus_counted is None:
            if not self.consistent:
                return f"{count} fits neither with nor without the bonus token."
            how = "is taken to" if self.shown.bonus_counted else "is taken not to"
            return f"{count} may count the bonus token or not; here it {how}."
        wrong = self.readings[self.readings[0].bonus_counted == self.bonus_counted]
        why = next(finding.sentence for finding in wrong.findings if not finding.ok)
        must = "must" if self.bonus_counted else "must not"
        return f"{count} {must} count the bonus token. Read the other way: {why}"

    @property
    def _count(self) -> Range | None:
        """The one count of tokens whose meaning is in question."""
        names = [name for name in ("tokens_per_round", "accepted_per_round") if name in self.said]
        return stated(names[0], self.said[names[0]]) if len(names) == 1 else None

    @property
    def _said(self) -> str:
        return ", ".join(
            f"{name} {' to '.join(map(str, v)) if isinstance(v, tuple) else v}"
            for name, v in self.said.items()
        )

    @property
    def tokens_per_round(self) -> Range | None:
        """Bonus counted."""
        return self.shown.tokens_per_round

    @property
    def speedup(self) -> Range | None:
        """Speculative over plain tokens per second."""
        return self.shown.speedup

    @property
    def step_ratio(self) -> Range | None:
        """Seconds of a round / seconds of a plain step = tokens per round / speed-up (F2.5)."""
        return self.shown.step_ratio

    @property
    def round_seconds(self) -> Range | None:
        """Tokens per round / tokens per second, unless stated (F4.2)."""
        return self.shown.round_seconds

    @property
    def extra_per_token(self) -> Range | None:
        """(step ratio - 1) / k in plain steps: F4.1's c, with verification in it.

        None where k is not given, or a round could be cheaper than a plain step.
        """
        ratio = self.step_ratio
        if ratio is None or self.k is None or ratio.low < 1:
            return None
        return Range.of((ratio.low - 1) / self.k, (ratio.high - 1) / self.k)

    @property
    def token_match(self) -> Range | None:
        """The chance of a match, equal at every depth, that gives these tokens per round (F2.2).

        A summary and no measurement: text comes in easy and hard stretches. None where k is
        not given, or no round of k emits so many tokens.
        """
        tau = self.tokens_per_round
        if tau is None or self.k is None:
            return None
        if tau.low > self.k + 1 or tau.high < 1:
            return None
        ends = (max(tau.low, 1.0), min(tau.high, self.k + 1.0))
        return Range.of(*(invert_tau(end, self.k) for end in ends))

    @property
    def unchecked(self) -> str:
        """What could not be checked because k was not given, in words; "" where it was."""
        if self.k is not None or "drafted_per_round" in self.said or not self.consistent:
            return ""
        if self.tokens_per_round is None and self.speedup is None:
            return ""
        return "k was not given, so nothing was held against k + 1, the most a round can emit."

    def __repr__(self) -> str:
        return f"Audit({self.verdict}: {self._said})"

    def __str__(self) -> str:
        lines = [" ".join(filter(None, (f"{self.verdict}.", self.convention, self.unchecked)))]
        lines += [
            f"  {'holds' if f.ok else 'FAILS'} ({f.formula}): {f.sentence}" for f in self.findings
        ]
        if self.reconcile:
            lines += ["What would reconcile the figures:", *(f"  {way}" for way in self.reconcile)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        checks = [
            {"formula": f.formula, "holds": f.ok, "with these figures": f.sentence}
            for f in self.findings
        ]
        implied = (
            ("tokens per round, bonus counted", self.tokens_per_round, "F2.5"),
            ("speed-up", self.speedup, "F7.2"),
            ("seconds of a round / of a plain step", self.step_ratio, "F2.5"),
            ("seconds of a round", self.round_seconds, "F4.2"),
            ("extra plain steps per drafted token", self.extra_per_token, "F4.1"),
            ("chance of a match, equal at every depth", self.token_match, "F2.2"),
        )
        follows = [
            {"implied": name, "value": str(value), "formula": formula}
            for name, value, formula in implied
            if value is not None
        ]
        ways = "".join(f"<li>{escape(way)}</li>" for way in self.reconcile)
        return (
            f"<p><b>{escape(self.verdict)}</b>: {escape(self._said)}. {escape(self.convention)} "
            f"{escape(self.unchecked)}</p>"
            + (table_html(checks) if checks else "")
            + (table_html(follows) if follows else "")
            + (f"<p>What would reconcile the figures:</p><ul>{ways}</ul>" if ways else "")
        )


def audit(
    *,
    tokens_per_round: Figure | None = None,
    accepted_per_round: Figure | None = None,
    draft_yield: Figure | None = None,
    survival: Sequence[float | Decimal] = (),
    k: int | None = None,
    drafted_per_round: Figure | None = None,
    tokens_per_second: Figure | None = None,
    baseline_tokens_per_second: Figure | None = None,
    speedup: Figure | None = None,
    round_seconds: Figure | None = None,
    plain_seconds: Figure | None = None,
    requests: int = 1,
    bonus_counted: bool | None = None,
) -> Audit:
    """Hold the figures of a claim against each other (F2.5), and say what they imply.

    A figure is a number, or a pair (low, high) where the source gives a range.

    Parameters
    ----------
    tokens_per_round, accepted_per_round
        Tokens that a round emits, the bonus counted; draft tokens that it keeps, the bonus
        not counted. Given only one of them, its name is not believed at once: both readings
        are tried, unless `bonus_counted` says.
    draft_yield
        Accepted / drafted tokens.
    survival
        Shares of all rounds that accepted at least 1, 2, ... tokens. A list that ends before
        depth k bounds the rest.
    k
        Most tokens drafted in a round. (A block size that counts the anchor is k + 1.)
    drafted_per_round
        Tokens drafted per round on average, where it is not k in every round.
    tokens_per_second, baseline_tokens_per_second, speedup
        Of speculative and of plain decoding, and their ratio.
    round_seconds, plain_seconds
        Of a round and of a plain step.
    requests
        Sequences decoded at once that share `tokens_per_second` and the baseline.
    bonus_counted
        Whether the one given count of tokens includes the bonus; None tries both.

    Returns
    -------
    Audit

    Raises
    ------
    ValueError
        When no figure is given; when one is no number from 0 on (above 0 for speeds and
        seconds) and no pair in order; when `bonus_counted` is given beside both counts.

    Notes
    -----
    One assumption is made: a round takes no less time than a plain step, since it verifies
    the row that a plain step computes, and more. Figures that break it are called
    inconsistent: their two speeds belong to different settings.

    Examples
    --------
    >>> code = audit(tokens_per_round=7.4, k=7, tokens_per_second=154,
    ...              baseline_tokens_per_second=(18, 19))
    >>> code.verdict, str(code.speedup), str(code.step_ratio)
    ('inconsistent', '8.11 to 8.56', '0.865 to 0.913')
    >>> print(audit(accepted_per_round=7.4, k=7).convention)
    7.40 must count the bonus token. Read the other way: 8.40 tokens per round, the bonus counted, \
do not lie between 1 and k + 1 = 8.
    """
    figures = {
        "tokens_per_round": tokens_per_round,
        "accepted_per_round": accepted_per_round,
        "draft_yield": draft_yield,
        "drafted_per_round": drafted_per_round,
        "tokens_per_second": tokens_per_second,
        "baseline_tokens_per_second": baseline_tokens_per_second,
        "speedup": speedup,
        "round_seconds": round_seconds,
        "plain_seconds": plain_seconds,
    }
    said: dict[str, Any] = {name: value for name, value in figures.items() if value is not None}
    ranges = {name: stated(name, value) for name, value in said.items()}
    for name in _SPEEDS:
        if name in ranges and ranges[name].low == 0:
            raise ValueError(f"{name} must be more than 0: leave it out where it is not known.")
    shares = [stated("survival", share) for share in _listed(survival)]
    if not said and not shares:
        raise ValueError("There is nothing to audit: give at least one figure of the claim.")
    if shares:
        said["survival"] = list(survival)
    if k is not None:
        said["k"] = k = whole("k", k, least=1)
    requests = whole("requests", requests, least=1)
    if requests > 1:
        said["requests"] = requests
    ways = _ways(said, bonus_counted)
    readings = tuple(read(ranges, shares, k, requests, way) for way in ways)
    if any(reading.possible for reading in readings):
        return Audit(said, k, readings)
    other = read(ranges, shares, k, requests, not ways[0]) if len(ways) == 1 else None
    return Audit(said, k, readings, ways_out(ranges, readings[0], other, k))


def _listed(survival: object) -> list[Any]:
    if isinstance(survival, str) or not hasattr(survival, "__iter__"):
        raise ValueError(
            f"survival must list P(accepted >= 1), P(accepted >= 2), ..., not {survival!r}."
        )
    return list(survival)


def _ways(said: Mapping[str, Any], bonus_counted: object) -> list[bool]:
    """How to read the one count of tokens: as its name has it first."""
    if bonus_counted is not None and not isinstance(bonus_counted, bool):
        raise ValueError(f"bonus_counted must be True, False or None, not {bonus_counted!r}.")
    names = [name for name in ("tokens_per_round", "accepted_per_round") if name in said]
    if len(names) == 2 and bonus_counted is not None:
        raise ValueError(
            "tokens_per_round counts the bonus and accepted_per_round does not: with both given, "
            "leave bonus_counted out."
        )
    if bonus_counted is not None:
        return [bonus_counted]
    own = names != ["accepted_per_round"]
    return [own, not own] if len(names) == 1 else [own]
