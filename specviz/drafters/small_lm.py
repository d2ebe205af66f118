"""A small language model cut from the target's own layers, saying a reduced vocabulary."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from specviz.targets.slots import without_layers


class ReducedHead(nn.Module):
    """Rows of a head for some tokens; the others can never be said (logit -inf).

    Parameters
    ----------
    weight
        The whole head [vocabulary, hidden].
    vocabulary
        Token ids that stay, [m].
    """

    vocabulary: torch.Tensor

    def __init__(self, weight: torch.Tensor, vocabulary: torch.Tensor) -> None:
        super().__init__()
        self.size = len(weight)
        self.register_buffer("vocabulary", vocabulary.to(weight.device), persistent=False)
        self.weight = nn.Parameter(weight.detach()[self.vocabulary], requires_grad=False)

    def reduced(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., m] of the tokens that stay."""
        return nn.functional.linear(hidden, self.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return widened(self.reduced(hidden), self.vocabulary, self.size)


def widened(logits: torch.Tensor, vocabulary: torch.Tensor, size: int) -> torch.Tensor:
    """Logits [..., size] with -inf for every token outside `vocabulary`."""
    wide = logits.new_full((*logits.shape[:-1], size), -torch.inf)
    wide[..., vocabulary] = logits
    return wide


def small_lm(model: Any, layers: Sequence[int], vocabulary: torch.Tensor) -> Any:
    """A copy of some decoder layers and of the final norm, with a reduced head.

    Parameters
    ----------
    model
        The target's transformers model. Its embeddings are shared and stay frozen; layers and
        norm are copied and can be trained.
    layers
        Indices of the layers to begin with.
    vocabulary
        Token ids that the small model can say, [m].

    Raises
    ------
    ValueError
        When the model lacks one of the layers.
    """
    depth = len(model.get_decoder().layers)
    if not layers or any(not 0 <= layer < depth for layer in layers):
        raise ValueError(f"The target has layers 0 to {depth - 1} to begin with, not {layers}.")
    small = without_layers(model, [i for i in range(depth) if i not in set(layers)])
    decoder = small.get_decoder()
    decoder.layers = copy.deepcopy(decoder.layers).requires_grad_(True)
    decoder.norm = copy.deepcopy(decoder.norm).requires_grad_(True)
    head = model.get_output_embeddings()
    name = next(name for name, module in small._modules.items() if module is head)
    small._modules[name] = ReducedHead(head.weight, vocabulary)
    return small


def trained_part(small: Any) -> nn.ModuleDict:
    """What is trained and stored of a small model: its layers and its norm, not shared ones."""
    decoder = small.get_decoder()
    return nn.ModuleDict({"layers": decoder.layers, "norm": decoder.norm})
