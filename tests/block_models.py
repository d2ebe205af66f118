"""Small block and MTP drafters for tests: fitted for some seconds to a few answers."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import torch

from specviz.drafters.block_layers import BlockConfig
from specviz.drafters.block_net import BlockNet
from specviz.drafters.weights import Weights, sample_of
from specviz.engine.protocols import FINAL
from specviz.targets.slots import SlotLM
from specviz.training.answers import answer_batch
from specviz.training.batches import Batch, side_by_side
from specviz.training.block_student import BlockStudent
from specviz.training.mtp_student import MtpStudent
from tests.models import VOCAB, tiny_llama, tiny_target

CONFIG = BlockConfig(
    hidden=64,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    inner=96,
    block=5,
    mask_token=VOCAB + 3,
    target_layers=(0, 2),
    target_depth=4,
    kernel=3,
    group=16,
    rank=8,
    candidates=6,
)
PLAIN = replace(CONFIG, kernel=0, group=0, rank=0, candidates=0)
KINDS = {
    "dflash2": CONFIG,
    "dflash": PLAIN,
    "window": replace(CONFIG, windows=(3, 0), bias=True),
    "causal": replace(PLAIN, windows=(0, 4), causal=(False, True)),
    "scaled": replace(CONFIG, embedding_scale=3.0, logit_scale=0.5, softcap=5.0),
}


def random_net(config: BlockConfig, words: int = VOCAB) -> BlockNet:
    torch.manual_seed(5)
    net = BlockNet(config, tiny_llama(), torch.arange(words))
    with torch.no_grad():
        for parameter in net.parameters():  # nothing at its neutral start
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net.eval().requires_grad_(False)


def as_weights(net: BlockNet) -> Weights:
    tensors = {**net.state_dict(), "vocabulary": net.vocabulary}
    return Weights("block", asdict(net.config), tensors, sample_of(tiny_llama()))


TAPS = (1, 2, 3)
LOUDER = 8


@lru_cache(maxsize=1)
def few_answers() -> Batch:
    """Answers of the tiny Llama, those of the contract's prompt among them.

    Its distributions are nearly flat; as a teacher it speaks up, so that seconds are enough.
    """
    target = tiny_target()
    text = target.codec.encode("the quick brown fox and the quick brown")
    answers = answer_batch(
        SlotLM(target.model, target.vocab_size),
        [text, text[:20], text[4:]],
        (),
        temperatures=[0.0] * 3,
        max_new_tokens=40,
        generator=torch.Generator(),
        taps=(*TAPS, FINAL),
    )
    batch = side_by_side([(a.prompt, a.tokens, a.states) for a in answers], torch.device("cpu"))
    batch.states[..., -1, :] *= LOUDER
    return batch


def fitted(student: Any, settings: dict[str, Any], steps: int, rate: float) -> Weights:
    optimiser = torch.optim.AdamW(student.net.parameters(), rate)
    for _ in range(steps):
        optimiser.zero_grad()
        student.loss(few_answers())[0].backward()
        optimiser.step()
    tensors = {name: tensor.clone() for name, tensor in student.weights().items()}
    tensors["vocabulary"] = student.vocabulary
    return Weights(student.family, settings, tensors, sample_of(tiny_target().model))


def block_student(**options: Any) -> BlockStudent:
    torch.manual_seed(0)
    said = options.pop("vocabulary", torch.arange(VOCAB - 8))
    student = BlockStudent(tiny_target().model, TAPS, said, (3,), anchors=40, **options)
    student.scale_to(few_answers())
    return student


@lru_cache(maxsize=2)
def fitted_block(second: bool = True) -> Weights:
    student = block_student(second=second)
    return fitted(student, student.settings, 25, 1e-2)


def mtp_student() -> MtpStudent:
    torch.manual_seed(0)
    student = MtpStudent(tiny_target().model, torch.arange(VOCAB - 8), modules=2)
    student.scale_to(few_answers())
    return student


@lru_cache(maxsize=1)
def fitted_mtp() -> Weights:
    student = mtp_student()
    weights = fitted(student, student.settings, 40, 1e-2)
    # It learned to add to states as loud as the teacher's; the target's own are not.
    weights.tensors["size"].div_(LOUDER)
    return weights
