"""The embedded target with transformers' assisted generation and prompt lookup: the same text.

Why the rounds of the two libraries differ, and what makes them equal, stands in
`tests/unit/test_cross_check_tiny.py`, where it is tested exactly. Here the arithmetic is fp32, so
a difference has to be a certified near-tie.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specviz.drafters.lm import LMDrafter
from specviz.drafters.ngram import NGram
from specviz.engine.certificate import TIE_FACTOR, first_difference, tie_at
from specviz.engine.inputs import Ids
from specviz.engine.loop import Run, generate
from specviz.engine.protocols import Draft, Drafter
from specviz.policies import FixedK
from specviz.prompt_set import prompts
from specviz.targets.slots import plain_logits
from specviz.targets.torch_lm import TorchTarget
from specviz.zoo import load_drafter, load_target
from tests.unit.test_cross_check_tiny import (
    Lookup,
    Verified,
    assistant,
    listen,
    live,
    output,
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cross_check")]
TOKENS, K = 48, 5
KINDS = ("code", "prose")
#: Drafters whose `model` transformers can use as its assistant.
NAMES = ("self-skip", "lm")


@pytest.fixture(scope="module")
def target() -> TorchTarget:
    target = load_target("smollm2-135m")
    assert isinstance(target, TorchTarget)
    return target


@pytest.fixture(scope="module", params=KINDS)
def prompt(request: pytest.FixtureRequest, target: TorchTarget) -> tuple[int, ...]:
    (chosen,) = prompts(content_type=request.param, limit=1)
    return target.codec.encode(chosen.messages)


@pytest.fixture(scope="module")
def plain(target: TorchTarget, prompt: tuple[int, ...]) -> list[int]:
    """transformers' own greedy output, no drafter anywhere."""
    return output(listen(target, prompt, TOKENS))


@pytest.fixture(scope="module")
def drafters(target: TorchTarget) -> dict[str, Drafter]:
    return {name: load_drafter(name, target) for name in NAMES}


def certify_against(
    plain: Sequence[int], target: TorchTarget, prompt: Ids, first: int, rounds: Sequence[Verified]
) -> int:
    """Leading output tokens that equal `plain`; any end but a certified near-tie fails.

    `rounds` start at the anchor `first`, the token that prefill emitted. A flip is certified
    as in `specviz.engine.certificate`: the target's top-2 margin after the common text is at
    most TIE_FACTOR times the largest difference of a logit between fresh forwards there: of one
    row, of the rows of the draft it flipped in, and of the whole text as transformers runs it.
    The logits that the flip came from are no evidence: whatever is wrong with them, they differ.
    """
    emitted = [first, *output(rounds)]
    where = first_difference(plain, emitted)
    if where is None:
        return len(plain)
    assert where > 0, "prefill has one shape only: there is no near-tie at the first token"
    assert where < min(len(plain), len(emitted)), "one output ends before the other"
    anchor = 0
    for flipped in rounds:
        if where <= anchor + len(flipped.tokens):
            break
        anchor += len(flipped.tokens)
    depth = where - anchor - 1
    text = [*prompt, *plain[:where]]
    draft = Draft.chain(plain[anchor], flipped.draft)
    margin, noise = tie_at(target, text, draft, depth, depth)
    target.prefill(text[:-1])
    alone = target.verify(Draft(text[-1])).logits[0].double()
    whole = plain_logits(target.model, text, target.vocab_size)[-1].double()
    noise = max(noise, float((alone - whole).abs().max()))
    assert margin <= TIE_FACTOR * noise, f"token {where}: margin {margin:.3g}, noise {noise:.3g}"
    return where


def same_drafts(run: Run, theirs: Sequence[Verified], drafter: LMDrafter) -> int:
    """Rounds whose drafts are equal; the first that is not must be the drafter's near-tie."""
    for number, (mine, other) in enumerate(zip(run.log, theirs, strict=False)):
        where = first_difference(mine.draft.tokens, other.draft)
        if where is None:
            continue
        assert where < min(len(mine.draft), len(other.draft)), "one drafted more than the other"
        text = [*run.prompt_ids, *run.token_ids[: mine.anchor + 1], *mine.draft.tokens[:where]]
        margin, noise = drafter.tie_after(text)
        assert margin <= TIE_FACTOR * noise, f"anchor {mine.anchor}, depth {where}"
        return number
    return min(len(run.log), len(theirs))


def speculate(target: TorchTarget, prompt: Ids, drafter: Drafter) -> Run:
    run = generate(target, drafter, prompt, policy=FixedK(K), max_new_tokens=TOKENS).finish()
    assert target.verifies == len(run.log)
    return run


@pytest.mark.parametrize("name", NAMES)
def test_an_lm_drafter_is_assisted_generation(
    target: TorchTarget,
    drafters: dict[str, Drafter],
    prompt: tuple[int, ...],
    plain: list[int],
    name: str,
) -> None:
    """Same output, and round by round the same drafts, while rounding decides nothing."""
    drafter = drafters[name]
    assert isinstance(drafter, LMDrafter)
    run = speculate(target, prompt, drafter)
    theirs = listen(
        target, [*prompt, plain[0]], TOKENS - 1, assistant_model=assistant(drafter.model, K)
    )
    equal = min(
        certify_against(plain, target, prompt, run.token_ids[0], live(run)),
        certify_against(plain, target, prompt, plain[0], theirs),
    )
    rounds = same_drafts(run, theirs, drafter)
    # Past an excused flip the texts are two: compare what comes before it.
    rounds = min(rounds, sum(each.anchor + each.emitted < equal for each in run.log))
    assert rounds >= 3
    assert live(run)[:rounds] == list(theirs)[:rounds]
    if equal == len(plain) and rounds == len(run.log):
        assert len(theirs) == target.verifies


def test_ngram_is_prompt_lookup(
    target: TorchTarget, prompt: tuple[int, ...], plain: list[int]
) -> None:
    """Same output from both; the same rounds, too, with transformers' lookup in our loop."""
    text, how = [*prompt, plain[0]], {"prompt_lookup_num_tokens": K}
    run = speculate(target, prompt, NGram())
    certify_against(plain, target, prompt, run.token_ids[0], live(run))
    theirs = listen(target, text, TOKENS - 1, **how)
    equal = certify_against(plain, target, prompt, plain[0], theirs)
    same = speculate(target, prompt, Lookup(size=2))
    equal = min(equal, certify_against(plain, target, prompt, same.token_ids[0], live(same)))
    rounds = [each for each in same.log if each.anchor + each.emitted < equal]
    assert len(rounds) >= 3
    for mine, other in zip(rounds, theirs, strict=False):
        assert mine.tokens == other.tokens
        assert mine.draft.tokens == other.draft[: TOKENS - 2 - mine.anchor]
    if equal == len(plain):
        assert len(theirs) == len(same.log)


@pytest.mark.parametrize("where", [1, TOKENS - 1])
def test_a_wrong_token_is_not_certified(
    target: TorchTarget, prompt: tuple[int, ...], plain: list[int], where: int
) -> None:
    rounds = [Verified((plain[i],), (plain[i],)) for i in range(1, len(plain))]
    assert certify_against(plain, target, prompt, plain[0], rounds) == len(plain)
    wrong = (plain[where] + 1) % target.vocab_size
    rounds[where - 1] = Verified((wrong,), (wrong,))
    with pytest.raises(AssertionError, match=f"token {where}: margin"):
        certify_against(plain, target, prompt, plain[0], rounds)
    with pytest.raises(AssertionError, match="ends before"):
        certify_against(plain, target, prompt, plain[0], rounds[: where - 1])
