"""One decoder layer of a transformers model, run on its own.

Like `slots`, this file knows the transformers version; nothing else of specviz that uses a
layer does. It keeps gradients, so that a drafter can be trained through it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from transformers import Cache

from specviz.targets.slots import additive_mask


class LayerMemory(Cache):
    """Keys and values of one layer, appended forward by forward."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None

    def update(  # type: ignore[override]
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.keys is None or self.values is None:
            self.keys, self.values = key, value
        else:
            self.keys = torch.cat([self.keys, key], 2)
            self.values = torch.cat([self.values, value], 2)
        return self.keys, self.values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if self.keys is None else int(self.keys.shape[2])

    def branch(self) -> LayerMemory:
        """Another memory of the same slots: what one appends, the other does not see."""
        other = LayerMemory()
        other.keys, other.values = self.keys, self.values
        return other

    def crop_to(self, slots: int) -> None:
        """Forget all but the first slots."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[:, :, :slots], self.values[:, :, :slots]


class OneLayer(nn.Module):
    """A copy of a model's decoder layer with the rotary embedding it needs.

    Parameters
    ----------
    model
        A decoder-only transformers model.
    index
        Which layer to copy; -1 is the last.
    """

    def __init__(self, model: Any, index: int = -1) -> None:
        super().__init__()
        decoder = model.get_decoder()
        self.layer: Any = copy.deepcopy(decoder.layers[index]).requires_grad_(True)
        self.layer.self_attn.layer_idx = 0
        self._rotary = [decoder.rotary_emb]  # in a list: shared with the model, not a part of it

    def forward(
        self,
        stream: torch.Tensor,
        positions: torch.Tensor,
        visible: torch.Tensor,
        memory: LayerMemory,
    ) -> torch.Tensor:
        """The residual stream after the layer.

        Parameters
        ----------
        stream
            [batch, n, hidden].
        positions
            [batch, n].
        visible
            Bool [batch or 1, n, slots in memory + n].
        memory
            Keys and values so far; those of `stream` are appended.
        """
        out = self.layer(
            stream,
            attention_mask=additive_mask(visible.to(stream.device), stream.dtype),
            position_ids=positions,
            position_embeddings=self._rotary[0](stream, position_ids=positions),
            cache=memory,
            use_cache=True,
        )
        return out[0] if isinstance(out, tuple) else out
