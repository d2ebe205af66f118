"""DFlash in training: batches, losses and where it begins, written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specviz.drafters.block import BlockDrafter
from specviz.drafters.block_layers import rotated
from specviz.policies import Plan
from specviz.training.batches import side_by_side
from specviz.training.block_student import BlockStudent
from tests.block_models import block_student, few_answers, fitted_block
from tests.models import tiny_target


def always(view: Any) -> bool:
    return True


def test_a_text_in_a_batch_is_drafted_as_it_is_alone() -> None:
    """Padding and neighbours change nothing: what is trained is what drafts."""
    student = block_student()
    batch = few_answers()
    columns = torch.arange(6).expand(len(batch.tokens), -1)
    together = student._hidden(batch, columns)
    for row in range(len(batch.tokens)):
        pad = int(batch.pads[row])
        prompt = batch.tokens[row, pad : batch.start].tolist()
        answer = batch.tokens[row, batch.start : batch.start + int(batch.lengths[row])].tolist()
        states = batch.states[row, pad : pad + len(prompt) + len(answer) - 1]
        alone = side_by_side([(prompt, answer, states)], torch.device("cpu"))
        torch.testing.assert_close(student._hidden(alone, columns[:1])[0], together[row])


def test_the_loss_of_block_is_the_cross_entropy_written_out() -> None:
    student, batch = block_student(), few_answers()
    with torch.no_grad():
        student.net.candidate_selector.successor_codebook.normal_(std=0.5)
    columns = student._drawn(batch)
    hidden = student._hidden(batch, columns)
    assert torch.equal(columns, student._drawn(batch))
    total = weights = 0.0
    firsts = []
    for row in range(len(batch.tokens)):
        for block, column in enumerate(columns[row].tolist()):
            for depth in range(7):
                if column + depth + 1 >= batch.lengths[row]:
                    continue
                at = batch.start + column + depth
                p = (batch.states[row, at, -1].double() @ student.net.head.T).softmax(-1)
                mine = hidden[row, block, depth]
                unary = student.net.unary(mine)
                chosen = unary + student.net.following(mine, batch.tokens[row, at])
                each = [-(p * logits.log_softmax(-1)).sum() for logits in (unary, chosen)]
                total = total + 0.8**depth * sum(each) / 2
                weights += 0.8**depth
                if depth == 0:
                    firsts.append(each[1])
    loss, first = student.loss(batch)
    torch.testing.assert_close(loss, total / weights)
    assert first == pytest.approx(torch.stack(firsts).mean().item())


def test_held_out_matches_are_those_of_the_drafter() -> None:
    target, batch = tiny_target(), few_answers()
    drafter = BlockDrafter(fitted_block())
    drafter.attach(target)
    student = block_student()
    student.net.load_state_dict({**drafter.net.state_dict()})
    student._sizes = torch.ones(3)
    matches, _ = student.matches(batch, 9)
    assert not matches[..., 7:].any()
    found = matches.long().cumprod(-1).sum(-1)[0]
    n = int(batch.lengths[0])
    text = batch.tokens[0, batch.pads[0] : batch.start + n].tolist()
    prompt = text[: len(text) - n]
    drafter.start(text[:-1], target.prefill(text[:-1], drafter.taps))
    for anchor in range(n - 1):
        draft = drafter.propose(text[: len(prompt) + anchor + 1], Plan(7), always)
        ahead = text[len(prompt) + anchor + 1 :]
        right = [a == b for a, b in zip(draft.tokens, ahead, strict=False)]
        assert int(found[anchor]) == (right.index(False) if False in right else len(right))


def test_sizes_are_bookkeeping() -> None:
    """Learning at unit size changes nothing that is said, and nothing of it is stored."""
    batch = few_answers()
    student = block_student()
    assert not torch.equal(student._sizes, torch.ones(3))
    again = block_student(config=student.config)
    again._learn_at(torch.ones(3))
    again.net.load_state_dict(student.weights())
    columns = torch.zeros(len(batch.tokens), 1, dtype=torch.long)
    torch.testing.assert_close(again._hidden(batch, columns), student._hidden(batch, columns))
    again.scale_to(batch)
    torch.testing.assert_close(again._hidden(batch, columns), student._hidden(batch, columns))


def test_it_begins_as_the_layers_of_the_target() -> None:
    """Keys and values of the text are those that the target's last layer has, once per query
    head, but for the norms of keys."""
    target, batch = tiny_target(), few_answers()
    student = block_student()
    text = batch.tokens[0, batch.pads[0] : batch.start].tolist()
    held = target.prefill(text, (3,)).taps[3]  # what enters the fourth layer, the last one
    layer = target.model.model.layers[3]
    normed = layer.input_layernorm(held)
    context = student._context(batch)
    slots = slice(int(batch.pads[0]), int(batch.start))
    value = layer.self_attn.v_proj(normed).unflatten(-1, (2, 16)).repeat_interleave(2, 1)
    found = context.values[0][0, :, slots].transpose(0, 1)
    torch.testing.assert_close(found, value, rtol=2e-3, atol=2e-3)  # the corpus keeps fp16
    key = layer.self_attn.k_proj(normed).unflatten(-1, (2, 16)).repeat_interleave(2, 1)
    key = key / key.square().mean(-1, keepdim=True).sqrt()
    mine = student.net.layers[0].self_attn
    turned = rotated(mine.k_norm.weight * key, torch.arange(len(text))[:, None], 10_000.0)
    found = context.keys[0][0, :, slots].transpose(0, 1)
    torch.testing.assert_close(found, turned, rtol=2e-3, atol=2e-3)
    with pytest.raises(ValueError, match="layers 0 to 3 to begin with"):
        BlockStudent(target.model, (1,), torch.arange(9), layers=(4,))


def test_anchors_are_drawn_among_those_that_teach() -> None:
    student, batch = block_student(), few_answers()
    student.anchors = 5
    columns = student._drawn(batch)
    assert columns.shape == (len(batch.tokens), 5)
    assert (columns + 1 < batch.lengths[:, None]).all()
    assert all(len(set(row)) == 5 for row in columns.tolist())
