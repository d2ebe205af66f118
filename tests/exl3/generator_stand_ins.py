"""What exllamav3's Generator needs of its extension and of CUDA, in torch on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch


def generator_stage_decode(
    arena: torch.Tensor,
    width: int,
    tables: list[torch.Tensor],
    lengths: list[int],
    offsets: list[int],
    batch_ids: torch.Tensor | None,
    texts: list[torch.Tensor],
    pages: list[torch.Tensor],
    places: list[int],
) -> None:
    """Lay page tables, lengths and, of plain steps, input tokens out for one forward."""
    batch = len(tables)
    arena[: batch * width].zero_()
    for row, table in enumerate(tables):
        n = min(table.numel(), width)
        arena[row * width : row * width + n] = table.view(-1)[:n]
        arena[batch * width + row] = lengths[row]
        if offsets:
            arena[batch * width + batch + row] = lengths[row] + offsets[row]
    for row, text in enumerate(texts):
        token = int(text[..., lengths[row]])
        assert batch_ids is not None
        batch_ids[row] = token
        pages[row][..., places[row]] = token


def count_match_tensor(left: torch.Tensor, right: torch.Tensor, most: int) -> int:
    n = min(most, left.shape[-1], right.shape[-1])
    return int((left[0, :n] == right[0, :n]).long().cumprod(0).sum())


def gumbel_noise_f16(logits: torch.Tensor, out: torch.Tensor, seed: int) -> None:
    out.copy_(logits.float() + _gumbel(logits, seed))


def gumbel_noise_f32(logits: torch.Tensor, out: torch.Tensor, seed: int) -> None:
    out.copy_(logits + _gumbel(logits, seed))


def gumbel_noise_log(probabilities: torch.Tensor, out: torch.Tensor, seed: int) -> None:
    out.copy_(probabilities.log() + _gumbel(probabilities, seed))


def _gumbel(like: torch.Tensor, seed: int) -> torch.Tensor:
    """One number per token from the seed, as the library's kernels have it (not the same ones)."""
    uniform = torch.rand(like.shape, generator=torch.Generator().manual_seed(seed))
    return -(-uniform.clamp(1e-20, 1 - 2**-24).log()).log()


class BC_SAM:
    """The longest suffix that occurred before, by looking everywhere."""

    def accept_tensor(self, text: torch.Tensor) -> tuple[int, int]:
        tokens = text[0].tolist()
        n, best = len(tokens), (0, 0)
        for length in range(1, min(n - 1, 32) + 1):
            suffix = tokens[n - length :]
            ends = range(n - 1, length - 1, -1)
            hit = next((end for end in ends if tokens[end - length : end] == suffix), None)
            if hit is None:
                break
            best = hit - length, hit
        return best


def unpinned(patch: pytest.MonkeyPatch) -> None:
    """Memory that cannot be pinned without CUDA, and no device to wait for."""
    for name in ("empty", "zeros", "empty_like"):
        patch.setattr(torch, name, _unpinned(getattr(torch, name)))
    patch.setattr(torch.cuda, "synchronize", lambda *args: None)
    patch.setenv("EXL3_FUSED_SAMPLER", "0")


def _unpinned(make: Any) -> Any:
    return lambda *args, pin_memory=False, **options: make(*args, **options)


OPERATORS: tuple[Callable[..., Any], ...] = (
    generator_stage_decode,
    count_match_tensor,
    gumbel_noise_f16,
    gumbel_noise_f32,
    gumbel_noise_log,
    BC_SAM,
)
