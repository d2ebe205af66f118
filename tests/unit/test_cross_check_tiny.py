"""specviz against assisted generation and prompt lookup in transformers, round by round.

Both libraries run the same float64 models, so every token can be compared. What transformers
does is listened to from outside: a hook sees what each forward of the target verifies, a
streamer what is emitted after it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import candidate_generator
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from specviz.drafters.lm import LMDrafter
from specviz.drafters.ngram import NGram
from specviz.drafters.small_lm import small_lm
from specviz.engine.inputs import Ids
from specviz.engine.loop import Run, generate
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import Draft, More, Target
from specviz.policies import DraftView, FixedK, History, Plan
from specviz.targets.torch_lm import TorchTarget
from tests.models import near_twin, tiny_llama, tokenizer

TOKENS, K = 40, 5
PROMPTS = ["the quick brown the quick", "one two one two", "def f(x):\n  return x"]


@dataclass(frozen=True)
class Verified:
    """One forward of the target: what was drafted for it, and what was emitted after it."""

    draft: tuple[int, ...]
    tokens: tuple[int, ...]


def listen(target: TorchTarget, text: Ids, max_new_tokens: int, **how: Any) -> list[Verified]:
    """What transformers' greedy `generate` drafts and emits after `text`, forward by forward."""
    model = target.model
    padding = range(target.vocab_size, model.get_output_embeddings().weight.shape[0])
    fed: list[list[int]] = []
    told: list[list[int]] = []

    def hear(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        if module is model:  # an assistant made from the target's layers shares its hooks
            fed.append(inputs["input_ids"][0].tolist())

    class Ear:
        def put(self, tokens: torch.Tensor) -> None:
            told.append(tokens.reshape(-1).tolist())

        def end(self) -> None:
            pass

    hook = model.register_forward_pre_hook(hear, with_kwargs=True)
    ids = torch.tensor([list(text)])
    try:
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
            suppress_tokens=list(padding) or None,  # specviz crops them
            streamer=Ear(),
            **how,
        )
    finally:
        hook.remove()
    prompt, *emitted = told
    assert prompt == list(text)
    assert out[0, len(text) :].tolist() == [token for tokens in emitted for token in tokens]
    # The first forward reads the text before its draft, every other one the anchor.
    owed = [len(text), *[1] * (len(fed) - 1)]
    return [
        Verified(tuple(tokens[n:]), tuple(after))
        for tokens, n, after in zip(fed, owed, emitted, strict=True)
    ]


def assistant(model: Any, k: int | None = K, threshold: float | None = 0.0, **more: Any) -> Any:
    """The same weights with settings of their own; None leaves one to transformers."""
    twin = copy.copy(model)
    twin.generation_config = copy.deepcopy(model.generation_config)
    twin.generation_config.num_assistant_tokens = k
    twin.generation_config.assistant_confidence_threshold = threshold
    for name, value in more.items():
        setattr(twin.generation_config, name, value)
    return twin


def output(rounds: Sequence[Verified]) -> list[int]:
    return [token for each in rounds for token in each.tokens]


def live(run: Run) -> list[Verified]:
    return [Verified(each.draft.tokens, each.tokens) for each in run.log]


@dataclass(frozen=True)
class AsTransformers:
    """The two heuristics of transformers' assisted generation, as a policy."""

    k: int
    grows: bool = False
    threshold: float = 0.0
    name = "as-transformers"
    replayable = True

    def plan(self, past: History) -> Plan:
        k = self.k
        for each in past.rounds if self.grows else ():
            k = k + 2 if each.accepted == each.drafted else max(1, k - 1)
        return Plan(k)

    def more(self, view: DraftView) -> bool:
        return view.confidence[-1] >= self.threshold


class Lookup(NGram):
    """transformers' own prompt lookup as a specviz drafter."""

    def __init__(self, size: int) -> None:
        super().__init__(name="lookup")
        self.size = size
        self.eos: list[int] = []

    def attach(self, target: Target) -> None:
        self.eos = sorted(target.eos_ids)

    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        return Draft.chain(context[-1], look_up(context, plan.k, self.size, self.eos))


def look_up(text: Sequence[int], k: int, size: int, eos: Sequence[int] = ()) -> list[int]:
    """What transformers' prompt lookup drafts after `text`: at most k tokens."""
    if k == 0:
        return []
    generator = PromptLookupCandidateGenerator(
        torch.tensor(eos, dtype=torch.long), k, size, max_length=len(text) + 1 + k
    )
    ids, _ = generator.get_candidates(torch.tensor([list(text)]))
    return ids[0, len(text) :].tolist()


def sharp(model: Any) -> Any:
    """Logits scaled up: the same greedy tokens, with confidences on both sides of 0.4."""
    with torch.no_grad():
        model.lm_head.weight.mul_(8.0)
    return model


@lru_cache(maxsize=1)
def pair() -> tuple[TorchTarget, Any]:
    target = TorchTarget(sharp(tiny_llama()), tokenizer(), "tiny-llama", "random, float64")
    return target, sharp(near_twin())


