"""What would let figures stand that contradict each other, in sentences."""

from __future__ import annotations

import math

from specviz.analysis.audits.identities import ONE, Reading, Said
from specviz.analysis.audits.ranges import Range
from specviz.markup import counted


def ways_out(said: Said, reading: Reading, other: Reading | None, k: int | None) -> tuple[str, ...]:
    """For a claim that fails under `reading`; `other` is the one that its author ruled out."""
    ways = []
    tau, speedup, ratio = reading.tokens_per_round, reading.speedup, reading.step_ratio
    if other is not None and other.possible and tau is not None:
        how = "without" if reading.bonus_counted else "with"
        ways.append(
            f"Read the count {how} the bonus token: then {other.tokens_per_round} tokens per round."
        )
    most = said.get("drafted_per_round", None if k is None else Range.of(k))
    if tau is not None and most is not None and not tau.at_most(most + 1):
        ways.append(
            f"Drafts of {_tokens(tau)} or more in some rounds: a block size that counts the "
            "anchor, or a second source of drafts beside the first."
        )
    yielded = said.get("draft_yield")
    if yielded is not None and tau is not None and most is not None and ONE.at_most(tau):
        older = tau / (most + 1)
        if yielded.meets(older):
            right = Range.of((tau.low - 1) / most.high, (tau.high - 1) / most.low)
            ways.append(
                f"The yield as tokens emitted / (k + 1) = {older}, which SGLang printed before its "
                f"PR #23530; accepted / drafted is {right}."
            )
    own = said.get("speedup")
    if own is not None and speedup is not None and not own.meets(speedup):
        ways.append(
            f"Another baseline for the speed-up of {own}, or a mean of the requests' own "
            f"speed-ups; the two speeds give {speedup}."
        )
    if ratio is not None and not ONE.at_most(ratio):
        ways += _slower_baseline(said, tau, speedup, most)
    return tuple(ways)


def _slower_baseline(
    said: Said, tau: Range | None, speedup: Range | None, most: Range | None
) -> list[str]:
    """For a round that would be cheaper than a plain step."""
    ways = []
    fast, slow = said.get("tokens_per_second"), said.get("baseline_tokens_per_second")
    if fast is not None and slow is not None and tau is not None:
        ways += [
            f"Plain decoding at {fast / tau} tokens/s or more where the rounds ran, not {slow}: "
            "the baseline may come from another context length, build or set of prompts.",
            f"Speculative decoding at {tau * slow} tokens/s or less.",
        ]
    elif tau is not None:
        ways.append(f"A speed-up of {tau} or less: a baseline from the setting of the rounds.")
    if speedup is not None:
        needs = f"{speedup} tokens per round or more where the speed was measured"
        if most is not None and not speedup.at_most(most + 1):
            needs += (
                f", so drafts of {_tokens(speedup)} or more: another draft mode at work beside the "
                "one described"
            )
        ways.append(f"{needs}.")
    return ways


def _tokens(emitted: Range) -> str:
    """The shortest draft that can emit so many tokens."""
    return counted(math.ceil(emitted.least - 1), "token")
