"""Torch stand-ins for exllamav3's compiled operators, so that its Python code runs on a CPU.

What runs on them is exllamav3's Python code with CPU operator stand-ins: its loader, its walk
over the modules, its paged cache and its DFlash2 drafter. Its CUDA and Triton kernels, its
quantised weights and its speed are not tested by anything that uses this file.

An operator that has no stand-in raises NotImplementedError with its name when it is called.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from tests.exl3 import generator_stand_ins, quantised_stand_ins, recurrent_stand_ins

VERSION = "1.6.5"
#: exllamav3 decorates kernels with these at import; none of those kernels is called.
TRITON = ("triton", "triton.language", "triton.language.extra", "triton.language.extra.libdevice")


def why_not() -> str | None:
    """Why these tests cannot run here, or None. Imports nothing."""
    if importlib.util.find_spec("exllamav3") is None:
        return f"exllamav3 is not installed: pip install --no-deps exllamav3=={VERSION} pillow"
    found = importlib.metadata.version("exllamav3")
    return None if found == VERSION else f"exllamav3 {found} is installed, not {VERSION}"


@contextmanager
def installed() -> Iterator[ModuleType]:
    """Import exllamav3 on the stand-ins; afterwards every module is as it was.

    Raises
    ------
    RuntimeError
        When this process has imported exllamav3 already: the stand-ins would come too late.
    """
    if any(_belongs(name) for name in sys.modules):
        raise RuntimeError("exllamav3 is already imported: its stand-ins must come first.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXL3_EXPANDABLE_SEGMENTS", "0")  # leave torch's allocator alone
        patch.setenv("ROCPROFILER_REGISTER_ENABLED", "0")  # or the import would leave it set
        generator_stand_ins.unpinned(patch)
        for name in TRITON:
            patch.setitem(sys.modules, name, _triton(name))
        patch.setitem(sys.modules, "exllamav3_ext", _extension())
        try:
            import exllamav3
            from exllamav3.modules import sliding_attn
            from exllamav3.modules.attention_fn import dispatch
            from exllamav3.modules.gated_delta_net_fn import conv1d

            dispatch.attn_fns.insert(0, paged_attention)
            dispatch._fns_qc.insert(0, quantised_stand_ins.attention_over(attend))
            sliding_attn.paged_attn_triton_decode = sliding_attention
            conv1d.causal_conv1d_update_slotted_triton = recurrent_stand_ins.slotted_conv
            sys.modules["exllamav3.vendor.fla"] = recurrent_stand_ins.fla()
            yield exllamav3
        finally:
            for name in [name for name in sys.modules if _belongs(name)]:
                del sys.modules[name]


def _belongs(name: str) -> bool:
    return name == "exllamav3" or name.startswith("exllamav3.")


def _triton(name: str) -> MagicMock:
    module = MagicMock(name=name)
    module.__spec__ = ModuleSpec(name, None)
    return module


class _Extension(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("HAS_"):
            return False
        if name.startswith("BC_"):  # handles that hold pointers for captured graphs
            return type(name, (), {"__init__": lambda self, *args: None})

        def missing(*args: Any) -> None:
            raise NotImplementedError(f"exllamav3_ext.{name} has no CPU stand-in.")

        return missing


def _extension() -> ModuleType:
    module = _Extension("exllamav3_ext")
    # exllamav3 takes a compiled file for the extension; anything else it would compile itself.
    module.__spec__ = ModuleSpec(
        "exllamav3_ext", MagicMock(), origin="stand-ins" + EXTENSION_SUFFIXES[0]
    )
    for operator in OPERATORS:
        setattr(module, operator.__name__, operator)
    return module


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    eps: float,
    bias: float,
    scale: float,
    span_heads: bool = False,
    add: bool = False,
    groups: int = 1,
) -> None:
    if span_heads or groups != 1:
        raise NotImplementedError("rms_norm over heads or groups has no CPU stand-in.")
    normed = _normed(x, weight, eps, bias) * scale
    out.copy_(out.float() + normed if add else normed)


def rms_norm_res_in(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    residual: torch.Tensor,
    eps: float,
    bias: float,
    scale: float,
) -> None:
    residual += x.to(residual.dtype)
    rms_norm(residual, weight, out, eps, bias, scale)


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float, bias: float) -> torch.Tensor:
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * (weight.float() + bias)


def hgemm(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(left.float() @ right.float())


def silu_mul(gate: torch.Tensor, up: torch.Tensor, out: torch.Tensor, limit: float) -> None:
    if limit:
        raise NotImplementedError("silu_mul with a limit has no CPU stand-in.")
    out.copy_(silu(gate.float()) * up.float())


def rope(
    q: torch.Tensor,
    q_out: torch.Tensor,
    k: torch.Tensor | None,
    k_out: torch.Tensor | None,
    frequencies: torch.Tensor,
    position: int,
    positions: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    style: int,
    attention_factor: float,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    bias: float,
    *rest: float,
) -> None:
    """Rotate halves (the NeoX style), after the norm over a head where there is one."""
    if position_ids is not None or rest[0]:
        raise NotImplementedError("rope by position ids or with scaling has no CPU stand-in.")
    batch, n = q.shape[:2]
    start = positions if positions is not None else torch.full((batch,), position)
    place = start[:, None] + torch.arange(n)
    angle = place[..., None, None] * frequencies.float()
    cos, sin = angle.cos() * attention_factor, angle.sin() * attention_factor
    for states, norm, out in ((q, q_norm, q_out), (k, k_norm, k_out)):
        if states is None or out is None:
            continue
        wide = states.float() if norm is None else _normed(states, norm, eps, bias)
        first, second = wide.chunk(2, -1)
        out.copy_(torch.cat([first * cos - second * sin, second * cos + first * sin], -1))


def paged_kv_cache_update(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    pages: torch.Tensor,
    lengths: torch.Tensor,
) -> None:
    """Write new keys and values [batch, n, heads, width] behind `lengths`."""
    size = k_cache.shape[1]
    for row, length in enumerate(lengths.tolist()):
        slot = torch.arange(length, length + k.shape[1])
        where = pages[row, slot // size].long(), slot % size
        k_cache[where], v_cache[where] = k[row], v[row]


def paged_attention(args: Any) -> torch.Tensor | None:
    """Attention over a paged fp16 cache, in fp32; None leaves the call to other functions."""
    special = args.is_varlen() or args.non_causal_spans or args.softcap
    if special or args.sinks is not None or not args.has_kv_cache():
        return None
    paged_kv_cache_update(
        args.k, args.v, args.k_cache, args.v_cache, args.block_table, args.cache_seqlens
    )
    size, n, attended = args.k_cache.shape[1], args.q_len, []
    for row, length in enumerate(args.cache_seqlens.tolist()):
        slot = torch.arange(length + n)
        where = args.block_table[row, slot // size].long(), slot % size
        attended.append(attend(args, row, length, args.k_cache[where], args.v_cache[where]))
    return torch.stack(attended).to(args.q.dtype)


def sliding_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    pages: torch.Tensor,
    lengths: torch.Tensor,
    *,
    causal: bool,
    softmax_scale: float,
    window_size: tuple[int, int],
    softcap: float,
    sinks: torch.Tensor | None,
    max_kv_len: int,
) -> torch.Tensor:
    """Attention in a window over a ring of pages, which takes the new keys and values first."""
    if softcap or sinks is not None:
        raise NotImplementedError("Sliding attention with a cap or sinks has no CPU stand-in.")
    paged_kv_cache_update(k, v, k_cache, v_cache, pages, lengths)
    size, n, attended = k_cache.shape[1], q.shape[1], []
    for row, length in enumerate(lengths.tolist()):
        slot = torch.arange(length + n)
        where = pages[row, slot // size].long(), slot % size
        visible = seen(length, length + n, causal, window_size)
        parts = (
            part.float().transpose(0, 1)[None] for part in (q[row], k_cache[where], v_cache[where])
        )
        out = scaled_dot_product_attention(
            *parts, attn_mask=visible, scale=softmax_scale, enable_gqa=True
        )
        attended.append(out[0].transpose(0, 1))
    return torch.stack(attended).to(q.dtype)


def seen(length: int, end: int, causal: bool, window: tuple[int, int]) -> torch.Tensor:
    """Which keys the queries behind `length` tokens see; a window of -1 has no bounds."""
    ahead = torch.arange(end) - torch.arange(length, end)[:, None]
    bounded = window[0] >= 0
    if causal or bounded:
        behind = ahead <= (0 if causal else window[1])
        return behind & (-ahead <= window[0]) if bounded else behind
    return torch.ones_like(ahead, dtype=torch.bool)


def attend(
    args: Any, row: int, length: int, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """One text's new queries, behind `length` tokens, over all its keys and values."""
    visible = seen(length, len(keys), args.causal, args.get_window_size())
    q, k, v = (states.float().transpose(0, 1)[None] for states in (args.q[row], keys, values))
    out = scaled_dot_product_attention(
        q, k, v, attn_mask=visible, scale=args.sm_scale, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def deinterleave_qg(mixed: torch.Tensor, q: torch.Tensor, gate: torch.Tensor, width: int) -> None:
    """Queries and output gates that share one projection."""
    batch, n = mixed.shape[:2]
    both = mixed.view(batch, n, -1, 2 * width)
    q.copy_(both[..., :width].reshape(q.shape))
    gate.copy_(both[..., width:].reshape(gate.shape))


def mul_sigmoid_(values: torch.Tensor, gate: torch.Tensor) -> None:
    values.copy_(values.float() * gate.float().sigmoid())


def exl3_moe_cpu_set_memops(memops: int) -> None:
    """Called while exllamav3 is imported; there is nothing to set."""


OPERATORS: tuple[Callable[..., Any], ...] = (
    rms_norm,
    rms_norm_res_in,
    hgemm,
    silu_mul,
    rope,
    paged_kv_cache_update,
    deinterleave_qg,
    mul_sigmoid_,
    exl3_moe_cpu_set_memops,
    *generator_stand_ins.OPERATORS,
    *quantised_stand_ins.OPERATORS,
    *recurrent_stand_ins.OPERATORS,
)
