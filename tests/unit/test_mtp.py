"""MTP modules: the network by hand, its training, its files and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specviz.drafters.mtp import MtpDrafter
from specviz.drafters.weights import load_weights, save_weights
from specviz.engine.loop import generate
from specviz.engine.protocols import FINAL
from specviz.policies import FixedK, Plan
from specviz.training.batches import side_by_side
from tests.block_models import LOUDER, few_answers, fitted_mtp, mtp_student
from tests.models import tiny_target, toy_pair


def always(view: Any) -> bool:
    return True


def ready(text: list[int]) -> tuple[Any, MtpDrafter]:
    target, drafter = tiny_target(), MtpDrafter(fitted_mtp())
    drafter.attach(target)
    drafter.start(text, target.prefill(text, drafter.taps))
    return target, drafter


def test_a_draft_is_what_the_modules_say_by_hand() -> None:
    text = list(tiny_target().codec.encode("the quick brown fox"))
    target, drafter = ready(text)
    draft = drafter.propose([*text, 65], Plan(5), always)
    net, table = drafter.net, target.model.get_input_embeddings().weight
    state = target.prefill(text, (FINAL,)).taps[FINAL][-1]
    token = 65
    for depth in range(5):
        module = net.steps[min(depth, 1)]  # the second one serves all deeper tokens
        entered = torch.cat([x / x.square().mean().add(1e-6).sqrt() for x in (state, table[token])])
        inner = module.up.weight @ entered + module.up.bias
        state = state + net.size * (module.down.weight @ (inner * inner.sigmoid()))
        logp = (net.head @ state).log_softmax(-1)
        token = int(net.vocabulary[logp.argmax()])
        assert draft.tokens[depth] == token
        assert draft.logq[depth] == pytest.approx(float(logp.max()))


def test_before_training_it_says_what_the_target_said() -> None:
    """Modules add nothing at first: the state before the anchor speaks of the anchor."""
    student, batch = mtp_student(), few_answers()
    first = student._unroll(batch, 2)
    for states in first:
        torch.testing.assert_close(states, batch.states[:, batch.start - 1 : -1, -1].double())


def test_a_text_in_a_batch_has_the_states_it_has_alone() -> None:
    student, batch = mtp_student(), few_answers()
    with torch.no_grad():
        for step in student.net.steps:
            step.down.weight.normal_(std=0.1)
    together = student._unroll(batch, 3)
    for row in range(len(batch.tokens)):
        pad, n = int(batch.pads[row]), int(batch.lengths[row])
        prompt = batch.tokens[row, pad : batch.start].tolist()
        answer = batch.tokens[row, batch.start : batch.start + n].tolist()
        states = batch.states[row, pad : pad + len(prompt) + n - 1]
        alone = side_by_side([(prompt, answer, states)], torch.device("cpu"))
        for depth, found in enumerate(student._unroll(alone, 3)):
            taught = n - depth - 1
            torch.testing.assert_close(found[0, :taught], together[depth][row, :taught])


def test_the_loss_of_mtp_is_the_cross_entropy_written_out() -> None:
    student, batch = mtp_student(), few_answers()
    total, first = student.loss(batch)
    means = []
    for depth, states in enumerate(student._unroll(batch, 4)):
        found = []
        for row, length in enumerate(batch.lengths.tolist()):
            for column in range(length - depth - 1):
                final = batch.states[row, batch.start + column + depth, -1].double()
                p = (final @ student.net.head.T).softmax(-1)
                logq = student.net.logits(states[row, column]).log_softmax(-1)
                found.append(-(p * logq).sum())
        means.append(torch.stack(found).mean())
    assert first == pytest.approx(means[0].item())
    shares = torch.tensor([0.8**depth for depth in range(4)], dtype=torch.float64)
    torch.testing.assert_close(total, (torch.stack(means) * shares).sum() / shares.sum())


def test_held_out_matches_are_those_of_the_drafter() -> None:
    batch = few_answers()
    n = int(batch.lengths[0])
    text = batch.tokens[0, batch.pads[0] : batch.start + n].tolist()
    _, drafter = ready(text[:-1])
    student = mtp_student()
    student.net.load_state_dict(drafter.net.state_dict())
    spoken = batch.states.clone()
    spoken[..., -1, :] /= LOUDER  # as the target holds them, not as the tests' teacher says them
    real = side_by_side(
        [(text[: len(text) - n], text[-n:], spoken[0, batch.pads[0] :][: len(text) - 1])],
        torch.device("cpu"),
    )
    found = student.matches(real, 7)[0].long().cumprod(-1).sum(-1)[0]
    for anchor in range(n - 1):
        seen = len(text) - n + anchor + 1
        draft = drafter.propose(text[:seen], Plan(7), always)
        right = [a == b for a, b in zip(draft.tokens, text[seen:], strict=False)]
        assert int(found[anchor]) == (right.index(False) if False in right else len(right))


def test_mtp_says_what_it_lacks() -> None:
    drafter = MtpDrafter(fitted_mtp())
    with pytest.raises(RuntimeError, match="not attached"):
        drafter.propose([1, 2], Plan(2), always)
    drafter.attach(tiny_target())
    with pytest.raises(RuntimeError, match="states of 0 tokens and needs 1"):
        drafter.propose([1, 2], Plan(2), always)
    with pytest.raises(ValueError, match="at least two tokens"):
        drafter.propose([1], Plan(2), always)
    with pytest.raises(ValueError, match="another target"):
        MtpDrafter(fitted_mtp()).attach(tiny_target(seed=1))
    toy, _ = toy_pair()
    with pytest.raises(ValueError, match="has none"):
        MtpDrafter(fitted_mtp()).attach(toy)


def test_near_ties_of_mtp_can_be_told() -> None:
    text = list(tiny_target().codec.encode("the quick brown fox"))
    _, drafter = ready(text)
    draft = drafter.propose([*text, 65], Plan(4), always)
    for depth in range(4):
        margin, noise = drafter.tie_after([*text, 65, *draft.tokens[:depth]], drafted=depth)
        assert noise < 1e-9 < margin


def test_a_written_mtp_drafts_from_its_file(tmp_path: Path) -> None:
    target = tiny_target()
    save_weights(fitted_mtp(), tmp_path / "drafter.safetensors")
    drafter = MtpDrafter(load_weights(tmp_path / "drafter.safetensors"))
    run = generate(target, drafter, "the quick brown", policy=FixedK(7), max_new_tokens=30)
    assert run.finish().certificate.equal
    assert drafter.modules == 2
