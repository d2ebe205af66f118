"""z-lab's folders, read and written, and z-lab's package as the referee."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from specviz.drafters.block import BlockDrafter
from specviz.drafters.block_layers import BlockConfig
from specviz.drafters.dflash_files import is_dflash, read_dflash, write_dflash
from specviz.drafters.weights import Weights, sample_of
from specviz.engine.loop import generate
from specviz.policies import FixedK
from specviz.targets.torch_lm import TorchTarget
from tests.block_models import (
    CONFIG,
    KINDS,
    as_weights,
    fitted_block,
    random_net,
)
from tests.models import VOCAB, tiny_llama, tiny_target, tokenizer


def target_without_spare_rows() -> TorchTarget:
    model = tiny_llama()
    with torch.no_grad():
        model.lm_head.weight[VOCAB:] = 0  # z-lab's loop would say tokens that the tokenizer lacks
    target = TorchTarget(model, tokenizer(), "tiny-llama", "random tiny Llama, float64")
    target.eos_ids = frozenset()
    return target


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    target = tiny_target()
    weights = as_weights(random_net(KINDS[kind], VOCAB - 20))
    folder = write_dflash(weights, tmp_path / "folder", target)
    assert is_dflash(folder)
    back = read_dflash(folder, target)
    before, after = (BlockConfig.of(w.settings) for w in (weights, back))
    assert after == before
    assert back.tensors["vocabulary"].tolist() == list(range(target.vocab_size))
    for name, tensor in weights.tensors.items():
        if name != "vocabulary":
            torch.testing.assert_close(back.tensors[name][: len(tensor)], tensor.float())
    drafter = BlockDrafter(back, name="folder")
    run = generate(target, drafter, "the quick", policy=FixedK(4), max_new_tokens=12).finish()
    assert run.certificate.equal


def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    target = tiny_target()
    folder = write_dflash(as_weights(random_net(CONFIG)), tmp_path / "folder", target)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")

    def refused(match: str, **changes: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(ValueError, match=match):
            read_dflash(folder, target)
        (folder / "config.json").write_text(json.dumps(config))

    refused("hidden states of 32 and the target of 64", hidden_size=32)
    refused("target of 9 layers and this one has 4", num_target_layers=9)
    refused("mask token 999", dflash_config={**config["dflash_config"], "mask_token_id": 999})
    refused("activation gelu", hidden_act="gelu")
    refused("type yarn", rope_parameters={"rope_type": "yarn"})
    refused("down_proj.weight of shape", intermediate_size=80)
    refused("has no tensor layers.2", num_hidden_layers=3, layer_types=None)
    refused("has a tensor candidate_selector", architectures=["DFlashDraftModel"])
    refused("says nothing of 'num_attention_heads'", num_attention_heads=None)
    refused("has no dflash_config", dflash_config=None)
    refused("damaged: Groups of 16 do not divide 65", hidden_size=65)
    refused("damaged", architectures=[])
    refused("damaged", dflash_config={**config["dflash_config"], "mask_token_id": "a"})
    far = {**config["dflash_config"], "target_layer_ids": [0, 9]}
    refused("taps layers .* and this target has 4", dflash_config=far)
    with pytest.raises(ValueError, match=r"takes a drafter's weights"):
        write_dflash(BlockDrafter(read_dflash(folder, target)), folder, target)  # type: ignore[arg-type]
    save_file({**tensors, "lm_head.weight": torch.ones(2)}, folder / "model.safetensors")
    read_dflash(folder, target)  # the target's own head, carried along
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ValueError, match="is damaged"):
        read_dflash(folder, target)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no safetensors"):
        read_dflash(folder, target)
    (folder / "config.json").write_text("{}")
    assert not is_dflash(folder)
    with pytest.raises(ValueError, match="has no dflash_config"):
        read_dflash(folder, target)
    with pytest.raises(ValueError, match="not one of lm"):
        write_dflash(Weights("lm", {}, {}, torch.ones(1)), folder, target)


def test_names_and_defaults_of_published_folders_are_known(tmp_path: Path) -> None:
    """Codebooks with and without `.weight`, the block's size at either place, bf16."""
    target = tiny_target()
    folder = write_dflash(as_weights(random_net(CONFIG)), tmp_path / "folder", target)
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    renamed = {
        f"{name}.weight" if name.endswith("codebook") else name: tensor.bfloat16()
        for name, tensor in tensors.items()
    }
    save_file(renamed, folder / "model.safetensors")
    config["dflash_config"]["block_size"] = config.pop("block_size")
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    (folder / "config.json").write_text(json.dumps(config))
    weights = read_dflash(folder, target)
    assert BlockConfig.of(weights.settings).block == CONFIG.block
    drafter = BlockDrafter(weights)
    drafter.attach(target)
    assert drafter.net.fc.weight.dtype == torch.float64
    del config["dflash_config"]["target_layer_ids"], config["dflash_config"]["block_size"]
    (folder / "config.json").write_text(json.dumps(config))
    found = BlockConfig.of(read_dflash(folder, target).settings)
    assert (found.block, found.target_layers) == (16, (1, 1))


