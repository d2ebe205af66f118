"""Tiny checkpoints that exllamav3 loads: an fp16 Llama, and drafters that are often right of it.

The Llama's layers add little to a token's embedding, so that its next token depends mostly, not
only, on the last one. The drafters hold that dependence and noise: unlike random ones they are
accepted now and then, and a test on them can fail.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from tests.models import VOCAB, tokenizer

HIDDEN, LAYERS = 128, 3
#: The tokenizer knows fewer tokens than the model has rows, as real checkpoints do, and
#: exllamav3 pads the output head further, to a multiple of 128.
ROWS = VOCAB + 32
BLOCK = 8  # the anchor and seven drafted tokens


#: How much a layer adds, against what it would: the drafters do not know of it.
MIXING = 0.15


def write_target(folder: Path, seed: int = 0, noise: float = 0.0) -> Any:
    """Write a Llama and its tokenizer; returns the same model in fp32, for comparison.

    With `noise` every weight is changed by about that share: a smaller model of the family.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=ROWS,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=VOCAB - 1,
    )
    model: Any = LlamaForCausalLM(config)
    model.half()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4.0)
        model.get_input_embeddings().weight.mul_(8.0)
        model.lm_head.weight.mul_(3.0)  # distributions neither flat nor certain
        for layer in model.model.layers:
            for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
                part.weight.mul_(MIXING)
        for parameter in model.parameters():
            if noise and parameter.dim() == 2:
                parameter.mul_(1 + noise * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return model.float().eval()


def write_dflash(
    folder: Path, target: Any, second: bool = True, seed: int = 1, window: int = 0
) -> None:
    """Write a DFlash2 (or DFlash) drafter that taps the target's layers 0 and 1 (taps 1 and 2).

    Its rows say little by themselves; the selector knows which token follows which. DFlash has
    no selector: its first row alone sees the anchor.
    """
    heads, kv_heads, width, inner, taps = 4, 2, 32, 2 * HIDDEN, (0, 1)
    kernel, group = 2, 16
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int, scale: float = 0.08) -> torch.Tensor:
        return (scale * torch.randn(shape, generator=generator)).bfloat16()

    def ones(size: int) -> torch.Tensor:
        return torch.ones(size, dtype=torch.bfloat16)

    word = target.get_input_embeddings().weight.detach().float()
    after = target.get_output_embeddings().weight.detach().float()
    normed = word * torch.rsqrt(word.square().mean(-1, keepdim=True) + 1e-6)
    mask = ROWS - 1
    tensors = {
        "fc.weight": noise(HIDDEN, len(taps) * HIDDEN),
        "hidden_norm.weight": ones(HIDDEN),
        "norm.weight": ones(HIDDEN),
    }
    if second:
        tensors["candidate_selector.predecessor_codebook"] = normed.bfloat16()
        tensors["candidate_selector.successor_codebook"] = (3 * after).bfloat16()
        # About 1 for the state of a masked row, which layers change a little.
        gate = torch.ones(HIDDEN, 1) * normed[mask] / HIDDEN
        tensors["candidate_selector.hidden_projection.weight"] = gate.bfloat16()
    layers = 2
    for layer in range(layers):
        parts = {
            "self_attn.q_proj.weight": noise(heads * width, HIDDEN),
            "self_attn.k_proj.weight": noise(kv_heads * width, HIDDEN),
            "self_attn.v_proj.weight": noise(kv_heads * width, HIDDEN),
            "self_attn.o_proj.weight": noise(HIDDEN, heads * width, scale=0.01),
            "self_attn.q_norm.weight": ones(width),
            "self_attn.k_norm.weight": ones(width),
            "input_layernorm.weight": ones(HIDDEN),
            "post_attention_layernorm.weight": ones(HIDDEN),
            "mlp.gate_proj.weight": noise(inner, HIDDEN),
            "mlp.up_proj.weight": noise(inner, HIDDEN),
            "mlp.down_proj.weight": noise(HIDDEN, inner, scale=0.01),
        }
        for conv in ("attention_conv", "mlp_conv") if second else ():
            parts[f"{conv}.base_kernel"] = noise(2, kernel, HIDDEN, scale=0.3)
            parts[f"{conv}.kernel_projection.weight"] = noise(2 * kernel * HIDDEN // group, HIDDEN)
        tensors.update({f"layers.{layer}.{name}": tensor for name, tensor in parts.items()})
    first = "sliding_attention" if window else "full_attention"
    config = {
        "architectures": ["DFlash2DraftModel" if second else "DFlashDraftModel"],
        "model_type": "qwen3",
        "vocab_size": ROWS,
        "hidden_size": HIDDEN,
        "intermediate_size": inner,
        "hidden_act": "silu",
        "num_hidden_layers": layers,
        "layer_types": [first, "full_attention"],
        "sliding_window": window or None,
        "is_causal": False,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 1024,
        "block_size": BLOCK,
        "dflash_config": {
            "mask_token_id": mask,
            "target_layer_ids": list(taps),
            "tap_shift": 0,  # of DFlash: its layers are numbered as here
            "selector_rank": HIDDEN,
            "selector_top_k": ROWS,
            "conv_kernel_size": kernel,
            "conv_group_size": group,
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
