"""What only the embedded model can tell: SmolLM2-135M-Instruct, fp32, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.analysis.replays.replay import replay
from specviz.campaign import capture
from specviz.drafters.block import BlockDrafter
from specviz.drafters.eagle import EagleDrafter
from specviz.drafters.lm import LMDrafter
from specviz.drafters.mtp import MtpDrafter
from specviz.drafters.ngram import NGram
from specviz.drafters.self_draft import SelfQuant, SelfSkip, round_weights
from specviz.engine.certificate import TIE_FACTOR, first_difference
from specviz.engine.loop import Run, generate
from specviz.engine.protocols import FINAL, Draft, Drafter, Target
from specviz.policies import FixedK
from specviz.prompt_set import prompts
from specviz.targets.slots import plain_logits
from specviz.trace import Trace
from specviz.zoo import load_drafter, load_target
from tests.models import tiny_llama, tokenizer

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("smollm2")]
TOKENS, K = 32, 7
NAMES = ("ngram", "self-quant", "self-skip", "bigram", "lm", "eagle", "block", "mtp")


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target("smollm2-135m")


@pytest.fixture(scope="module")
def drafters(target: Target) -> dict[str, Drafter]:
    return {name: load_drafter(name, target) for name in NAMES}


@pytest.fixture(scope="module")
def trace(target: Target, drafters: dict[str, Drafter]) -> Trace:
    chosen = prompts(content_type=["code", "prose"], limit=2)
    return capture(
        chosen, target, list(drafters.values()), k=K, max_new_tokens=TOKENS, progress=False
    )


def test_it_is_what_it_says(target: Target) -> None:
    assert target.caption == "SmolLM2-135M-Instruct, Q4_1 weights dequantised to fp32"
    assert target.vocab_size == 49152
    assert (target.dtype, target.device) == ("float32", "cpu")
    ids = target.codec.encode([{"role": "user", "content": "Hi"}])
    assert target.codec.decode(ids).endswith("<|im_start|>assistant\n")
    assert target.eos_ids == {2}


def test_tree_rows_equal_independent_forwards(target: Target) -> None:
    prompt = target.codec.encode("The quick brown fox jumps over the lazy dog. Once upon a time")
    ids = target.codec.encode(" there was a little house in the woods and a cat")
    tree = Draft(ids[0], tuple(ids[1:8]), (-1, 0, 1, -1, 3, 3, 1), (0.0,) * 7)
    target.prefill(prompt)
    rows = target.verify(tree).logits
    paths = {0: [0], 2: [0, 1, 2], 4: [3, 4], 5: [3, 5], 6: [0, 1, 6]}
    for node, path in paths.items():
        text = [*prompt, tree.anchor, *(tree.tokens[i] for i in path)]
        alone = plain_logits(target.model, text, target.vocab_size)[-1]
        assert float((rows[node + 1] - alone).abs().max()) < 1e-3


def test_recorded_entropy_is_that_of_transformers(target: Target, trace: Trace) -> None:
    sequence = trace.sequences.iloc[0]
    tokens = trace.positions[trace.positions.seq == 0]
    text = [*sequence.prompt_ids, *tokens.token_id]
    logits = plain_logits(target.model, text, target.vocab_size)
    logp = logits[len(sequence.prompt_ids) - 1 : -1].double().log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1).numpy()
    np.testing.assert_allclose(tokens.entropy, entropy, atol=1e-3)


def captured_drafts(trace: Trace, seq: int, name: str) -> np.ndarray:
    rows = trace.draft_table(name)
    mine = rows["seq"].to_numpy() == seq
    return trace.matrix("token", name)[mine]


def certified_until(run: Run, trace: Trace, seq: int, drafter: Drafter) -> int:
    """Rounds that must be equal; the first difference must be a certified near-tie."""
    drafts = captured_drafts(trace, seq, drafter.name)
    for number, live in enumerate(run.log):
        where = first_difference(live.draft.tokens, drafts[live.anchor, : live.drafted].tolist())
        if where is None:
            continue
        networks = LMDrafter | EagleDrafter | BlockDrafter | MtpDrafter
        assert isinstance(drafter, networks), "a copy cannot depend on rounding"
        context = [*run.prompt_ids, *run.token_ids[: live.anchor + 1], *live.draft.tokens[:where]]
        margin, noise = drafter.tie_after(context, drafted=where)
        assert margin <= TIE_FACTOR * noise, f"{drafter.name} at {live.anchor}, depth {where}"
        return number
    return len(run.log)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seq", [0, 2])
def test_live_rounds_equal_replayed_rounds(
    target: Target, drafters: dict[str, Drafter], trace: Trace, name: str, seq: int
) -> None:
    chosen = prompts(content_type=["code", "prose"], limit=2)[seq]
    drafter = drafters[name]
    run = generate(
        target, drafter, chosen.messages, policy=FixedK(K), max_new_tokens=TOKENS
    ).finish()
    assert target.verifies == len(run.log)
    certificate = run.certificate
    assert certificate.certified, str(certificate)
    end = len(run.log)
    if not certificate.equal:
        end = next(
            i for i, r in enumerate(run.log) if r.anchor + r.emitted >= certificate.divergence
        )
    end = min(end, certified_until(run, trace, seq, drafter))
    assert end >= 3
    offline = replay(trace, FixedK(K), name).rounds
    offline = offline[offline.seq == seq].reset_index(drop=True)
    columns = ["anchor", "drafted", "accepted", "emitted", "stop"]
    live = run.rounds[columns].astype(str)
    assert live[:end].equals(offline[columns].astype(str)[:end])
    run.trace.validate()


def test_code_is_less_entropic_than_prose(trace: Trace) -> None:
    entropy = trace.summary().set_index("content_type").mean_entropy
    assert entropy["code"] < entropy["prose"]


def test_rounding_moves_the_weights(target: Target) -> None:
    """Symmetric 4-bit rounding must not reproduce the Q4_1 weights exactly."""
    for layer in (0, 15, 29):
        weight = target.model.model.layers[layer].mlp.up_proj.weight
        error = (round_weights(weight, 4) - weight).norm() / weight.norm()
        assert float(error) > 0.05
        finer = (round_weights(weight, 8) - weight).norm() / weight.norm()
        assert float(finer) < float(error) / 8


def test_self_drafts_differ_from_the_target_as_they_say(target: Target) -> None:
    quant, skip = SelfQuant(), SelfSkip()
    quant.attach(target)
    skip.attach(target)
    text = target.codec.encode("def add(a, b):\n    return")
    exact = plain_logits(target.model, text, target.vocab_size)
    for drafter in (quant, skip):
        hidden, _ = drafter.lm.forward(text, 0)
        rows = drafter.lm.unembed(hidden)
        assert float((rows - exact).abs().max()) > 0.05
    # What is left out is left out, and only that: by hand, layer by layer.
    assert len(skip.lm.layers) == 26
    kept = [layer for layer in range(30) if layer not in skip.layers]
    for new, old in enumerate(kept):
        mine = skip.lm.layers[new].self_attn
        assert mine.layer_idx == new
        assert mine.q_proj.weight is target.model.model.layers[old].self_attn.q_proj.weight


def test_taps_are_hidden_states(target: Target) -> None:
    text = target.codec.encode("Once upon a time there was")
    taps = target.prefill(text, (2, 15, FINAL)).taps
    with torch.inference_mode():
        states = target.model(
            torch.tensor([text]), output_hidden_states=True, use_cache=False
        ).hidden_states
    for tap in (2, 15):
        assert torch.allclose(taps[tap], states[tap][0], atol=1e-3)
    assert torch.allclose(taps[FINAL], states[-1][0], atol=1e-3)


def test_a_drafter_with_other_tokens_is_refused(target: Target) -> None:
    other = LMDrafter(tiny_llama(dtype=torch.float32), tokenizer(), name="tiny")
    with pytest.raises(ValueError, match=r"tokens have other ids.*tokenizer"):
        other.attach(target)


def test_a_second_run_and_a_long_prompt(target: Target) -> None:
    """The KV buffer grows past its first 1,024 slots without losing what is in it."""
    text = target.codec.encode("word " * 1100)
    run = generate(target, NGram(), text, max_new_tokens=8).finish()
    alone = plain_logits(target.model, [*text, *run.token_ids[:-1]], target.vocab_size)
    assert run.token_ids == alone[len(text) - 1 :].argmax(-1).tolist()
