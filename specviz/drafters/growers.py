"""Drafters as growers of trees: distributions after any node, one forward pass per level."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specviz.drafters.block_net import BlockNet
from specviz.drafters.eagle_net import EagleNet
from specviz.drafters.mtp_net import MtpNet
from specviz.drafters.small_lm import widened
from specviz.engine.sampling import in_full
from specviz.engine.tree import ancestors
from specviz.targets.layer import LayerMemory
from specviz.targets.slots import SlotLM
from specviz.targets.toy import MarkovModel


class _Nodes:
    """Nodes in the order in which they were extended, as slots behind those of the text."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.depths: list[int] = []

    def add(self, parents: Sequence[int], before: int) -> tuple[torch.Tensor, list[int]]:
        """Which slots new nodes see, [n, before + nodes], all `before` included; their depths."""
        first = len(self.parents)
        depths = self.below(parents)
        own = ancestors(self.parents)[first:]
        text = torch.ones(len(parents), before, dtype=torch.bool)
        return torch.cat([text, own], 1), depths

    def below(self, parents: Sequence[int]) -> list[int]:
        """Take new nodes in; their depths."""
        first = len(self.parents)
        for parent in parents:
            self.parents.append(parent)
            self.depths.append(1 if parent < 0 else self.depths[parent] + 1)
        return self.depths[first:]


class LMGrower:
    """A causal LM behind a text of `end` tokens whose last hidden row is `hidden` [1, hidden].

    Writes its nodes into the slots behind the text; the drafter's record of what is cached
    stays as it was, so the next text overwrites them.
    """

    def __init__(self, lm: SlotLM, hidden: torch.Tensor, end: int) -> None:
        self.lm, self.hidden, self.end = lm, hidden, end
        self.nodes = _Nodes()

    def root(self) -> torch.Tensor:
        return self._said(self.hidden)[0]

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        start = self.end + len(self.nodes.parents)
        visible, depths = self.nodes.add(parents, self.end)
        places = [self.end + depth - 1 for depth in depths]
        hidden, _ = self.lm.forward(tokens, start, positions=places, visible=visible)
        return self._said(hidden)

    def _said(self, hidden: torch.Tensor) -> torch.Tensor:
        return in_full(self.lm.unembed(hidden)).log_softmax(-1)


class EagleGrower:
    """An EAGLE head at an anchor: `features` [1, 1, hidden] in its slot, the text's in memory.

    Works on a memory of its own, so that the drafter's is left as it was.
    """

    def __init__(
        self,
        net: EagleNet,
        features: torch.Tensor,
        memory: LayerMemory,
        place: int,
        vocab_size: int,
    ) -> None:
        self.net, self.place, self.vocab_size = net, place, vocab_size
        self.features = features  # row 0 is the anchor's, row 1 + i node i's
        self.slots = memory.get_seq_length()
        self.memory = memory.branch()
        self.nodes = _Nodes()

    def root(self) -> torch.Tensor:
        return self._said(self.features)[0]

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        device = self.features.device
        visible, depths = self.nodes.add(parents, self.slots)
        out = self.net(
            self.features[:, [parent + 1 for parent in parents]],
            torch.tensor([list(tokens)], device=device),
            torch.tensor([[self.place + depth for depth in depths]], device=device),
            visible.to(device)[None],
            self.memory,
        )
        self.features = torch.cat([self.features, out], 1)
        return self._said(out)

    def _said(self, features: torch.Tensor) -> torch.Tensor:
        logits = self.net.logits(features)[0]
        return _widened_logp(logits, self.net.vocabulary, self.vocab_size)


class BlockGrower:
    """A block [block - 1, hidden] as the source of a tree: no forward pass is left to do."""

    def __init__(self, net: BlockNet, hidden: torch.Tensor, anchor: int, vocab_size: int) -> None:
        self.net, self.hidden, self.unary = net, hidden, net.unary(hidden)
        self.anchor, self.vocab_size = anchor, vocab_size
        self.nodes = _Nodes()

    def root(self) -> torch.Tensor:
        return self._said([0], [self.anchor])[0]

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        return self._said(self.nodes.below(parents), tokens)

    def _said(self, depths: Sequence[int], before: Sequence[int]) -> torch.Tensor:
        tokens = torch.tensor(before, device=self.hidden.device)
        logits = self.net.said(self.hidden[list(depths)], self.unary[list(depths)], tokens)
        return _widened_logp(logits, self.net.vocabulary, self.vocab_size)


class MtpGrower:
    """MTP modules at an anchor, whose state is `state` [1, hidden]."""

    def __init__(self, net: MtpNet, state: torch.Tensor, vocab_size: int) -> None:
        self.net, self.vocab_size = net, vocab_size
        self.states = state  # row 0 is the anchor's, row 1 + i node i's
        self.nodes = _Nodes()

    def root(self) -> torch.Tensor:
        return self._said(self.states)[0]

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        depths = self.nodes.below(parents)
        device = self.states.device
        said = torch.tensor(list(tokens), device=device)
        states = self.states[[parent + 1 for parent in parents]]
        out = torch.empty_like(states)
        for depth in set(depths):  # one, in trees that grow level by level
            mine = torch.tensor([each == depth for each in depths], device=device)
            out[mine] = self.net(states[mine], said[mine], depth)
        self.states = torch.cat([self.states, out])
        return self._said(out)

    def _said(self, states: torch.Tensor) -> torch.Tensor:
        return _widened_logp(self.net.logits(states), self.net.vocabulary, self.vocab_size)


class MarkovGrower:
    """A toy chain behind a text."""

    def __init__(self, model: MarkovModel, text: Sequence[int]) -> None:
        self.model = model
        self.texts = [list(text)]  # entry 0 is the anchor's, entry 1 + i node i's

    def root(self) -> torch.Tensor:
        return self.model.logits(self.texts[0])

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        new = [
            [*self.texts[parent + 1], token] for parent, token in zip(parents, tokens, strict=True)
        ]
        self.texts += new
        return torch.stack([self.model.logits(text) for text in new])


def _widened_logp(logits: torch.Tensor, vocabulary: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """ln q over the whole vocabulary from logits of the tokens that can be said."""
    return widened(in_full(logits).log_softmax(-1), vocabulary, vocab_size)
