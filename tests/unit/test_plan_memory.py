"""The memory planner against counts by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specviz.analysis.serving.model_shape import model_shape
from specviz.analysis.serving.plan import T4_BYTES, plan_memory
from specviz.doctor_report import CONFIG_27B


def test_the_27b_case_by_hand() -> None:
    """Every matrix of a hybrid of 64 layers, 16 of them of attention, counted here once more."""
    hidden, inner, vocab = 5120, 17_408, 248_320
    attention = (
        hidden * 2 * 24 * 256  # queries, and their gates
        + 2 * hidden * 4 * 256  # keys and values
        + 24 * 256 * hidden  # output
    )
    channels = 2 * 16 * 128 + 48 * 128
    delta = (
        hidden * channels  # queries, keys and values
        + hidden * 48 * 128  # gate
        + 2 * hidden * 48  # decay and step
        + channels * 4  # convolution
        + 48 * 128 * hidden  # output
    )
    mlp = 3 * hidden * inner
    layers = 16 * attention + 48 * delta + 64 * mlp
    shape = model_shape(CONFIG_27B)
    assert sum(shape.layer_params) == layers == 24_352_522_240
    assert shape.params == layers + 2 * hidden * vocab
    assert round(shape.params / 1e9) == 27

    plan = plan_memory(CONFIG_27B, draft="mtp", tokens=8192, nodes=15)
    weights = layers * 4.0 / 8 + hidden * vocab * 6 / 8
    assert sum(gpu.weights for gpu in plan.gpus) == pytest.approx(weights)
    assert weights == pytest.approx(13.13e9, rel=1e-3)
    # Keys and values of 16 layers: 2 x 4 heads x 256 x 2 bytes a token and layer.
    per_token = 16 * 2 * 4 * 256 * 2
    state = 2 * 48 * 128 * 128 * 2  # two rows of fp16
    ring = channels * (4 + 4 + 16) * 2  # the convolution's window, twice, and 16 rows to undo
    staged = (1 + 4 + 16) * (channels * 2 + 48 * 2 + 48 * 4)
    recurrent = 48 * 2 * (state + ring + staged)  # two sequences
    cache = per_token * (8192 + 15) + recurrent
    assert sum(gpu.cache for gpu in plan.gpus) == pytest.approx(cache)
    assert plan.tree_bytes == per_token * 15
    mtp = (attention + mlp + 2 * hidden**2) * 4.0 / 8 + 2 * 4 * 256 * 2 * (8192 + 15)
    assert plan.gpus[0].drafter == pytest.approx(mtp)
    assert plan.host_bytes == hidden * vocab * 2
    # All layers go where exllamav3 begins; the head does not fit there any more.
    assert plan.fits
    assert [gpu.layers for gpu in plan.gpus] == [64, 0]
    assert [gpu.head for gpu in plan.gpus] == [False, True]
    assert "layers split 64 + 0" in plan.sentence


def test_one_t4_is_not_enough_for_it() -> None:
    plan = plan_memory(CONFIG_27B, draft="mtp", gpus=[T4_BYTES])
    assert not plan.fits
    assert plan.left_over == 1  # the head
    assert "Does not fit on 1 GPU" in plan.sentence
    longer = plan_memory(CONFIG_27B, draft="mtp", tokens=65_536)
    assert longer.fits
    assert longer.gpus[1].layers > 0  # a longer cache pushes layers over
    quantised = plan_memory(CONFIG_27B, tokens=65_536, cache_bits=4)
    assert sum(g.cache for g in quantised.gpus) < 0.5 * sum(g.cache for g in longer.gpus)


def test_a_dflash_drafter_counts_its_codebooks_and_taps() -> None:
    drafter: dict[str, Any] = {
        "hidden_size": 5120,
        "intermediate_size": 17_408,
        "num_hidden_layers": 5,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 248_320,
        "dflash_config": {"target_layer_ids": [1, 16, 31, 46, 61], "selector_rank": 256},
    }
    plan = plan_memory(CONFIG_27B, draft=drafter, draft_bits=4.0)
    layer = 5120 * 128 * (2 * 32 + 2 * 8) + 3 * 5120 * 17_408
    own = (5 * layer + 5 * 5120**2) / 2 + 2 * 248_320 * 256 * 2
    cache = 5 * 2 * 8 * 128 * 2 * (8192 + 15)
    assert plan.gpus[0].drafter == pytest.approx(own + cache)


def test_tied_heads_experts_and_windows() -> None:
    small = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 1000,
        "tie_word_embeddings": True,
    }
    assert model_shape(small).params == 2 * (4 * 64 * 64 + 3 * 64 * 128) + 64_000
    experts = small | {"num_experts": 8, "moe_intermediate_size": 32, "num_experts_per_tok": 2}
    assert model_shape(experts).layer_params[0] == 4 * 64 * 64 + 8 * (3 * 64 * 32 + 64)
    assert set(model_shape(small | {"sliding_window": 4096}).kinds) == {"sliding_attention"}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers"),
        ({"layer_types": ["full_attention"]}, "1 entries for 64"),
    ],
)
def test_a_config_without_shapes_is_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        plan_memory(json.loads(json.dumps(CONFIG_27B)) | change)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="more bytes"):
        plan_memory(CONFIG_27B, gpus=[1e9])
    with pytest.raises(ValueError, match="bits per weight"):
        plan_memory(CONFIG_27B, bits=0)
    with pytest.raises(ValueError, match="mtp"):
        plan_memory(CONFIG_27B, draft="dflash")
    assert "&lt;" not in plan_memory(CONFIG_27B)._repr_html_()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"bits": "x"}, "bits, bits per weight, must be a number above 0"),
        ({"head_bits": None, "bits": 4.0}, "head_bits, bits per weight"),
        ({"draft_bits": []}, "draft_bits, bits per weight"),
        ({"cache_bits": 0}, "cache_bits"),
        ({"cache_bits": 1}, "2 to 8"),
        ({"gpus": 1.5}, "gpus must be a list"),
        ({"gpus": []}, "gpus must name at least one"),
        ({"gpus": [-1]}, "Each of gpus"),
        ({"reserve": -1}, "reserve, in bytes"),
        ({"reserve": "x"}, "reserve, in bytes"),
    ],
)
def test_odd_numbers_are_refused_in_a_sentence(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plan_memory(CONFIG_27B, **asked)


@pytest.mark.parametrize("found", ["exl3", {"quant_method": "exl3", "bits": "x"}, [4]])
def test_a_broken_quantisation_is_named(found: Any) -> None:
    with pytest.raises(ValueError, match="quantization_config"):
        plan_memory({**CONFIG_27B, "quantization_config": found})
