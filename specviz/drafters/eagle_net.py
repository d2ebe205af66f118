"""The EAGLE head: the target's hidden states and the next token in, one decoder layer, guess out.

In slot i stands token i with what the target held at token i - 1; the head guesses token i + 1.
Deeper in a draft the target has seen nothing yet, so the head's own output takes the place of
the target's states (EAGLE-3, Li et al. 2025, arXiv:2503.01840).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from specviz.targets.layer import LayerMemory, OneLayer


class EagleNet(nn.Module):
    """Fuses taps of the target, adds the token, runs one layer, reads a reduced vocabulary.

    Parameters
    ----------
    model
        The target's transformers model: the layer starts as a copy of its last one, the norm
        as a copy of its final one; its embeddings are used as they are.
    taps
        Layers whose output is fused.
    vocabulary
        Token ids that the head can say, [m].

    Notes
    -----
    Trained: `fuse`, `enter`, the layer and the norm. Frozen and never stored: the target's
    embeddings, for the token that enters and for the rows of the head.
    """

    vocabulary: torch.Tensor
    head: torch.Tensor
    size: torch.Tensor

    def __init__(self, model: Any, taps: Sequence[int], vocabulary: torch.Tensor) -> None:
        super().__init__()
        width = model.get_input_embeddings().weight.shape[1]
        self.taps = tuple(taps)
        self.fuse = nn.Linear(len(self.taps) * width, width, bias=False)
        self.enter = nn.Linear(width, width, bias=False)
        self.block = OneLayer(model)
        self.norm: Any = copy.deepcopy(model.get_decoder().norm).requires_grad_(True)
        self._embedding = [model.get_input_embeddings()]  # shared, not a part of this module
        head = model.get_output_embeddings().weight
        self.register_buffer("vocabulary", vocabulary.to(head.device), persistent=False)
        self.register_buffer("head", head.detach()[self.vocabulary], persistent=False)
        self.to(head.dtype).to(head.device)
        with torch.no_grad():
            self.fuse.weight.zero_()
            self.fuse.weight[:, -width:] = torch.eye(width)
            self.enter.weight.zero_()
        # What enters is learned at unit size and then brought to that of the layer's stream
        # (26 in the embedded target): weights of that size would hardly move at any sane rate.
        self.register_buffer("size", torch.ones((), dtype=head.dtype, device=head.device))

    def features(self, taps: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """What the target held, fused: [..., hidden] from [..., hidden] of every tap."""
        return self.fused(torch.stack([taps[tap] for tap in self.taps], -2))

    def fused(self, states: torch.Tensor) -> torch.Tensor:
        """The same from [..., taps, hidden], each tap brought to unit size first."""
        alike = unit(states.to(self.fuse.weight.dtype))
        fused: torch.Tensor = self.size * self.fuse(alike.flatten(-2))
        return fused

    def forward(
        self,
        features: torch.Tensor,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        visible: torch.Tensor,
        memory: LayerMemory,
    ) -> torch.Tensor:
        """The next features [batch, n, hidden]; see `OneLayer.forward` for the rest."""
        stream = features + self.size * self.enter(unit(self._embedding[0](tokens)))
        out: torch.Tensor = self.block(stream, positions, visible, memory)
        return out

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """Logits over the reduced vocabulary."""
        return nn.functional.linear(self.norm(features), self.head)


def unit(states: torch.Tensor) -> torch.Tensor:
    """Rows brought to a root mean square of 1."""
    return states * states.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
