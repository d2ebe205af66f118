"""The target as its own drafter: coarser weights, or some layers left out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from specviz.drafters.lm import LMDrafter
from specviz.engine.protocols import Target
from specviz.targets.slots import without_layers

GROUP = 32


class SelfQuant(LMDrafter):
    """The target with its linear weights rounded to a few bits.

    Symmetric round-to-nearest in groups of 32 input weights, scale = max|w| / (2^(bits-1) - 1).
    (Min-max rounding would reproduce a Q4_1 model exactly, and draft perfectly.) The head and
    the embeddings keep full precision; keys and values are the drafter's own.

    Parameters
    ----------
    bits
        Bits per weight, 2 to 8.

    Notes
    -----
    The rounded weights are stored and multiplied in the target's dtype: the *output* is that
    of a quantised model, the measured *cost* is not (`simulated_cost`).
    """

    simulated_cost = True

    def __init__(self, bits: int = 4, max_k: int = 15, name: str | None = None) -> None:
        if not 2 <= bits <= 8:
            raise ValueError(f"bits must be between 2 and 8, not {bits}.")
        self.bits = bits
        super().__init__(
            None,
            name=name or ("self-quant" if bits == 4 else f"self-quant-{bits}bit"),
            caption=f"the target with linear weights rounded to {bits} bits (cost simulated)",
            max_k=max_k,
        )
        self._of: Any = None

    def attach(self, target: Target) -> None:
        model = _model(target, self.name)
        if self._of is not model:
            self.model, self._of = quantised(model, self.bits), model
        super().attach(target)


class SelfSkip(LMDrafter):
    """The target with some decoder layers left out; weights are shared, not copied.

    Parameters
    ----------
    layers
        Indices of the layers to leave out.
    """

    def __init__(
        self, layers: Sequence[int] = (10, 14, 18, 22), max_k: int = 15, name: str = "self-skip"
    ) -> None:
        if len(layers) == 0:
            raise ValueError("self-skip needs at least one layer to leave out.")
        self.layers = tuple(sorted(set(layers)))
        shown = ", ".join(map(str, self.layers))
        super().__init__(None, name=name, caption=f"the target without layers {shown}", max_k=max_k)

    def attach(self, target: Target) -> None:
        model = _model(target, self.name)
        depth = len(model.get_decoder().layers)
        outside = [layer for layer in self.layers if not 0 <= layer < depth]
        if outside or len(self.layers) >= depth:
            raise ValueError(
                f"self-skip cannot leave out layer(s) {outside or self.layers}: {target.name} "
                f"has layers 0 to {depth - 1} and must keep one."
            )
        self.model = without_layers(model, self.layers)
        super().attach(target)


@torch.inference_mode()
def quantised(model: Any, bits: int) -> Any:
    """A copy of a causal LM whose decoder linears are rounded to `bits`; embeddings shared."""
    shared = {id(p): p for p in model.get_input_embeddings().parameters()}
    shared.update({id(p): p for p in model.get_output_embeddings().parameters()})
    coarse = copy.deepcopy(model, memo=dict(shared))
    for module in coarse.get_decoder().modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(round_weights(module.weight, bits), requires_grad=False)
    return coarse


@torch.inference_mode()
def round_weights(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Symmetric absmax rounding of a weight [out, in] in groups of 32 along `in`."""
    out, width = weight.shape
    padded = nn.functional.pad(weight, (0, -width % GROUP))
    groups = padded.reshape(out, -1, GROUP)
    steps = 2 ** (bits - 1) - 1
    scale = groups.abs().amax(-1, keepdim=True) / steps
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    rounded = (groups / scale).round().clamp(-steps, steps) * scale
    return rounded.reshape(out, -1)[:, :width].contiguous()


def _model(target: Target, name: str) -> Any:
    model = getattr(target, "model", None)
    if model is None or not hasattr(model, "get_decoder"):
        raise ValueError(f"{name} drafts with the target's own weights: it needs a torch target.")
    return model
