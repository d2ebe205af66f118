"""The pipeline on other architectures than Llama: nothing in it knows a model by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from specviz.engine.loop import generate
from specviz.policies import FixedK
from specviz.prompt_set import Prompt
from specviz.targets.torch_lm import TorchTarget
from specviz.training.corpus import build_corpus
from specviz.training.loop import Schedule
from specviz.training.run import train_drafter
from specviz.zoo import load_drafter
from tests.models import VOCAB, tokenizer

SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


@pytest.mark.parametrize("family", ["eagle", "lm", "block", "mtp"])
@pytest.mark.parametrize(
    "config",
    [
        hf.Qwen2Config(**SMALL, tie_word_embeddings=True),
        hf.Qwen3Config(**SMALL, head_dim=8),
        hf.MistralConfig(**SMALL, sliding_window=None),
    ],
    ids=lambda config: config.model_type,
)
def test_any_dense_decoder_can_be_distilled(config: Any, family: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config).double().eval()
    target = TorchTarget(model, tokenizer(), config.model_type, "random")
    before = {name: p.clone() for name, p in model.named_parameters()}
    asked = [Prompt(f"t{i}", "code", ({"role": "user", "content": f"say {i}"},)) for i in range(24)]
    corpus = build_corpus(
        target, asked, tmp_path / "corpus", max_new_tokens=16, taps=(1, 2), progress=False
    )
    folder = train_drafter(
        family,
        target,
        corpus,
        tmp_path / "run",
        schedule=Schedule(steps=3, batch_tokens=64),
        vocabulary=64,
        progress=False,
    )
    drafter = load_drafter(folder, target)
    run = generate(target, drafter, "a b c", policy=FixedK(3), max_new_tokens=12).finish()
    assert run.certificate.equal
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), f"training changed the target's {name}"
        assert not parameter.requires_grad
