"""A tiny random hybrid checkpoint with an MTP head, in the layout of Qwen3.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from tests.exl3.models import HIDDEN, MIXING, ROWS
from tests.models import VOCAB, tokenizer

HEADS, KV_HEADS, WIDTH, INNER = 4, 2, 32, 2 * HIDDEN
VISION = {
    "depth": 1,
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "num_position_embeddings": 16,
    "out_hidden_size": HIDDEN,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "deepstack_visual_indexes": [],
}
PICTURES = {
    "size": {"shortest_edge": 1, "longest_edge": 1000},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "image_processor_type": "Qwen2VLImageProcessorFast",
}


def write_hybrid(folder: Path, seed: int = 3, hybrid: bool = True) -> Any:
    """Write three Gated DeltaNet layers and one of attention; returns the same model in fp32.

    Without `hybrid` there are two layers of attention.
    """
    torch.manual_seed(seed)
    kinds = ["linear_attention"] * 3 + ["full_attention"] if hybrid else ["full_attention"] * 2
    text = {
        "vocab_size": ROWS,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 1024,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "rope_parameters": {
            "rope_theta": 10000.0,
            "rope_type": "default",
            "partial_rotary_factor": 1.0,
            "mrope_section": [6, 5, 5],
        },
        "eos_token_id": VOCAB - 1,
    }
    config = Qwen3_5Config(text_config=text, vision_config=VISION, tie_word_embeddings=False)
    config.eos_token_id = VOCAB - 1
    model: Any = Qwen3_5ForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "visual" not in name:
                parameter.mul_(5.0)
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                parameter.mul_(MIXING / 4)
        model.get_input_embeddings().weight.mul_(8.0)
        model.lm_head.weight.mul_(3.0)
    model.bfloat16()  # the checkpoint's precision; norms and gates are widened when loaded
    model.save_pretrained(folder)
    save_file(_mtp(seed + 1), folder / "mtp.safetensors")
    written = json.loads((folder / "config.json").read_text())
    written["text_config"]["mtp_num_hidden_layers"] = 1
    written["vocab_size"] = ROWS
    (folder / "config.json").write_text(json.dumps(written))
    (folder / "preprocessor_config.json").write_text(json.dumps(PICTURES))
    tokenizer().save_pretrained(folder)
    return model.float().eval()


def _mtp(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int, scale: float = 0.12) -> torch.Tensor:
        return (scale * torch.randn(shape, generator=generator)).bfloat16()

    def zeros(size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.bfloat16)

    layer = {
        "self_attn.q_proj.weight": noise(2 * HEADS * WIDTH, HIDDEN),
        "self_attn.k_proj.weight": noise(KV_HEADS * WIDTH, HIDDEN),
        "self_attn.v_proj.weight": noise(KV_HEADS * WIDTH, HIDDEN),
        "self_attn.o_proj.weight": noise(HIDDEN, HEADS * WIDTH, scale=0.02),
        "self_attn.q_norm.weight": zeros(WIDTH),
        "self_attn.k_norm.weight": zeros(WIDTH),
        "input_layernorm.weight": zeros(HIDDEN),
        "post_attention_layernorm.weight": zeros(HIDDEN),
        "mlp.up_proj.weight": noise(INNER, HIDDEN),
        "mlp.gate_proj.weight": noise(INNER, HIDDEN),
        "mlp.down_proj.weight": noise(HIDDEN, INNER, scale=0.02),
    }
    # The token's own embedding passes, the state before it a little: mostly the next token.
    fc = torch.cat([torch.eye(HIDDEN).bfloat16(), noise(HIDDEN, HIDDEN, scale=0.03)], 1)
    whole = {
        "fc.weight": fc,
        "norm.weight": zeros(HIDDEN),
        "pre_fc_norm_hidden.weight": zeros(HIDDEN),
        "pre_fc_norm_embedding.weight": zeros(HIDDEN),
    }
    tensors = whole | {f"layers.0.{name}": tensor for name, tensor in layer.items()}
    return {f"mtp.{name}": tensor for name, tensor in tensors.items()}
