"""Sizes of a model from its config.json: layers, matrices, what a token leaves in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specviz.analysis.serving.memory import KVShape
from specviz.refuse import above_0, shown, whole


@dataclass(frozen=True)
class ModelShape:
    """What memory is counted from.

    Attributes
    ----------
    kinds
        Per layer, as the config names it: full_attention, linear_attention, sliding_attention.
    layer_params
        Weights of each layer's matrices.
    linear
        Of Gated DeltaNet layers: key heads, value heads, key width, value width, convolution.
    """

    hidden: int
    inner: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    kinds: tuple[str, ...]
    layer_params: tuple[int, ...]
    linear: tuple[int, int, int, int, int]
    embedding_params: int
    head_params: int
    mtp_params: int

    @property
    def layers(self) -> int:
        return len(self.kinds)

    @property
    def attends(self) -> tuple[bool, ...]:
        """Which layers keep keys and values."""
        return tuple(kind != "linear_attention" for kind in self.kinds)

    @property
    def params(self) -> int:
        """All of the target's weights but norms; a head that is tied counts once."""
        return sum(self.layer_params) + self.embedding_params + self.head_params

    def kv(self, value_bytes: float, layers: int | None = None) -> KVShape | None:
        """What one token leaves in the caches of attention; None without such layers."""
        count = sum(self.attends) if layers is None else layers
        return KVShape(count, self.kv_heads, self.head_dim, value_bytes) if count else None

    def recurrent_bytes(self, rows: int, sequences: int = 2) -> float:
        """One Gated DeltaNet layer's state in exllamav3, with room to step `rows` tokens back.

        Two fp16 rows of state, a bf16 ring of the convolution's inputs, and staged inputs. The
        ring has the rows behind the convolution's window, so that a pass can be undone whole.
        """
        k_heads, v_heads, k_width, v_width, conv = self.linear
        channels, history = 2 * k_heads * k_width + v_heads * v_width, conv + rows
        state = 2 * v_heads * k_width * v_width * 2
        ring = channels * (conv + history) * 2
        staged = (history + 1) * (channels * 2 + v_heads * 2 + v_heads * 4)
        return float(sequences * (state + ring + staged))


def model_shape(config: Mapping[str, Any]) -> ModelShape:
    """Read the sizes of a dense, mixture-of-experts or hybrid decoder.

    Raises
    ------
    ValueError
        When a size is missing or no whole number; the sentence names it.

    Examples
    --------
    >>> shape = model_shape({"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152,
    ...     "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
    ...     "tie_word_embeddings": True})
    >>> round(shape.params / 1e6), shape.kv(4).bytes_per_token
    (134, 46080.0)
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"A config is a mapping, as json.load gives it, not {config!r:.60}.")
    text: Mapping[str, Any] = config.get("text_config") or config

    def size(name: str, default: int | None = None) -> int:
        value = text.get(name)
        if value is None and default is None:
            raise ValueError(f"This config has no {name}: it is not that of a decoder model.")
        return whole(name, default if value is None else value, 1)

    hidden, layers, vocab = size("hidden_size"), size("num_hidden_layers"), size("vocab_size")
    heads = size("num_attention_heads")
    kv_heads, head_dim = size("num_key_value_heads", heads), size("head_dim", hidden // heads)
    linear = (
        size("linear_num_key_heads", 16),
        size("linear_num_value_heads", 32),
        size("linear_key_head_dim", 128),
        size("linear_value_head_dim", 128),
        size("linear_conv_kernel_dim", 4),
    )
    kinds = _kinds(text, layers)
    gated = 2 if "linear_attention" in kinds or text.get("attn_output_gate") else 1
    attention = hidden * head_dim * ((gated + 1) * heads + 2 * kv_heads)
    k_heads, v_heads, k_width, v_width, conv = linear
    channels = 2 * k_heads * k_width + v_heads * v_width
    delta = hidden * (channels + 2 * v_heads * v_width + 2 * v_heads) + channels * conv
    inner, block = _mlp(text, hidden, size)
    params = tuple((delta if kind == "linear_attention" else attention) + block for kind in kinds)
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    heads_of = int(text.get("mtp_num_hidden_layers") or 0)
    return ModelShape(
        hidden,
        inner,
        vocab,
        heads,
        kv_heads,
        head_dim,
        kinds,
        params,
        linear,
        0 if tied else vocab * hidden,
        vocab * hidden,
        heads_of * (attention + block) + (2 * hidden**2 if heads_of else 0),
    )


def quantisation(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config's quantization_config, {} without one; its bits, where it names them, are numbers.

    Raises
    ------
    ValueError
        When it is no mapping, or bits are no number above 0.
    """
    found = config.get("quantization_config") or {}
    if not isinstance(found, Mapping):
        raise ValueError(
            f"quantization_config is a mapping in a model's config, not {shown(found)}: download "
            "the config again."
        )
    for name in ("bits", "head_bits"):
        if found.get(name) is not None:
            above_0(f"quantization_config's {name}", found[name])
    return found


def _kinds(text: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    given = text.get("layer_types")
    if given is not None:
        if len(given) != layers:
            raise ValueError(f"layer_types has {len(given)} entries for {layers} layers.")
        return tuple(str(kind) for kind in given)
    every = text.get("full_attention_interval")
    if every:
        return tuple(
            "full_attention" if (layer + 1) % int(every) == 0 else "linear_attention"
            for layer in range(layers)
        )
    window = text.get("sliding_window") and text.get("use_sliding_window", True)
    return ("sliding_attention" if window else "full_attention",) * layers


def _mlp(text: Mapping[str, Any], hidden: int, size: Any) -> tuple[int, int]:
    """Width of what is computed at once, and weights: dense, or all experts."""
    experts = text.get("num_experts") or text.get("num_local_experts")
    if not experts:
        inner = size("intermediate_size")
        return inner, 3 * hidden * inner
    inner = size("moe_intermediate_size", text.get("intermediate_size"))
    shared = int(text.get("shared_expert_intermediate_size") or 0)
    used = int(text.get("num_experts_per_tok") or 1)
    block = whole("num_experts", experts, 1) * (3 * hidden * inner + hidden) + 3 * hidden * shared
    return inner * used + shared, block