@lru_cache(maxsize=len(PROMPTS))
def plain(prompt: str) -> list[int]:
    """transformers' own greedy output, no drafter anywhere."""
    target, _ = pair()
    rounds = listen(target, target.codec.encode(prompt), TOKENS)
    assert not any(each.draft for each in rounds)
    return output(rounds)


def speculate(prompt: str, drafter: Any, policy: Any = FixedK(K)) -> Run:  # noqa: B008
    target, _ = pair()
    run = generate(target, drafter, prompt, policy=policy, max_new_tokens=TOKENS).finish()
    assert target.verifies == len(run.log)
    return run


def drafter(max_k: int = 15) -> LMDrafter:
    return LMDrafter(pair()[1], tokenizer(), max_k=max_k)


@lru_cache(maxsize=1)
def reduced() -> Any:
    """Three of the target's four layers, able to say three tokens of four."""
    target, _ = pair()
    some = torch.randperm(target.vocab_size, generator=torch.Generator().manual_seed(0))
    return small_lm(target.model, [0, 1, 2], some[: target.vocab_size * 3 // 4].sort().values)


@pytest.mark.parametrize("model", [lambda: pair()[1], reduced], ids=["twin", "reduced"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_lm_is_assisted_generation(prompt: str, model: Callable[[], Any]) -> None:
    """Same output as transformers; and with its settings made equal, the same rounds.

    Accepted counts differ from transformers' defaults for these reasons (release 5.24):

    - It drafts 20 tokens a round (`num_assistant_tokens`) and stops after the first one whose
      probability is below 0.4 (`assistant_confidence_threshold`); where scikit-learn is
      installed, it also moves that threshold after every round, to the point of the ROC curve
      of its drafts so far where false alarms plus three times the misses are fewest. Both
      settings are read from the *assistant's* generation config; given to `generate`, they
      are ignored without a word. `FixedK(k)` is threshold 0.
    - The schedule "heuristic" adds 2 to the number after a full accept and takes 1 away after
      any other round, and stays in the assistant's config for the next call. The default,
      "constant", does neither.
    - The first draft starts at the end of the prompt and is verified by the prefill itself,
      which may emit 1 + k tokens. In specviz prefill emits y[0] and is not a round. So the
      prompt here goes to transformers with y[0] at its end: its first forward then verifies
      the draft from anchor 0, and its forwards are the rounds of specviz, one to one.

    What is left needs no setting: both draft at most `max_new_tokens - 2 - anchor` tokens, and
    draft greedily. transformers picks tokens in float32 whatever the model's dtype.
    """
    target, small = pair()[0], model()
    run = speculate(prompt, LMDrafter(small, tokenizer()))
    assert run.token_ids == plain(prompt)
    assert any(r.stop == "reject" for r in run.log)
    assert any(r.stop == "full" for r in run.log)
    text = [*run.prompt_ids, run.token_ids[0]]
    theirs = listen(target, text, TOKENS - 1, assistant_model=assistant(small))
    assert len(theirs) == target.verifies
    assert theirs == live(run)
    # From the bare prompt, as anyone would call it: other rounds, same output.
    bare = listen(target, run.prompt_ids, TOKENS, assistant_model=assistant(small))
    assert output(bare) == plain(prompt)
    assert len(bare[0].draft) == K


@pytest.mark.parametrize(
    ("policy", "schedule"),
    [
        (AsTransformers(K, grows=True), "heuristic"),
        (AsTransformers(K, threshold=0.4), "constant"),
        (AsTransformers(20, grows=True, threshold=0.1), "heuristic_transient"),
    ],
    ids=["schedule", "confidence", "both"],
)
@pytest.mark.parametrize("prompt", PROMPTS[:2])
def test_the_heuristics_are_policies(
    prompt: str, policy: AsTransformers, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written as a policy, transformers' heuristics give specviz transformers' rounds.

    Only the moving threshold is switched off: it needs scikit-learn.
    """
    monkeypatch.setattr(candidate_generator, "is_sklearn_available", lambda: False)
    target, twin = pair()
    run = speculate(prompt, drafter(max_k=60), policy)
    theirs = listen(
        target,
        [*run.prompt_ids, run.token_ids[0]],
        TOKENS - 1,
        assistant_model=assistant(
            twin, policy.k, policy.threshold, num_assistant_tokens_schedule=schedule
        ),
    )
    assert theirs == live(run)
    assert run.token_ids == plain(prompt)
    assert live(run) != live(speculate(prompt, drafter(), FixedK(min(policy.k, 15))))


def test_defaults_are_20_tokens_and_a_threshold_that_generate_cannot_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidate_generator, "is_sklearn_available", lambda: False)
    target, twin = pair()
    text = target.codec.encode(PROMPTS[0])
    default, ignored, said = (
        listen(target, text, TOKENS, assistant_model=model, **how)
        for model, how in (
            (assistant(twin, None, None), {}),
            (assistant(twin, None, None), {"num_assistant_tokens": 3}),
            (assistant(twin, 20, 0.4, num_assistant_tokens_schedule="constant"), {}),
        )
    )
    assert default == ignored == said
    assert output(default) == plain(PROMPTS[0])
    assert max(len(each.draft) for each in default) > 3


@pytest.mark.parametrize("size", [2, TOKENS], ids=["default", "longest"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_ngram_is_prompt_lookup(prompt: str, size: int) -> None:
    """Same output as transformers' prompt lookup; rounds equal once the draft is its own.

    Accepted counts differ because the two copy from different places, and no setting makes
    them equal (release 5.24):

    - Prompt lookup matches at most the last 2 tokens (`max_matching_ngram_size`), `NGram` the
      longest suffix. This one can be set.
    - Among equally long matches it copies after the *first* one in the text, `NGram` after the
      most recent.
    - Its copy ends where the text ends; `NGram` goes on with what it has just copied.
    - Near the limit it drafts tokens that can no longer be emitted, and it cuts a draft before
      an end of text. Neither changes what is emitted.
    - Its first draft is verified by the prefill, as in assisted generation.

    So the loop is compared on its own drafts, plugged into specviz, and the rule in
    `test_what_lookup_and_ngram_copy`.
    """
    target, _ = pair()
    run = speculate(prompt, NGram())
    assert run.token_ids == plain(prompt)
    how = {"prompt_lookup_num_tokens": K, "max_matching_ngram_size": size}
    assert output(listen(target, run.prompt_ids, TOKENS, **how)) == run.token_ids
    same = speculate(prompt, Lookup(size))
    theirs = listen(target, [*run.prompt_ids, run.token_ids[0]], TOKENS - 1, **how)
    assert len(theirs) == len(same.log)
    assert [each.tokens for each in theirs] == [each.tokens for each in same.log]
    for each, mine in zip(theirs, same.log, strict=True):
        room = TOKENS - 2 - mine.anchor
        assert each.draft[:room] == mine.draft.tokens
    assert sum(each.accepted for each in same.log) > 0
    assert live(same) != live(run)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=16), st.integers(1, 6))
def test_what_lookup_and_ngram_copy(text: list[int], k: int) -> None:
    """Both against a search by hand: after the first and the last of the longest matches."""
    starts: list[int] = []
    for size in range(len(text) - 1, 0, -1):
        starts = [
            at + size
            for at in range(len(text) - size)
            if text[at : at + size] == text[len(text) - size :]
        ]
        if starts:
            break
    theirs = look_up(text, k, len(text))
    ours = NGram(max_k=k).propose(text, Plan(k), lambda view: True).tokens
    if not starts:
        assert theirs == []
        assert ours == ()
        return
    assert theirs == text[starts[0] : starts[0] + k]
    grown = list(text)
    for _ in range(k):  # copied tokens may be copied again
        grown.append(grown[len(grown) - len(text) + starts[-1]])
    assert list(ours) == grown[len(text) :]


@pytest.mark.parametrize(
    ("text", "size", "lookup", "ngram"),
    [
        ([7, 2, 3, 8, 1, 2, 3, 9, 0, 1, 2, 3], 2, [8, 1, 2], [9, 0, 1]),
        ([7, 2, 3, 8, 1, 2, 3, 9, 0, 1, 2, 3], 3, [9, 0, 1], [9, 0, 1]),
        ([1, 2, 8, 0, 1, 2, 9, 3, 1, 2], 9, [8, 0, 1], [9, 3, 1]),
        ([5, 6, 5, 6], 9, [5, 6], [5, 6, 5]),
    ],
    ids=["short-suffix", "made-equal", "first-match", "end-of-text"],
)
def test_where_lookup_and_ngram_part(
    text: list[int], size: int, lookup: list[int], ngram: list[int]
) -> None:
    assert look_up(text, 3, size) == lookup
    assert list(NGram().propose(text, Plan(3), lambda view: True).tokens) == ngram


def test_both_stop_at_an_end_of_text() -> None:
    """Drafts may differ there (transformers ends them at it), rounds and outputs may not."""
    _, twin = pair()
    model = sharp(tiny_llama())
    text = pair()[0].codec.encode(PROMPTS[0])
    eos = plain(PROMPTS[0])[24]
    assert eos in text  # so that an n-gram can draft it, too
    model.generation_config.eos_token_id = [eos]
    target = TorchTarget(model, tokenizer(), "tiny-llama", "ends early")
    expected = output(listen(target, text, TOKENS))
    assert expected == plain(PROMPTS[0])[:25]
    for mine, how in (
        (drafter(), {"assistant_model": assistant(twin)}),
        (Lookup(2), {"prompt_lookup_num_tokens": K}),
    ):
        run = generate(target, mine, text, policy=FixedK(K), max_new_tokens=TOKENS).finish()
        assert run.finish_reason == "eos"
        assert run.token_ids == expected
        theirs = listen(target, [*text, run.token_ids[0]], TOKENS - 1, **how)
        assert [each.tokens for each in theirs] == [each.tokens for each in run.log]
        if isinstance(mine, LMDrafter):
            assert eos in run.log[-1].draft.tokens[:-1]  # specviz drafted beyond it
            assert theirs[-1].draft[-1] == eos  # transformers did not
    ngram = generate(target, NGram(), text, policy=FixedK(K), max_new_tokens=TOKENS).finish()
    assert ngram.token_ids == expected
