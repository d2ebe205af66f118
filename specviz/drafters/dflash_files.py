"""z-lab's checkpoint folders: DFlash and DFlash2 drafters read and written.

A folder has `config.json`, a Qwen3 configuration with a `dflash_config` in it, and safetensors
files whose names are those of `block_net`. Embeddings and output head are the target's.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from specviz.drafters.block_layers import BlockConfig
from specviz.drafters.block_net import check_sizes, shapes
from specviz.drafters.weights import Weights, check_target, sample_of
from specviz.engine.protocols import Target
from specviz.trace.store import made, placed

_CODEBOOKS = tuple(f"candidate_selector.{side}_codebook" for side in ("predecessor", "successor"))
#: Of the target, should a folder carry them along.
_NOT_OURS = ("embed_tokens.", "lm_head.", "rotary_emb.")


def is_dflash(folder: str | Path) -> bool:
    """Whether a folder holds a DFlash drafter."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "dflash_config" in config


def read_dflash(folder: str | Path, target: Target) -> Weights:
    """Read a z-lab folder for a target.

    Parameters
    ----------
    folder
        With config.json and one or more safetensors files.
    target
        A torch target with the sizes that the drafter was made for. Nothing in such a folder
        says for which weights; with others its drafts are merely rejected.

    Returns
    -------
    Weights
        For `BlockDrafter`.

    Raises
    ------
    ValueError
        When the folder is damaged, asks for something this network does not have, or does not
        fit the target.

    Examples
    --------
    >>> BlockDrafter(read_dflash("z-lab/some-DFlash2", target))      # doctest: +SKIP
    """
    folder = Path(folder)
    model = getattr(target, "model", None)
    if model is None or not hasattr(model, "get_decoder"):
        raise ValueError(
            f"{folder.name} drafts on a torch target's weights; {target.name} is none."
        )
    config = _config(folder, len(model.get_decoder().layers))
    check_sizes(config, target, model, folder.name)
    tensors = _tensors(folder)
    rows = len(tensors[_CODEBOOKS[0]]) if _CODEBOOKS[0] in tensors else target.vocab_size
    said = min(rows, target.vocab_size)  # the head may have rows that are no tokens
    for name in _CODEBOOKS:
        if name in tensors:
            tensors[name] = tensors[name][:said]
    vocabulary = torch.arange(said)
    wanted = shapes(config, said)
    for name in sorted(wanted.keys() | tensors.keys()):
        mine, found = wanted.get(name), tensors.get(name)
        if mine is None or found is None:
            what = "has a" if mine is None else "has no"
            raise ValueError(
                f"{folder} {what} tensor {name}, unlike a DFlash drafter of its config.json: "
                "it is damaged, or made for a later version."
            )
        if tuple(found.shape) != mine:
            raise ValueError(
                f"{folder} has a {name} of shape {tuple(found.shape)} and its config.json says "
                f"{mine}: they do not belong together."
            )
    return Weights("block", asdict(config), {**tensors, "vocabulary": vocabulary}, sample_of(model))


def write_dflash(weights: Weights, folder: str | Path, target: Target) -> Path:
    """Write a block drafter as a z-lab folder, which `read_dflash` and z-lab's package load.

    Such a drafter says the whole vocabulary. Where `weights` has a reduced one, the selector
    knows nothing of the other tokens, and what is read back may draft them.

    Raises
    ------
    ValueError
        When the drafter is of another family, or of another target.
    """
    if not isinstance(weights, Weights):
        raise ValueError(
            f"write_dflash takes a drafter's weights (drafter.weights), not {weights!r:.40}."
        )
    if weights.family != "block":
        raise ValueError(f"Only a block drafter is a DFlash drafter, not one of {weights.family}.")
    model = check_target(weights, target, "the drafter")
    config = BlockConfig.of(weights.settings)
    tensors = dict(weights.tensors)
    vocabulary = tensors.pop("vocabulary").long()
    rows = len(model.get_input_embeddings().weight)
    for name in _CODEBOOKS:
        if name in tensors:
            whole = tensors[name].new_zeros(rows, config.rank)
            whole[vocabulary] = tensors[name]
            tensors[name] = whole
    folder = made(folder)
    with placed(folder / "model.safetensors") as temporary:
        kept = {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}
        save_file({name: t.contiguous() for name, t in kept.items()}, temporary, {"format": "pt"})
        temporary.chmod(0o644)
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", 32768)
    said = json.dumps(_said(config, rows, longest), indent=1)
    with placed(folder / "config.json") as temporary:
        temporary.write_text(said + "\n", "utf-8")
    return folder


