"""Is the speculative output the plain one? And if not, was it a near-tie?

Logits depend slightly on how many rows a forward has. A token may flip where the target's
best two are closer than that; such a flip is certified, any other is a bug.

Rules that draw the target's own token and look whether the draft holds it (`SampleMatch`,
`SharedNoise`) have an output that depends on the seed only: it is compared with plain
sampling. A flip there is not examined further, so it is never certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from specviz.engine.acceptance import Greedy, SampleMatch, SharedNoise
from specviz.engine.protocols import Acceptance, Draft, Target
from specviz.engine.rounds import Recorded
from specviz.markup import escape

#: A flip is a near-tie when the margin is at most this many times the logit difference.
TIE_FACTOR = 4


@dataclass(frozen=True)
class Certificate:
    """Live output against plain decoding.

    Attributes
    ----------
    plain
        Tokens of plain greedy decoding.
    equal
        True when the run's output is exactly those.
    divergence
        Output position of the first difference, None when equal.
    margin, noise
        There: the target's top-2 margin (nats) and the largest difference of a logit between
        the 1-row and the (1 + k)-row forward. None under sampling.
    certified
        True when equal, or when margin <= 4 noise: a tie decided by rounding.
    """

    plain: tuple[int, ...]
    equal: bool
    divergence: int | None = None
    margin: float | None = None
    noise: float | None = None
    certified: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.equal:
            return f"equal to plain decoding, {len(self.plain)} tokens"
        if self.margin is None:
            return f"differs from plain decoding at token {self.divergence}"
        verdict = "a certified near-tie" if self.certified else "NOT a near-tie"
        return (
            f"differs from plain decoding at token {self.divergence}: margin {self.margin} "
            f"nats, batch-shape noise {self.noise}: {verdict}"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


def plain_decode(
    target: Target,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    rule: Acceptance = Greedy(),  # noqa: B008 - frozen
    seed: int = 0,
) -> list[int]:
    """Tokens of plain decoding, one forward each; stops after an end of text.

    `rule` and `seed` say how the target's tokens are sampled; greedily by default.
    """
    rng = torch.Generator().manual_seed(seed)
    tokens = [rule(Draft(prompt_ids[-1]), target.prefill(prompt_ids), rng).token]
    while len(tokens) < max_new_tokens and tokens[-1] not in target.eos_ids:
        draft = Draft(tokens[-1])
        rows = target.verify(draft)
        target.commit(())
        tokens.append(rule(draft, rows, rng).token)
    return tokens


def certify(run: Recorded) -> Certificate:
    """Decode the run's prompt plainly and compare.

    Raises
    ------
    ValueError
        When the run is not finished: decoding would close it. Or when its acceptance rule is
        lossy or compares p with q: then the output depends on the drafts.
    """
    if not run.finished:
        raise ValueError("Finish the run first (run.finish()): certifying decodes again.")
    rule = run.acceptance
    if not isinstance(rule, Greedy | SampleMatch | SharedNoise):
        raise ValueError(
            f"The output under {rule.name} is not a function of the seed alone, so there is no "
            "plain output to equal: certify a run of Greedy, SampleMatch or SharedNoise."
        )
    plain = plain_decode(run.target, run.prompt_ids, run.max_new_tokens, rule, run.seed)
    where = first_difference(plain, run.token_ids)
    if where is None:
        return Certificate(tuple(plain), True)
    if where == 0:  # prefill alone decides the first token, and has one shape only
        return Certificate(tuple(plain), False, 0, None, None, False)
    if rule.sampling.temperature > 0:
        return Certificate(tuple(plain), False, where, None, None, False)
    flipped = next(r for r in run.log if r.anchor < where <= r.anchor + r.emitted)
    depth = where - flipped.anchor - 1
    row = flipped.path[depth - 1] + 1 if depth else 0
    margin, noise = tie_at(run.target, [*run.prompt_ids, *plain[:where]], flipped.draft, depth, row)
    return Certificate(tuple(plain), False, where, margin, noise, margin <= TIE_FACTOR * noise)


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first difference of two sequences, None when they are equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return None if len(left) == len(right) else min(len(left), len(right))


def tie_at(
    target: Target, text: Sequence[int], draft: Draft, depth: int, row: int
) -> tuple[float, float]:
    """Top-2 margin of the row after `text`, and its noise among the rows of `draft`.

    `text` ends with the anchor and `depth` accepted tokens; `row` is its row in the draft's
    verification. Noise is the largest difference of a logit between a 1-row forward and that.
    """
    target.prefill(text[:-1])
    alone = target.verify(Draft(text[-1])).logits[0].double()
    target.prefill(text[: len(text) - 1 - depth])
    among = target.verify(draft).logits[row].double()
    best = alone.topk(2).values
    return float(best[0] - best[1]), float((alone - among).abs().max())
