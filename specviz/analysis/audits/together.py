"""Can several claims be true of one system? One k, one machine: one cost of a round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from specviz.analysis.audits.audit import Audit
from specviz.analysis.audits.identities import Reading, ms
from specviz.analysis.audits.ranges import Range
from specviz.markup import escape, table_html
from specviz.policies.base import number

#: How far rounds may differ without contradiction: other texts have other context lengths.
TOLERANCE = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class AuditTogether:
    """Several claims under one cost model.

    Attributes
    ----------
    one_cost_model
        Whether one cost of a round, give or take `tolerance`, fits every claim.
    consistent
        The same, and every claim is consistent by itself.
    factor
        How many times the dearest round must cost the cheapest one, at least; rounding allowed
        for. 1.0 where one cost fits all.
    compared
        "round_seconds" or "step_ratio" (seconds of a round over those of a plain step).
    bonus_counted
        The reading of the counts behind all this, the same for every claim that left it open.
    table
        One row per claim: its verdict by itself, tokens_per_round (bonus counted), what is
        compared with its ends.
    reason
        Why one cost model does not fit, or what fits.
    reconcile
        What would have to be true instead.
    """

    one_cost_model: bool
    consistent: bool
    factor: float
    tolerance: float
    compared: str
    bonus_counted: bool
    table: pd.DataFrame
    reason: str
    reconcile: tuple[str, ...]

    def __repr__(self) -> str:
        word = "consistent" if self.consistent else "inconsistent"
        return f"AuditTogether({word}: {', '.join(self.table['claim'])})"

    def __str__(self) -> str:
        lines = [f"{'consistent' if self.consistent else 'inconsistent'}. {self.reason}"]
        if self.reconcile:
            lines += ["What would reconcile the claims:", *(f"  {way}" for way in self.reconcile)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        ways = "".join(f"<li>{escape(way)}</li>" for way in self.reconcile)
        word = "consistent" if self.consistent else "inconsistent"
        return f"<p><b>{word}</b>: {escape(self.reason)}</p>{table_html(self.table)}" + (
            f"<p>What would reconcile the claims:</p><ul>{ways}</ul>" if ways else ""
        )


def audit_together(claims: Mapping[str, Audit], tolerance: float = TOLERANCE) -> AuditTogether:
    """Whether claims about one system, with one k, can share a cost model.

    With one k on one machine a round drafts and verifies as much whatever the text, so that
    all claims imply one and the same time of a round (F4.2). Where their baselines are the
    same, or one is missing, the seconds of a round are compared, in which the baseline does
    not appear; where each has its own, the ratios to a plain step (F2.5).

    Parameters
    ----------
    claims
        Audits by label: the same target, drafter, k, machine and batch.
    tolerance
        How far the rounds may differ, as a share: a longer context makes a round dearer.

    Returns
    -------
    AuditTogether

    Raises
    ------
    ValueError
        When there are not two claims or more, they have different k, one says nothing of the
        time of a round, or `tolerance` is no share from 0 on.

    Examples
    --------
    >>> from specviz.analysis.audits.audit import audit
    >>> def claim(tokens, speed):
    ...     return audit(tokens_per_round=tokens, k=7, tokens_per_second=speed,
    ...                  baseline_tokens_per_second=(18, 19))
    >>> both = audit_together({"code": claim(7.4, 154), "prose": claim(2.5, (35, 37))})
    >>> both.one_cost_model, round(both.factor, 2)
    (False, 1.36)
    """
    if not isinstance(claims, Mapping) or not all(isinstance(a, Audit) for a in claims.values()):
        raise ValueError('claims must map labels to audits, such as {"code": audit(...), ...}.')
    if len(claims) < 2:
        raise ValueError("One claim alone has one cost model: give two or more.")
    tolerance = number("tolerance, a share such as 0.1,", tolerance, 0)
    ks = sorted({a.k for a in claims.values()}, key=lambda k: (k is not None, k))
    if len(ks) > 1:
        raise ValueError(
            f"These claims have different k ({', '.join(map(str, ks))}), and a longer draft makes "
            "another round: compare claims of one k."
        )
    # The reading that fits, if one does; else the one that the names of the figures have.
    tried = [_together(claims, counted, tolerance) for counted in (True, False)]
    return next(
        (t for t in tried if t.consistent), next((t for t in tried if t.one_cost_model), tried[0])
    )


def _together(claims: Mapping[str, Audit], counted: bool, tolerance: float) -> AuditTogether:
    chosen = {
        label: next((r for r in a.readings if r.bonus_counted == counted), a.readings[0])
        for label, a in claims.items()
    }
    compared = _what_to_compare(chosen)
    costs: dict[str, Range] = {label: getattr(r, compared) for label, r in chosen.items()}
    cheap = min(costs, key=lambda label: costs[label].most)
    dear = max(costs, key=lambda label: costs[label].least)
    factor = max(costs[dear].least / costs[cheap].most, 1.0)
    one = factor <= 1 + tolerance and all(r.countable for r in chosen.values())
    table = pd.DataFrame(
        [
            {
                "claim": label,
                "by itself": "consistent" if chosen[label].possible else "inconsistent",
                "tokens_per_round": str(chosen[label].tokens_per_round or "–"),
                compared: cost.middle,
                "low": cost.low,
                "high": cost.high,
            }
            for label, cost in costs.items()
        ]
    )
    return AuditTogether(
        one_cost_model=one,
        consistent=one and all(reading.possible for reading in chosen.values()),
        factor=factor,
        tolerance=tolerance,
        compared=compared,
        bonus_counted=counted,
        table=table,
        reason=_reason(chosen, costs, cheap, dear, factor, tolerance, compared),
        reconcile=() if factor <= 1 + tolerance else _ways(chosen, cheap, dear),
    )


def _what_to_compare(chosen: Mapping[str, Reading]) -> str:
    readings = list(chosen.values())
    baselines = {r.plain_seconds for r in readings}
    if all(r.round_seconds for r in readings) and (len(baselines) == 1 or None in baselines):
        return "round_seconds"
    missing = [label for label, r in chosen.items() if r.step_ratio is None]
    if missing:
        raise ValueError(
            f"{missing[0]} does not say what a round costs: give tokens per round with tokens per "
            "second or a speed-up, or the seconds of a round."
        )
    return "step_ratio"


def _reason(
    chosen: Mapping[str, Reading],
    costs: Mapping[str, Range],
    cheap: str,
    dear: str,
    factor: float,
    tolerance: float,
    compared: str,
) -> str:
    in_seconds = compared == "round_seconds"
    low, high = (
        ms(costs[label]) if in_seconds else f"{costs[label]} plain steps" for label in (cheap, dear)
    )
    if factor > 1 + tolerance:
        return (
            f"{dear} implies rounds of {high}, {cheap} of {low}: at least {factor:.2f} times as "
            "dear. With one k and one machine a round costs the same whatever text it drafts, so "
            "no one cost model fits both."
        )
    about = "" if factor == 1 else f", give or take {100 * tolerance:.0f} %"
    said = f"Rounds from {low} ({cheap}) to {high} ({dear}) can be of one cost model{about}."
    impossible = [label for label, reading in chosen.items() if not reading.possible]
    return f"{said} By itself, though, {impossible[0]} is inconsistent." if impossible else said


def _ways(chosen: Mapping[str, Reading], cheap: str, dear: str) -> tuple[str, ...]:
    """What the two ends would be under each other's cost, and what may differ between them."""
    ways = []
    for label, other in ((cheap, dear), (dear, cheap)):
        tau, seconds = chosen[label].tokens_per_round, chosen[other].round_seconds
        ratio = chosen[other].step_ratio
        if tau is not None and seconds is not None:
            ways.append(
                f"With the rounds of {other}, {label} would run at {tau / seconds} tokens/s."
            )
        elif tau is not None and ratio is not None:
            ways.append(
                f"With the rounds of {other}, {label} would be {tau / ratio} times as fast."
            )
    ways.append(
        "Or the claims differ in more than their text: context length (of the prompts, or of the "
        "answers), a second draft mode that copies in one of them, another baseline, time for "
        "prefill in one of the speeds, or a mean over requests in place of a ratio of totals."
    )
    return tuple(ways)