def _said(config: BlockConfig, rows: int, longest: int) -> dict[str, Any]:
    second: dict[str, Any] = {}
    if config.second:
        second = {
            "selector_rank": config.rank,
            "selector_top_k": config.candidates,
            "conv_kernel_size": config.kernel,
            "conv_group_size": config.group,
        }
    windows = config.windows or (0,) * config.layers
    causal = config.causal or (False,) * config.layers
    return {
        "architectures": ["DFlash2DraftModel" if config.second else "DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "float32",
        "vocab_size": rows,
        "hidden_size": config.hidden,
        "intermediate_size": config.inner,
        "hidden_act": "silu",
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "attention_bias": config.bias,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "max_position_embeddings": longest,
        "layer_types": ["sliding_attention" if w else "full_attention" for w in windows],
        "use_sliding_window": any(windows),
        "sliding_window": max(windows) or None,
        "is_causal": causal[0] if len(set(causal)) == 1 else None,
        "tie_word_embeddings": False,
        "block_size": config.block,
        "num_target_layers": config.target_depth,
        "dflash_config": {
            "mask_token_id": config.mask_token,
            "target_layer_ids": list(config.target_layers),
            "input_embedding_scale": config.embedding_scale,
            "output_multiplier": config.logit_scale,
            "final_logit_softcapping": config.softcap or None,
            **second,
        },
    }


def _config(folder: Path, target_depth: int) -> BlockConfig:
    file = folder / "config.json"
    try:
        said = json.loads(file.read_text("utf-8"))
        own = said["dflash_config"]
    except (OSError, ValueError, KeyError, TypeError):
        own = None
    if not isinstance(own, dict):
        raise ValueError(f"{folder} is no DFlash drafter: {file} has no dflash_config.")

    def asked(name: str, default: Any = None) -> Any:
        found = own.get(name, said.get(name, default))
        return default if found is None else found

    def needed(name: str) -> int:
        if asked(name) is None:
            raise KeyError(name)
        return int(asked(name))

    if said.get("hidden_act", "silu") != "silu":
        raise ValueError(
            f"{file} asks for the activation {said['hidden_act']}: only silu is known."
        )
    rope = {**(said.get("rope_scaling") or {}), **(said.get("rope_parameters") or {})}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"{file} asks for rotary positions of type {kind}: only default is known.")
    try:
        depth, layers = int(asked("num_target_layers", target_depth)), needed("num_hidden_layers")
        hidden, heads = needed("hidden_size"), needed("num_attention_heads")
        taps = asked("target_layer_ids")
        kinds = said.get("layer_types") or ["full_attention"] * layers
        width = int(said.get("sliding_window") or 0) if said.get("use_sliding_window") else 0
        sliding = [kind == "sliding_attention" for kind in kinds]
        one_way = said.get("is_causal")
        causal = tuple(slides if one_way is None else bool(one_way) for slides in sliding)
        second = said["architectures"][0] == "DFlash2DraftModel"
        return BlockConfig(
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=int(said.get("num_key_value_heads", heads)),
            head_dim=int(said.get("head_dim") or 128),  # the default of Qwen3's configuration
            inner=needed("intermediate_size"),
            block=int(asked("block_size", 16)),
            mask_token=needed("mask_token_id"),
            target_layers=tuple(taps) if taps is not None else _spread(depth, layers),
            target_depth=depth,
            eps=float(said.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta", said.get("rope_theta", 10_000.0))),
            bias=bool(said.get("attention_bias", False)),
            kernel=needed("conv_kernel_size") if second else 0,
            group=needed("conv_group_size") if second else 0,
            rank=needed("selector_rank") if second else 0,
            candidates=needed("selector_top_k") if second else 0,
            windows=tuple(width if slides else 0 for slides in sliding) if width else (),
            causal=causal if any(causal) else (),
            embedding_scale=float(asked("input_embedding_scale", 1.0)),
            logit_scale=float(asked("output_multiplier", 1.0)),
            softcap=max(float(asked("final_logit_softcapping", 0.0)), 0.0),
        )
    except KeyError as error:
        raise ValueError(f"{file} says nothing of {error}, which a DFlash drafter needs.") from None
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{file} is damaged: {str(error).rstrip('.')}.") from None


def _spread(depth: int, layers: int) -> tuple[int, ...]:
    """The layers that are fused where the configuration names none."""
    if layers == 1:
        return (depth // 2,)
    return tuple(round(1 + i * (depth - 4) / (layers - 1)) for i in range(layers))


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"{folder} has no safetensors file: fetch the whole folder.")
    tensors = {}
    for file in files:
        try:
            with safe_open(file, "pt") as kept:
                for name in kept.keys():  # noqa: SIM118
                    if not name.startswith(_NOT_OURS):
                        tensors[_plain(name)] = kept.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is damaged: {str(error).splitlines()[0]}.") from None
    return tensors


def _plain(name: str) -> str:
    """Codebooks are tables of their own here, and embedding modules in z-lab's package."""
    bare = name.removesuffix(".weight")
    return bare if bare in _CODEBOOKS else name
