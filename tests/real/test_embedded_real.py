"""The embedded target as it lies in the cache: what was converted, and that it loads quietly."""

from __future__ import annotations

import json

import pytest

from specviz.embedded import CAPTION, embedded_target_dir, quiet_transformers

pytestmark = pytest.mark.real

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder():
    return embedded_target_dir()


@pytest.fixture(scope="module")
def tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_the_weights_are_float32_and_nothing_says_quantised(model, folder):
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert json.loads((folder / "specviz.json").read_text())["caption"] == CAPTION


def test_a_linear_weight_has_at_most_16_values_per_group_of_32(model):
    """What Q4_1 means: in every group of 32 weights, scale * (0..15) + minimum."""
    weight = model.model.layers[0].mlp.down_proj.weight.detach()
    groups = weight.reshape(-1, 32)[:512]
    assert max(len(group.unique()) for group in groups) <= 16


def test_the_vocabulary_is_not_padded_and_the_end_token_is_known(model, tokenizer):
    assert len(tokenizer) == model.config.vocab_size == 49_152
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == 2
    assert tokenizer.eos_token == "<|im_end|>"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("in 1984", ["in", "Ġ", "1", "9", "8", "4"]),
        ("Steps:\n\n1.", ["Steps", ":", "ĊĊ", "1", "."]),
        ("a   42", ["a", "ĠĠĠ", "4", "2"]),
    ],
)
def test_digits_stand_alone_and_blank_lines_before_them_stay_whole(tokenizer, text, pieces):
    assert tokenizer.tokenize(text) == pieces


def test_text_survives_the_round_trip(tokenizer):
    text = "def f(x):\n\treturn x  # naïve 🎉 1,024\n\n\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_it_answers_a_chat(model, tokenizer):
    messages = [{"role": "user", "content": "What is the capital of France? One sentence."}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = torch.tensor([tokenizer.encode(prompt)])
    output = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(output)


def test_quiet_transformers_restores_what_it_found():
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with quiet_transformers():
        assert logging.get_verbosity() == logging.ERROR
        assert not logging.is_progress_bar_enabled()
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
