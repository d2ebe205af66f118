"""Torch stand-ins for exllamav3's Gated DeltaNet operators: scan, convolution and their rewind.

With them its Python code for hybrid models runs on a CPU: the two rows of state per sequence,
the staged inputs of a speculative pass and their replay. Its kernels are not tested by this.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.nn.functional import silu, softplus


def gated_delta_net_fused_op_2(
    b: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    a_log: torch.Tensor,
    beta: torch.Tensor,
    g: torch.Tensor,
    beta_scale: float,
) -> None:
    beta.copy_(b.float().sigmoid() * beta_scale)
    g.copy_(-a_log.float().exp() * softplus(a.float() + dt_bias.float()))


def gated_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    gate: torch.Tensor,
    eps: float,
    bias: float,
    groups: int,
    gate_first: bool,
    activation: int,
) -> None:
    if groups != 1 or gate_first or activation:
        raise NotImplementedError("gated_rms_norm with groups has no CPU stand-in.")
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    out.copy_(normed * (weight.float() + bias) * silu(gate.float()).view_as(normed))


def cuda_recurrent_gated_delta_rule(
    mixed: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    out: torch.Tensor,
    k_heads: int,
    v_heads: int,
    k_width: int,
    v_width: int,
    rows: torch.Tensor | None,
    history: bool,
    rows_in: torch.Tensor | None,
) -> None:
    """Scan [batch, n, channels]; with history it reads other rows of state than it writes."""
    for text in range(len(mixed)):
        row = int(rows[text]) if rows is not None else text
        base = int(rows_in[text]) if history and rows_in is not None else row
        said, states[row, 0] = scan(
            mixed[text], g[text], beta[text], states[base, 0], k_heads, k_width, v_width
        )
        out[text] = said


def scan(
    mixed: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    k_heads: int,
    k_width: int,
    v_width: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gated delta rule token by token: outputs [n, v heads, width] and the last state."""
    n, v_heads = g.shape
    keys = k_heads * k_width
    q, k, v = mixed.float().split([keys, keys, v_heads * v_width], -1)

    def normed(part: torch.Tensor) -> torch.Tensor:
        heads = part.view(n, k_heads, k_width).repeat_interleave(v_heads // k_heads, 1)
        return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + 1e-6)

    q, k, v = normed(q) * k_width**-0.5, normed(k), v.view(n, v_heads, v_width)
    wide, said = state.float(), []
    for t in range(n):
        wide = wide * g[t].float().exp()[:, None, None]
        remembered = (wide * k[t][:, :, None]).sum(1)
        change = (v[t] - remembered) * beta[t].float()[:, None]
        wide = wide + k[t][:, :, None] * change[:, None]
        said.append((wide * q[t][:, :, None]).sum(1))
    return torch.stack(said), wide


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor | None,
    output_final_state: bool,
    use_qk_l2norm_in_kernel: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What longer passes call, for one text."""
    mixed = torch.cat([part[0].flatten(1) for part in (q, k, v)], -1)
    k_heads, k_width, v_width = q.shape[2], q.shape[3], v.shape[3]
    if initial_state is None:
        initial_state = torch.zeros(1, v.shape[2], k_width, v_width)
    said, last = scan(mixed, g[0], beta[0], initial_state[0], k_heads, k_width, v_width)
    return said[None].to(v.dtype), last[None]


def slotted_conv(
    x: torch.Tensor,
    ring: torch.Tensor,
    slots: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    transpose_output: bool = False,
    history: bool = False,
    token_major: bool = False,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """A causal convolution whose window lies in the first columns of a ring.

    With history the ring keeps the last inputs at its end, so that they can be stepped back.
    """
    texts = x.transpose(1, 2) if token_major else x
    width, out = weight.shape[-1], []
    for text, slot in zip(texts, slots.tolist(), strict=True):
        line = torch.cat([ring[slot, :, :width].float(), text.float()], -1)
        n = text.shape[-1]
        windows = line[:, 1:].unfold(-1, width, 1)[:, :n]
        said = (windows * weight.float()[:, None]).sum(-1)
        out.append(silu(said + bias.float()[:, None] if bias is not None else said))
        if history:
            kept = line[:, -min(ring.shape[-1], line.shape[-1]) :]
            ring[slot, :, ring.shape[-1] - kept.shape[-1] :] = kept.to(ring.dtype)
        else:
            ring[slot, :, :width] = line[:, -width:].to(ring.dtype)
    result = torch.stack(out).to(out_dtype or x.dtype)
    return result.transpose(1, 2).contiguous() if transpose_output else result


class ConvRewindJob(NamedTuple):
    """Addresses, as the library computes them."""

    source: int
    target: int
    channels: int
    width: int
    stride: int


class ScanReplayJob(NamedTuple):
    """Addresses, as the library computes them."""

    mixed: int
    g: int
    beta: int
    base: int
    scratch: int
    skip: int
    tokens: int
    stride: int


def batched_conv_rewind(jobs: list[ConvRewindJob], device: int | None) -> None:
    for job in jobs:
        count = (job.channels - 1) * job.stride + job.width
        source, target = (memory(at, count, torch.bfloat16) for at in (job.source, job.target))
        shape, strides = (job.channels, job.width), (job.stride, 1)
        kept = source.as_strided(shape, strides).clone()  # the two overlap
        target.as_strided(shape, strides).copy_(kept)


def batched_scan_replay(
    jobs: list[ScanReplayJob],
    device: int | None,
    kind: int,
    k_heads: int,
    v_heads: int,
    k_width: int,
    v_width: int,
    half: bool,
) -> None:
    channels = 2 * k_heads * k_width + v_heads * v_width
    shape = v_heads, k_width, v_width
    size = v_heads * k_width * v_width
    dtype = torch.half if half else torch.float
    for job in jobs:
        if kind != 0 or job.stride != 1:
            raise NotImplementedError("Only Gated DeltaNet passes of whole drafts stand in.")
        n = job.tokens
        mixed = memory(job.mixed, n * channels, torch.bfloat16).view(n, channels)
        g = memory(job.g, n * v_heads, torch.float).view(n, v_heads)
        beta = memory(job.beta, n * v_heads, torch.bfloat16).view(n, v_heads)
        base = memory(job.base, size, dtype).view(shape)
        _, last = scan(mixed, g, beta, base, k_heads, k_width, v_width)
        memory(job.scratch, size, dtype).view(shape).copy_(last)


def memory(address: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over memory that the library names by its address."""
    held = (ctypes.c_byte * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(held, dtype=dtype)


def fla() -> ModuleType:
    """In place of the library's vendored Triton kernels."""
    module: Any = ModuleType("exllamav3.vendor.fla")
    module.chunk_gated_delta_rule = chunk_gated_delta_rule
    return module


OPERATORS: tuple[Callable[..., Any], ...] = (
    gated_delta_net_fused_op_2,
    gated_rms_norm,
    cuda_recurrent_gated_delta_rule,
    ConvRewindJob,
    ScanReplayJob,
    batched_conv_rewind,
    batched_scan_replay,
)
