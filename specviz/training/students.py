"""What is trained: a network, its loss against the target, and how far its drafts would go.

A student learns the target's whole distribution at every token of an answer, cut to the reduced
vocabulary, whatever token was then sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from specviz.drafters.eagle_net import EagleNet
from specviz.drafters.small_lm import ReducedHead, small_lm, trained_part
from specviz.targets.layer import LayerMemory
from specviz.targets.slots import additive_mask
from specviz.training.batches import Batch
from specviz.training.objectives import expected_length, recall_loss


class Student(Protocol):
    """A drafter in training."""

    family: str
    objective: str

    @property
    def net(self) -> nn.Module: ...
    @property
    def vocabulary(self) -> torch.Tensor: ...

    def loss(self, batch: Batch) -> tuple[torch.Tensor, float]:
        """What to minimise, and the cross-entropy (nats) of the next token alone."""
        ...

    def matches(self, batch: Batch, k: int) -> tuple[torch.Tensor, float]:
        """Bool [batch, answer columns, k]: the draft's token at that depth is the answer's; and
        the cross-entropy that `loss` gives, of the same forward passes.

        Each depth is fed the answer's own tokens, so that what follows the first False is not
        what the drafter would have gone on to draft; leading Trues are all that counts.
        """
        ...

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained tensors by name."""
        ...


class Unrolled:
    """A student that drafts token by token, in training as it will: on the answers' own tokens.

    Attributes
    ----------
    depths
        How many tokens of a draft each anchor is trained on.
    discount
        Weight of a depth against the one before it; "expected-length" weighs them itself.
    objective
        One of `OBJECTIVES`.
    """

    net: Any
    vocabulary: torch.Tensor
    depths: int
    discount: float
    objective: str = "cross-entropy"

    def loss(self, batch: Batch) -> tuple[torch.Tensor, float]:
        law = target_law(batch, self.net.head)
        wanted = [law_at(law, batch, depth) for depth in range(self.depths)]
        taught = [batch.teaches(depth + 1) for depth in range(self.depths)]
        said = [
            self.net.logits(features[where])
            for features, where in zip(self._unroll(batch, self.depths), taught, strict=True)
        ]
        first = nn.functional.cross_entropy(said[0], wanted[0])
        if self.objective == "cross-entropy":
            parts = [first, *map(nn.functional.cross_entropy, said[1:], wanted[1:])]
            return discounted(parts, self.discount), float(first.detach())
        likeliest = [each.argmax(-1) for each in wanted]
        if self.objective == "recall":
            loss = discounted(list(map(recall_loss, said, likeliest)), self.discount)
        else:
            loss = -expected_length(said, likeliest, taught)
        return loss, float(first.detach())

    def matches(self, batch: Batch, k: int) -> tuple[torch.Tensor, float]:
        right, first = [], 0.0
        for depth, features in enumerate(self._unroll(batch, k), start=1):
            logits = self.net.logits(features)
            right.append(agrees(self.vocabulary[logits.argmax(-1)], batch, depth))
            if depth == 1:
                wanted = target_law(batch, self.net.head)
                there = logits[batch.teaches(1)].detach()
                first = float(nn.functional.cross_entropy(there, wanted))
        return torch.stack(right, -1), first

    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self.net.state_dict())

    def _unroll(self, batch: Batch, depths: int) -> list[torch.Tensor]:
        """What the network makes its logits of, [batch, answer columns, hidden], at each depth of
        the drafts from every anchor."""
        raise NotImplementedError


