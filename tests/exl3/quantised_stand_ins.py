"""A quantised cache's operators in torch: groups of 32 values, rotated, scaled and rounded.

The grid is that of the library's kernels and the sizes are, too; the order of the bits within a
group is not. What is tested with it is the library's Python code for such a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

GROUP = 32


def quant_cache_paged(
    k: torch.Tensor,
    k_packed: torch.Tensor,
    k_scales: torch.Tensor,
    v: torch.Tensor,
    v_packed: torch.Tensor,
    v_scales: torch.Tensor,
    lengths: torch.Tensor,
    pages: torch.Tensor,
    size: int,
    n: int,
    compand: float,
    contiguous: bool,
) -> None:
    """Write new keys and values [batch, n, heads, width] behind `lengths`."""
    if compand or not contiguous:
        raise NotImplementedError("A companded or gathered quantised cache has no CPU stand-in.")
    for row, length in enumerate(lengths.tolist()):
        slot = torch.arange(length, length + n)
        where = pages[row, slot // size].long(), slot % size
        for states, packed, scales in ((k, k_packed, k_scales), (v, v_packed, v_scales)):
            packed[where], scales[where] = pack(states[row].flatten(1), packed.shape[-1])


def pack(values: torch.Tensor, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, width] as `words` integers per row, and a scale per group."""
    groups = values.float().unflatten(-1, (-1, GROUP)) @ rotation()
    bits = words // groups.shape[-2]
    scale, half = groups.abs().amax(-1, keepdim=True) + 1e-10, 2 ** (bits - 1)
    level = (groups / scale * half + half).floor().clamp(0, 2 * half - 1).long()
    each = (level[..., None] >> torch.arange(bits)) & 1
    word = (each.flatten(-2).unflatten(-1, (bits, GROUP)) << torch.arange(GROUP)).sum(-1)
    signed = torch.where(word < 2**31, word, word - 2**32)
    return signed.flatten(-2).int(), scale[..., 0].half()


def unpacked(packed: torch.Tensor, scales: torch.Tensor, bits: int) -> torch.Tensor:
    """[..., width] from what `pack` made."""
    word = packed.long().unflatten(-1, (-1, bits))
    each = ((word[..., None] >> torch.arange(GROUP)) & 1).flatten(-2)
    level = (each.unflatten(-1, (GROUP, bits)) << torch.arange(bits)).sum(-1)
    middle = (2 * level + 1) / 2**bits - 1
    return ((middle * scales.float()[..., None]) @ rotation().T).flatten(-2)


def rotation() -> torch.Tensor:
    """The Hadamard matrix of a group, its rows of length 1."""
    one = torch.ones(1, 1)
    while len(one) < GROUP:
        one = torch.cat([torch.cat([one, one], 1), torch.cat([one, -one], 1)])
    return one / GROUP**0.5


def attention_over(attend: Callable[..., torch.Tensor]) -> Callable[[Any], torch.Tensor | None]:
    """Attention that reads such a cache, which holds this call's keys and values already."""

    def quantised_attention(args: Any) -> torch.Tensor | None:
        if args.q_cache is None or args.is_swa() or args.softcap or args.sinks is not None:
            return None
        k, k_scales, v, v_scales, k_bits, v_bits = args.q_cache
        size, n, attended = k.shape[1], args.q_len, []
        for row, length in enumerate(args.cache_seqlens.tolist()):
            slot = torch.arange(length + n)
            where = args.block_table[row, slot // size].long(), slot % size
            shape = (length + n, args.num_kv_heads, args.dim)
            keys = unpacked(k[where], k_scales[where], k_bits).view(shape)
            values = unpacked(v[where], v_scales[where], v_bits).view(shape)
            attended.append(attend(args, row, length, keys, values))
        return torch.stack(attended).to(args.q.dtype)

    return quantised_attention


OPERATORS: tuple[Callable[..., Any], ...] = (quant_cache_paged,)
