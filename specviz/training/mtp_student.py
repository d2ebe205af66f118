"""MTP modules in training: unrolled over the answers' own tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from specviz.drafters.mtp_net import MtpNet
from specviz.training.batches import Batch
from specviz.training.students import Unrolled


class MtpStudent(Unrolled):
    """MTP modules on the target's last hidden state.

    Parameters
    ----------
    model
        The target's transformers model.
    vocabulary
        Token ids that can be said, [m].
    modules
        How many depths have a module of their own.
    depths
        How many tokens of a draft each anchor is trained on: more than there are modules, so
        that the last one learns to serve deeper ones.
    discount
        Weight of a depth against the one before it.
    """

    family = "mtp"

    def __init__(
        self,
        model: Any,
        vocabulary: torch.Tensor,
        modules: int = 3,
        depths: int = 4,
        discount: float = 0.8,
    ) -> None:
        self.net = MtpNet(model, vocabulary, modules)
        self.vocabulary = self.net.vocabulary
        self.depths, self.discount = depths, discount

    @property
    def settings(self) -> dict[str, Any]:
        """What a drafter needs besides tensors."""
        return {"modules": len(self.net.steps)}

    def scale_to(self, batch: Batch) -> None:
        """Let modules add in the size that the target's states have."""
        self.net.size.fill_(self._final(batch).square().mean(-1).sqrt().median())

    def _unroll(self, batch: Batch, depths: int) -> list[torch.Tensor]:
        """States [batch, answer columns, hidden] at each depth of the drafts from every anchor,
        fed the answer's own tokens."""
        anchors = batch.tokens.shape[1] - batch.start
        tokens = nn.functional.pad(batch.tokens[:, batch.start :], (0, depths))
        found, state = [], self._final(batch)
        for depth in range(depths):
            state = self.net(state, tokens[:, depth : depth + anchors], depth)
            found.append(state)
        return found

    def _final(self, batch: Batch) -> torch.Tensor:
        """The target's last state before each answer token."""
        return batch.states[:, batch.start - 1 : -1, -1].to(self.net.head)