class EagleStudent(Unrolled):
    """EAGLE trained as it drafts: on the target's states first, then on its own features."""

    family = "eagle"

    def __init__(
        self,
        model: Any,
        taps: Sequence[int],
        vocabulary: torch.Tensor,
        depths: int = 3,
        discount: float = 0.8,
        objective: str = "cross-entropy",
    ) -> None:
        self.objective = objective
        self.net = EagleNet(model, taps, vocabulary)
        self.vocabulary = self.net.vocabulary
        self.depths, self.discount = depths, discount

    def scale_to(self, batch: Batch) -> None:
        """Start with features as large as the layer is used to: the states' own size."""
        last = batch.states[..., len(self.net.taps) - 1, :]
        self.net.size.fill_(last[batch.positions > 0].square().mean(-1).sqrt().median())

    def _unroll(self, batch: Batch, depths: int) -> list[torch.Tensor]:
        """Features [batch, answer columns, hidden] at each depth of the drafts from every anchor,
        fed the answer's own tokens."""
        held = batch.states[:, :-1, : len(self.net.taps)]
        features = nn.functional.pad(self.net.fused(held), (0, 0, 1, 0))  # slot i holds i - 1
        causal = batch.causal(skip=1)  # no slot for the first token: nothing was held before it
        memory = LayerMemory()
        out = self.net(features, batch.tokens, batch.positions, causal, memory)
        found = [out[:, batch.start :]]
        anchors = found[0].shape[1]
        own = torch.eye(anchors, dtype=torch.bool, device=out.device).expand(len(out), -1, -1)
        visible = causal[:, batch.start :]
        tokens = nn.functional.pad(batch.tokens[:, batch.start :], (0, depths))
        places = batch.positions[:, batch.start :]
        for depth in range(1, depths):
            # A draft sees the target's states up to its anchor, then its own features only.
            visible = torch.cat([visible, own], -1)
            found.append(
                self.net(
                    found[-1],
                    tokens[:, depth : depth + anchors],
                    places + depth,
                    visible,
                    memory,
                )
            )
        return found


class LMStudent:
    """A small language model, a few of the target's layers, trained on the target's words."""

    family = "lm"
    objective = "cross-entropy"

    def __init__(self, model: Any, layers: Sequence[int], vocabulary: torch.Tensor) -> None:
        self.model = small_lm(model, layers, vocabulary)
        self.net = trained_part(self.model)
        self.head: ReducedHead = self.model.get_output_embeddings()
        self.vocabulary = self.head.vocabulary

    def loss(self, batch: Batch) -> tuple[torch.Tensor, float]:
        said = self.head.reduced(self._hidden(batch)[batch.teaches(1)])
        part = nn.functional.cross_entropy(said, target_law(batch, self.head.weight))
        return part, float(part.detach())

    def matches(self, batch: Batch, k: int) -> tuple[torch.Tensor, float]:
        logits = self.head.reduced(self._hidden(batch))
        wanted = target_law(batch, self.head.weight)
        first = float(nn.functional.cross_entropy(logits[batch.teaches(1)], wanted))
        right = nn.functional.pad(agrees(self.vocabulary[logits.argmax(-1)], batch, 1), (0, k))
        anchors = logits.shape[1]
        return torch.stack([right[:, depth : depth + anchors] for depth in range(k)], -1), first

    def weights(self) -> dict[str, torch.Tensor]:
        return dict(self.net.state_dict())

    def _hidden(self, batch: Batch) -> torch.Tensor:
        out = self.model.get_decoder()(
            input_ids=batch.tokens,
            attention_mask=additive_mask(batch.causal(), self.head.weight.dtype),
            position_ids=batch.positions,
            use_cache=False,
        )
        hidden: torch.Tensor = out.last_hidden_state[:, batch.start :]
        return hidden


def target_law(batch: Batch, head: torch.Tensor) -> torch.Tensor:
    """The target's distributions over the reduced vocabulary, where answer tokens follow: those
    of one answer after those of another."""
    final = batch.states[:, batch.start :, -1].to(head.dtype)
    with torch.no_grad():
        return nn.functional.linear(final[batch.teaches(1)], head).softmax(-1)


def law_at(law: torch.Tensor, batch: Batch, depth: int) -> torch.Tensor:
    """The target's distributions that drafts' tokens at a depth (0 is the first) should have."""
    columns = torch.arange(batch.tokens.shape[1] - batch.start, device=batch.tokens.device)
    taught = batch.teaches(1)
    late = (columns >= depth).expand_as(taught)[taught]  # an answer's first `depth` are skipped
    return law[late]


def discounted(parts: Sequence[torch.Tensor], discount: float) -> torch.Tensor:
    """The mean of each depth's loss, every depth weighing `discount` of the one before."""
    weights = [discount**depth for depth in range(len(parts))]
    weighed = [weight * part for weight, part in zip(weights, parts, strict=True)]
    return torch.stack(weighed).sum() / sum(weights)


def agrees(said: torch.Tensor, batch: Batch, depth: int) -> torch.Tensor:
    """Whether what drafts say at a depth (1 is the first) is the answer's token there."""
    answers = nn.functional.pad(batch.tokens[:, batch.start :], (0, depth))
    return (said == answers[:, depth:]) & batch.teaches(depth)
