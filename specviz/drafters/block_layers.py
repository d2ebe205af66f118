"""Layers of a DFlash block: attention to the text and within the block, convolutions, MLP.

The modules are named as in z-lab's checkpoints, so that these load as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class BlockConfig:
    """Sizes of a DFlash network.

    Attributes
    ----------
    hidden, layers, heads, kv_heads, head_dim, inner, eps, rope_theta, bias
        As in any decoder; `bias` is of the attention's projections.
    block
        Rows of a block, the anchor's included: a draft has block - 1 tokens.
    mask_token
        Token id that stands for a token to be guessed.
    target_layers
        Layers of the target whose output is fused, counted from 0.
    target_depth
        How many layers the target has.
    kernel, group, rank, candidates
        Of DFlash2: length of the convolutions, channels that share a kernel, width of the
        selector and how many tokens of a row it chooses among. All 0 in DFlash.
    windows, causal
        Per layer: how far it sees (0 is everything), and whether rows see later rows of their
        block.
    embedding_scale, logit_scale, softcap
        Factors of what enters and of what is said; `softcap` 0 is none.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    block: int
    mask_token: int
    target_layers: tuple[int, ...]
    target_depth: int
    eps: float = 1e-6
    rope_theta: float = 10_000.0
    bias: bool = False
    kernel: int = 0
    group: int = 0
    rank: int = 0
    candidates: int = 0
    windows: tuple[int, ...] = ()
    causal: tuple[bool, ...] = ()
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    softcap: float = 0.0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> BlockConfig:
        """From what JSON made of one."""
        lists = {name: tuple(v) for name, v in settings.items() if isinstance(v, (list, tuple))}
        return cls(**{**settings, **lists})

    def __post_init__(self) -> None:
        for name in ("windows", "causal"):
            if len(getattr(self, name)) not in (0, self.layers):
                raise ValueError(f"{name} has one entry per layer, {self.layers}.")
        if self.block < 2:
            raise ValueError(f"A block of {self.block} rows has no room for a drafted token.")
        if self.kernel and self.hidden % self.group:
            raise ValueError(f"Groups of {self.group} do not divide {self.hidden} channels.")

    @property
    def second(self) -> bool:
        """Whether it is a DFlash2: it has a selector and convolutions."""
        return self.rank > 0