# The referee


@pytest.fixture(scope="module")
def referee() -> Any:
    return pytest.importorskip(
        "dflash.model", reason="the referee is missing: pip install --no-deps dflash==0.1.0"
    )


def theirs(referee: Any, folder: Path, second: bool) -> Any:
    kind = referee.DFlash2DraftModel if second else referee.DFlashDraftModel
    return kind.from_pretrained(folder, dtype=torch.float64).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_z_labs_network_says_the_same(referee: Any, kind: str, tmp_path: Path) -> None:
    target, config = tiny_target(), KINDS[kind]
    net = random_net(config, VOCAB + 32)
    folder = write_dflash(as_weights(net), tmp_path / "folder", target)
    other = theirs(referee, folder, config.second)
    states = torch.randn(1, 9, 2, 64, dtype=torch.float64)
    context = net.context(states, torch.arange(9)[None])
    seen = torch.ones(1, 1, 9, dtype=torch.bool)
    mine = net(torch.tensor([[65]]), torch.tensor([[9]]), seen, context)[0, 0]
    block = torch.tensor([[65, *[config.mask_token] * 4]])
    embedded = referee._raw_input_embeddings(target.model, block, config.embedding_scale)
    found = other(
        target_hidden=states.flatten(2),
        noise_embedding=embedded,
        position_ids=torch.arange(14)[None],
    )[:, 1:]
    torch.testing.assert_close(mine, found[0], atol=1e-4, rtol=1e-4)  # its norms are in fp32
    logits = other.compute_logits(found, target.model.lm_head)
    torch.testing.assert_close(net.unary(mine), logits[0], atol=1e-4, rtol=1e-4)
    if config.second:
        path, candidates, _ = other.propose(
            found, torch.tensor([65]), target.model.lm_head, temperature=0
        )
        token = 65
        for depth in range(4):
            row = net.said(mine[depth], net.unary(mine[depth]), torch.tensor(token))
            assert set(row.isfinite().nonzero()[:, 0].tolist()) == set(
                candidates[0, depth].tolist()
            )
            token = int(row.argmax())
            assert token == int(path[0, depth])


@pytest.mark.parametrize("second", [True, False])
def test_z_labs_loop_goes_the_same_way(
    referee: Any, second: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one folder: the same tokens, and as many in every round before the limit."""
    monkeypatch.setattr(referee, "_cuda_time", time.perf_counter)
    target = target_without_spare_rows()
    folder = write_dflash(
        replace(fitted_block(second), sample=sample_of(target.model)), tmp_path / "folder", target
    )
    other = theirs(referee, folder, second)
    lengths = []
    for text in ("the quick brown fox and the quick brown", "a dog"):
        prompt = list(target.codec.encode(text))
        found = referee.dflash_generate(
            other, target.model, torch.tensor([prompt]), 40, None, return_stats=True
        )
        drafter = BlockDrafter(read_dflash(folder, target))
        run = generate(target, drafter, prompt, policy=FixedK(7), max_new_tokens=40).finish()
        assert run.token_ids == found.output_ids[0, len(prompt) :].tolist()
        # z-lab's loop narrows the block near the limit, which changes what it says.
        before = [round_ for round_ in run.log if round_.anchor + 8 < 40]
        assert found.acceptance_lengths[: len(before)] == [round_.emitted for round_ in before]
        lengths += [round_.emitted for round_ in before]
    assert max(lengths) > 3 or not second
    assert len(set(lengths)) > 1
