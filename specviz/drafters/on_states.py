"""What drafters on the target's states share: a network to attach, states to wait for."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from specviz.drafters.weights import Weights, check_target
from specviz.engine.protocols import Rows, Target

Net = TypeVar("Net", bound=nn.Module)
Held = TypeVar("Held", bound=Sized)


class OnStates(Generic[Net]):
    """A trained network that is built on one target, and what it remembers of one sequence."""

    simulated_cost = False
    name: str
    weights: Weights
    taps: tuple[int, ...]
    net: Net | None = None
    _model: object = None
    _vocab_size = 0

    def attach(self, target: Target) -> None:
        """Build the network on the target's embeddings and output head.

        Raises
        ------
        ValueError
            When it was trained for another target, or its sizes are not the target's.
        """
        model = check_target(self.weights, target, self.name)
        if self._model is not model:
            tensors = dict(self.weights.tensors)
            net = self._built(target, model, tensors.pop("vocabulary").long())
            net.load_state_dict(tensors)
            self.net, self._model = net.eval().requires_grad_(False), model
        self._vocab_size = target.vocab_size
        self._forget()

    def _built(self, target: Target, model: Any, vocabulary: torch.Tensor) -> Net:
        """The network, its weights not yet loaded."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Start a sequence from nothing."""
        raise NotImplementedError

    def _attached(self) -> Net:
        if self.net is None:
            raise RuntimeError(f"{self.name} is not attached to a target yet: attach it first.")
        return self.net

    def _along(self, rows: Rows, path: Sequence[int]) -> dict[int, torch.Tensor]:
        """The taps of the anchor's row and of those on a path."""
        kept = [0, *(node + 1 for node in path)]
        return {tap: rows.taps[tap][kept] for tap in self.taps}

    def _enough(self, held: Held | None, needed: int) -> Held:
        """What is held of the text, if it reaches as far as needed (tokens)."""
        seen = 0 if held is None else len(held)
        if held is None or seen < needed:
            raise RuntimeError(
                f"{self.name} has the target's states of {seen} tokens and needs {needed}: start "
                "it with what prefill returned, and let it observe every round."
            )
        return held