class Attention(nn.Module):
    """Grouped-query attention of blocks, to the text before them and to themselves."""

    def __init__(self, config: BlockConfig, index: int) -> None:
        super().__init__()
        self.head_dim, self.kv_heads = config.head_dim, config.kv_heads
        self.theta = config.rope_theta
        self.window = config.windows[index] if config.windows else 0
        self.causal = bool(config.causal and config.causal[index])
        wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden, wide, bias=config.bias)
        self.k_proj = nn.Linear(config.hidden, narrow, bias=config.bias)
        self.v_proj = nn.Linear(config.hidden, narrow, bias=config.bias)
        self.o_proj = nn.Linear(wide, config.hidden, bias=config.bias)
        self.q_norm = nn.RMSNorm(config.head_dim, config.eps)
        self.k_norm = nn.RMSNorm(config.head_dim, config.eps)

    def remember(
        self, rows: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [..., kv_heads, n, head_dim] of rows [..., n, hidden]."""
        key = self.k_norm(self._heads(self.k_proj(rows)))
        turned = rotated(key, positions[..., None], self.theta)
        return turned.transpose(-2, -3), self._heads(self.v_proj(rows)).transpose(-2, -3)

    def forward(
        self,
        stream: torch.Tensor,
        places: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        sees: torch.Tensor,
    ) -> torch.Tensor:
        """Attend from blocks [batch, blocks, rows, hidden] at places [batch, blocks, rows].

        `key` and `value` [batch, kv_heads, tokens, head_dim] are the text's; `sees` is a bool
        [batch, blocks, rows, tokens + rows].
        """
        query = self.q_norm(self._heads(self.q_proj(stream)))
        query = rotated(query, places[..., None], self.theta)
        # n text, a block, i row, h kv head, g query head of its group, d channel
        query = query.unflatten(-2, (self.kv_heads, -1)).permute(0, 3, 4, 1, 2, 5)
        own_key, own_value = (part.transpose(1, 2) for part in self.remember(stream, places))
        shape = query.shape[2:5]
        text = (query.flatten(2, 4) @ key.transpose(-1, -2)).unflatten(2, shape)
        own = torch.einsum("nhgaid,nhajd->nhgaij", query, own_key)
        scores = torch.cat([text, own], -1) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(~sees[:, None, None], -torch.inf)
        full = torch.promote_types(scores.dtype, torch.float32)
        weights = scores.softmax(-1, dtype=full).to(value.dtype)
        tokens = key.shape[2]
        found = (weights[..., :tokens].flatten(2, 4) @ value).unflatten(2, shape)
        found = found + torch.einsum("nhgaij,nhajd->nhgaid", weights[..., tokens:], own_value)
        out: torch.Tensor = self.o_proj(found.permute(0, 3, 4, 1, 2, 5).flatten(3))
        return out

    def sees(
        self, seen: torch.Tensor, places: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """`seen` [batch, blocks, tokens] widened to what this layer's rows attend to."""
        rows = places.shape[-1]
        text = seen[:, :, None].expand(-1, -1, rows, -1)
        apart = torch.arange(rows, device=places.device)
        apart = apart[:, None] - apart
        own = apart >= 0 if self.causal else torch.ones_like(apart, dtype=torch.bool)
        if self.window:
            text = text & (places[..., None] - positions[:, None, None] < self.window)
            own = own & (apart.abs() < self.window)
        return torch.cat([text, own.expand(*places.shape, rows)], -1)

    def begin_as_large_as(self, rows: torch.Tensor) -> None:
        """Let the norms keep the usual size that queries and keys have of such rows [n, hidden],
        when the projections come from a layer without norms."""
        for norm, wide in ((self.q_norm, self.q_proj(rows)), (self.k_norm, self.k_proj(rows))):
            norm.weight.fill_(self._heads(wide).square().mean(-1).sqrt().mean())

    def _heads(self, wide: torch.Tensor) -> torch.Tensor:
        return wide.unflatten(-1, (-1, self.head_dim))


class Convolution(nn.Module):
    """A causal convolution along the block before a module, and another one after it.

    Channels of a group share the part of the kernel that depends on the row.
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.length, self.group = config.kernel, config.group
        groups = config.hidden // config.group
        # At first a row stays what it is.
        start = torch.zeros(2, config.kernel, config.hidden)
        start[:, 0] = 1
        self.base_kernel = nn.Parameter(start)
        self.kernel_projection = nn.Linear(config.hidden, 2 * config.kernel * groups, bias=False)
        nn.init.zeros_(self.kernel_projection.weight)

    def kernels(self, rows: torch.Tensor) -> torch.Tensor:
        """The kernels [2, length, ..., hidden] of rows [..., hidden]."""
        groups = rows.shape[-1] // self.group
        own = self.kernel_projection(rows).unflatten(-1, (2, self.length, groups))
        own = own.movedim((-3, -2), (0, 1)).repeat_interleave(self.group, -1)
        base = self.base_kernel.to(rows.dtype)
        kernels: torch.Tensor = own + base[(..., *[None] * (rows.dim() - 1), slice(None))]
        return kernels

    @staticmethod
    def along(rows: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        """Rows [..., n, hidden] under a kernel [length, ..., n, hidden]."""
        out = kernel[0] * rows
        for back in range(1, len(kernel)):
            earlier = nn.functional.pad(rows, (0, 0, back, 0))[..., : rows.shape[-2], :]
            out = out + kernel[back] * earlier
        return out


class MLP(nn.Module):
    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.inner, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.inner, bias=False)
        self.down_proj = nn.Linear(config.inner, config.hidden, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(
            nn.functional.silu(self.gate_proj(rows)) * self.up_proj(rows)
        )
        return out


class Layer(nn.Module):
    def __init__(self, config: BlockConfig, index: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, index)
        self.mlp = MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden, config.eps)
        self.attention_conv = Convolution(config) if config.second else None
        self.mlp_conv = Convolution(config) if config.second else None

    def forward(self, stream: torch.Tensor, *attended: torch.Tensor) -> torch.Tensor:
        stream = stream + _around(
            self.attention_conv,
            self.input_layernorm(stream),
            lambda rows: self.self_attn(rows, *attended),
        )
        return stream + _around(self.mlp_conv, self.post_attention_layernorm(stream), self.mlp)


def _around(conv: Convolution | None, rows: torch.Tensor, module: Any) -> torch.Tensor:
    if conv is None:
        out: torch.Tensor = module(rows)
        return out
    before, after = conv.kernels(rows)
    return conv.along(module(conv.along(rows, before)), after)


def rotated(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary embedding of x [..., head_dim] at positions [...], halves paired."""
    half = x.shape[-1] // 2
    steps = torch.arange(0, 2 * half, 2, device=x.device).float() / (2 * half)
    angle = positions[..., None].float() * (1 / theta**steps)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
