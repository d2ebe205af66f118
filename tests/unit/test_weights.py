"""Drafters on disk: what is written is read, and meets no target but its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from specviz import cards
from specviz.drafters import trained
from specviz.drafters.eagle import EagleDrafter
from specviz.drafters.trained import trained_drafter
from specviz.drafters.weights import Weights, check_target, load_weights, sample_of, save_weights
from specviz.policies import Plan
from specviz.zoo import load_drafter
from tests.models import fitted_eagle, near_twin, tiny_llama, tiny_target, toy_pair


def test_int8_rows_are_close_and_the_rest_is_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(20, 30) * torch.logspace(-3, 3, 20)[:, None]
    weights = Weights(
        "eagle",
        {"taps": [1, 2]},
        {"a": matrix, "zero": torch.zeros(3, 4), "norm": torch.randn(7), "ids": torch.arange(5)},
        torch.ones(4),
    )
    save_weights(weights, tmp_path / "w.safetensors")
    back = load_weights(tmp_path / "w.safetensors")
    assert back.settings == {"taps": [1, 2]}
    assert set(back.tensors) == set(weights.tensors)
    apart = (back.tensors["a"] - matrix).abs().amax(1) / matrix.abs().amax(1)
    assert apart.max() <= 0.5 / 127 + 1e-6
    for name in ("zero", "norm", "ids"):
        assert torch.equal(back.tensors[name], weights.tensors[name])


def test_a_drafter_meets_its_own_target_in_half_precision_too() -> None:
    target = tiny_target()
    weights = Weights("lm", {}, {}, sample_of(target.model))
    assert check_target(weights, target, "lm") is target.model
    target.model = tiny_llama().half()
    check_target(weights, target, "lm")
    target.model = near_twin(noise=0.02)
    with pytest.raises(ValueError, match=r"another target than tiny-llama.*differ by"):
        check_target(weights, target, "lm")
    target.model = tiny_llama(seed=1)
    with pytest.raises(ValueError, match="another target"):
        check_target(weights, target, "lm")
    toy, _ = toy_pair()
    with pytest.raises(ValueError, match="has none"):
        check_target(weights, toy, "lm")


def test_another_size_is_refused() -> None:
    weights = Weights("eagle", {"taps": (1,)}, {}, torch.ones(3))
    with pytest.raises(ValueError, match="another size than tiny-llama"):
        EagleDrafter(weights).attach(tiny_target())


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "drafter.safetensors"
    file.write_bytes(b"not safetensors at all")
    with pytest.raises(ValueError, match="is damaged"):
        load_drafter(tmp_path, tiny_target())
    save_file({"a": torch.ones(2)}, file)
    with pytest.raises(ValueError, match="not a drafter that `specviz train` wrote"):
        load_drafter(tmp_path, tiny_target())
    save_weights(Weights("medusa", {}, {}, torch.ones(1)), file)
    with pytest.raises(ValueError, match="medusa"):
        load_drafter(tmp_path, tiny_target())


def test_a_shipped_file_must_be_the_one_its_card_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cards, trained):
        monkeypatch.setattr(module, "data_file", lambda name: tmp_path / Path(name).name)
    save_weights(fitted_eagle(), tmp_path / "eagle.safetensors")
    (tmp_path / "eagle.json").write_text(json.dumps({"sha256": "0" * 64}))
    assert cards.drafter_names() == ["eagle"]
    with pytest.raises(ValueError, match="not the file that its card describes"):
        load_drafter("eagle", tiny_target())
    with pytest.raises(ValueError, match=r"No drafter '\.\./eagle'.*eagle"):
        load_drafter("../eagle", tiny_target())


def test_a_written_drafter_drafts_like_the_one_in_memory(tmp_path: Path) -> None:
    target = tiny_target()
    save_weights(fitted_eagle(), tmp_path / "drafter.safetensors")
    prompt = list(target.codec.encode("the quick brown fox"))
    said = []
    for drafter in (
        EagleDrafter(load_weights(tmp_path / "drafter.safetensors")),
        trained_drafter(tmp_path / "drafter.safetensors", "eagle"),
    ):
        drafter.attach(target)
        drafter.start(prompt, target.prefill(prompt, drafter.taps))
        said.append(drafter.propose([*prompt, 65], Plan(4), lambda view: True).tokens)
    assert said[0] == said[1]


def test_eagle_says_what_it_lacks() -> None:
    target = tiny_target()
    drafter = EagleDrafter(fitted_eagle())
    with pytest.raises(RuntimeError, match="not attached"):
        drafter.propose([1, 2], Plan(2), lambda view: True)
    drafter.attach(target)
    with pytest.raises(RuntimeError, match="states of 0 tokens and needs 1"):
        drafter.propose([1, 2], Plan(2), lambda view: True)


def test_near_ties_of_eagle_can_be_told() -> None:
    """In float64 the noise of a batch shape is next to nothing, at every depth."""
    target = tiny_target()
    drafter = EagleDrafter(fitted_eagle())
    drafter.attach(target)
    prompt = list(target.codec.encode("the quick brown fox"))
    drafter.start(prompt, target.prefill(prompt, drafter.taps))
    draft = drafter.propose([*prompt, 65], Plan(4), lambda view: True)
    for depth in range(4):
        margin, noise = drafter.tie_after([*prompt, 65, *draft.tokens[:depth]], drafted=depth)
        assert noise < 1e-9 < margin
    again = drafter.propose([*prompt, 65], Plan(4), lambda view: True)
    assert again.tokens == draft.tokens
