"""Loading targets and drafters: what fits is checked, what does not is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

from specviz.drafters.ngram import NGram
from specviz.engine.certificate import plain_decode
from specviz.engine.loop import generate
from specviz.engine.protocols import Drafter, Target
from specviz.targets.torch_lm import TorchTarget
from specviz.zoo import load_drafter, load_target
from tests.models import VOCAB, near_twin, tiny_llama, tiny_target, tokenizer

SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}


def saved(folder: Path, model: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def made(config: Any) -> Any:
    torch.manual_seed(0)
    return hf.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    "config",
    [
        hf.Qwen2Config(**{k: v for k, v in SMALL.items() if k != "head_dim"}),
        hf.Qwen3Config(**SMALL),
        hf.MistralConfig(**SMALL, sliding_window=None),
        hf.GraniteConfig(
            **{k: v for k, v in SMALL.items() if k != "head_dim"}, embedding_multiplier=3.0
        ),
    ],
    ids=lambda config: config.model_type,
)
def test_dense_full_attention_decoders_fit(config: Any, tmp_path: Path) -> None:
    target = load_target(saved(tmp_path, made(config)), dtype="float64")
    assert isinstance(target, Target)
    assert target.dtype == "float64"
    ids = target.codec.encode("some text")
    ours = plain_decode(target, ids, 12)
    theirs = target.model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids)),
        max_new_tokens=12,
        do_sample=False,
    )
    assert ours == theirs[0, len(ids) :].tolist()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (hf.MistralConfig(**SMALL, sliding_window=16), "sliding"),
        (hf.Gemma2Config(**SMALL, sliding_window=16), "sliding"),
        (
            hf.Gemma2Config(
                **SMALL, layer_types=["full_attention"] * 2, final_logit_softcapping=0.05
            ),
            "tree row differs",
        ),
        (
            hf.GraniteConfig(
                **{k: v for k, v in SMALL.items() if k != "head_dim"}, logits_scaling=9.0
            ),
            "tree row differs",
        ),
        (hf.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4), "decoder layers"),
    ],
    ids=["mistral-window", "gemma2-window", "gemma2-softcap", "granite-scaled", "gpt2"],
)
def test_what_does_not_hold_is_refused(config: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_target(saved(tmp_path, made(config)))


def test_a_padded_vocabulary_is_cropped() -> None:
    target = tiny_target()
    assert target.model.config.vocab_size == VOCAB + 32
    assert target.vocab_size == VOCAB
    assert target.prefill([1, 2, 3]).logits.shape == (1, VOCAB)


def test_text_longer_than_the_model_reads_is_refused() -> None:
    target = tiny_target()
    assert target.max_length == 1024
    with pytest.raises(ValueError, match="at most 1,024 tokens"):
        target.prefill([1] * 1024)
    run = generate(target, NGram(), [1] * 1010, max_new_tokens=40)
    with pytest.raises(ValueError, match="shorten the prompt"):
        run.finish()
    assert len(run.token_ids) > 1  # what was generated can still be read
    run.trace.validate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "no-such-model"}, "neither"),
        ({"name": "/no/such/folder/at/all"}, "neither"),
        ({"name": "smollm2-135m", "dtype": "bfloat16"}, "dtype must be"),
        ({"name": "smollm2-135m", "device": "cuda"}, "CUDA"),
    ],
)
def test_bad_names_are_explained(arguments: dict[str, Any], message: str) -> None:
    if arguments.get("device") and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ValueError, match=message):
        load_target(**arguments)


def test_a_folder_without_weights_is_explained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_target(tmp_path)


def test_pickled_weights_are_never_loaded(tmp_path: Path) -> None:
    folder = saved(tmp_path, tiny_llama(dtype=torch.float32))
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_target(folder)


def test_drafters_by_name_and_folder(tmp_path: Path) -> None:
    target = tiny_target()
    for name in ("ngram", "self-quant", "self-quant-3bit"):
        drafter = load_drafter(name, target)
        assert isinstance(drafter, Drafter)
        assert drafter.name == name
    small = load_drafter(str(saved(tmp_path / "small-lm", near_twin())), target)
    assert small.name == "small-lm"
    with pytest.raises(ValueError, match=r"medusa.*ngram, self-quant, self-skip, .*eagle"):
        load_drafter("medusa", target)
    with pytest.raises(ValueError, match="eagle was trained for a target of another size"):
        load_drafter("eagle", target)
    with pytest.raises(ValueError, match="layer"):
        load_drafter("self-skip", target)  # this target has four layers, not thirty


def test_self_drafts_need_a_torch_target() -> None:
    from tests.models import toy_pair

    with pytest.raises(ValueError, match="torch target"):
        load_drafter("self-quant", toy_pair()[0])


def test_the_self_check_sees_a_model_whose_rows_interact() -> None:
    """A head that mixes neighbouring rows would pass one-row tests and fail in a tree."""
    model = tiny_llama()
    plain = model.model.norm.forward

    def mixing(hidden: torch.Tensor) -> torch.Tensor:
        out = plain(hidden)
        return out + 0.1 * out.roll(1, dims=1)

    model.model.norm.forward = mixing
    with pytest.raises(ValueError, match="tree row differs"):
        TorchTarget(model, tokenizer(), "mixing")
