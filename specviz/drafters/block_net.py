"""The DFlash network: a whole block of tokens guessed in one pass, from mask tokens.

A block is the anchor and k mask tokens behind it. Its rows attend to one another in both
directions and, in every layer, to what the target held of the text before the anchor: taps of
the target, fused, enter as keys and values of their own. Row j says token j after the anchor.

DFlash2 adds two things: short convolutions along the block around attention and MLP, whose
kernels depend on the row, and a selector that walks the block from left to right, choosing
among each row's likeliest tokens by how well they follow the token chosen before.

Sources: DFlash (Chen et al. 2026, arXiv:2602.06036); z-lab's package `dflash` 0.1.0 for
DFlash2, whose tensor names are used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from specviz.drafters.block_layers import BlockConfig, Layer
from specviz.engine.protocols import Target


@dataclass
class Context:
    """What a block sees of the text: each layer's keys and values of the tokens before it.

    `positions` [batch, tokens]; keys and values per layer [batch, kv_heads, tokens, head_dim].
    """

    positions: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    def __len__(self) -> int:
        return self.positions.shape[1]

    def first(self, n: int) -> Context:
        """The first n tokens of it."""
        return Context(
            self.positions[:, :n],
            [key[:, :, :n] for key in self.keys],
            [value[:, :, :n] for value in self.values],
        )

    def then(self, more: Context) -> Context:
        """It and what follows."""
        return Context(
            torch.cat([self.positions, more.positions], 1),
            [torch.cat(pair, 2) for pair in zip(self.keys, more.keys, strict=True)],
            [torch.cat(pair, 2) for pair in zip(self.values, more.values, strict=True)],
        )


class Selector(nn.Module):
    """How well a token follows another one in a row, beside what the row says by itself."""

    def __init__(self, config: BlockConfig, words: int) -> None:
        super().__init__()
        self.predecessor_codebook = nn.Parameter(0.1 * torch.randn(words, config.rank))
        # At first it has no say; the codes before it are what lets it learn one.
        self.successor_codebook = nn.Parameter(torch.zeros(words, config.rank))
        self.hidden_projection = nn.Linear(config.hidden, config.rank, bias=False)

    def code(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """What a successor's code is compared with, [..., rank]; `before` are rows of the
        codebook, -1 for a token that has none: nothing is known of what follows it."""
        known = (before >= 0)[..., None]
        code = self.predecessor_codebook[before.clamp(min=0)] * known
        out: torch.Tensor = code * self.hidden_projection(hidden)
        return out


class Parts(nn.Module):
    """What is trained and stored of a network; `words` is how many tokens it can say."""

    def __init__(self, config: BlockConfig, words: int) -> None:
        super().__init__()
        width = config.hidden
        self.fc = nn.Linear(len(config.target_layers) * width, width, bias=False)
        self.hidden_norm = nn.RMSNorm(width, config.eps)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.layers))
        self.norm = nn.RMSNorm(width, config.eps)
        self.candidate_selector = Selector(config, words) if config.second else None


def shapes(config: BlockConfig, words: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a network by name."""
    with torch.device("meta"):
        return {name: tuple(t.shape) for name, t in Parts(config, words).state_dict().items()}


class BlockNet(Parts):
    """A DFlash or DFlash2 network on a target's embeddings and output head.

    Parameters
    ----------
    config
        Its sizes.
    model
        The target's transformers model: embeddings and head are its own, frozen, never stored.
    vocabulary
        Token ids that can be said, [m]; the head and the selector's codebooks have these rows.
    """

    vocabulary: torch.Tensor
    head: torch.Tensor
    word: torch.Tensor

    def __init__(self, config: BlockConfig, model: Any, vocabulary: torch.Tensor) -> None:
        super().__init__(config, len(vocabulary))
        self.config = config
        self._embedding = [model.get_input_embeddings()]  # shared, not a part of this module
        head = model.get_output_embeddings().weight.detach()
        everything = torch.equal(vocabulary.cpu(), torch.arange(len(vocabulary)))
        said = head[: len(vocabulary)] if everything else head[vocabulary.to(head.device)]
        word = torch.full((len(self._embedding[0].weight),), -1)
        word[vocabulary.cpu()] = torch.arange(len(vocabulary))
        self.to(head.dtype).to(head.device)
        self.register_buffer("vocabulary", vocabulary.to(head.device), persistent=False)
        self.register_buffer("head", said, persistent=False)
        self.register_buffer("word", word.to(head.device), persistent=False)

    def context(self, states: torch.Tensor, positions: torch.Tensor) -> Context:
        """The target's states [batch, tokens, taps, hidden] as keys and values."""
        fused = self.hidden_norm(self.fc(states.to(self.fc.weight.dtype).flatten(-2)))
        made = [layer.self_attn.remember(fused, positions) for layer in self._layers()]
        return Context(positions, [key for key, _ in made], [value for _, value in made])

    def forward(
        self, anchors: torch.Tensor, places: torch.Tensor, seen: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Guess blocks: final states [batch, blocks, block - 1, hidden].

        Parameters
        ----------
        anchors, places
            Token and position of each block's anchor, [batch, blocks].
        seen
            Bool [batch, blocks, tokens]: the text before each anchor.
        """
        rows = self.config.block
        tokens = anchors.new_full((*anchors.shape, rows), self.config.mask_token)
        tokens[..., 0] = anchors
        stream = nn.functional.embedding(tokens, self.embedding)
        stream = stream * self.config.embedding_scale
        everywhere = places[..., None] + torch.arange(rows, device=places.device)
        for layer, key, value in zip(self._layers(), context.keys, context.values, strict=True):
            sees = layer.self_attn.sees(seen, everywhere, context.positions)
            stream = layer(stream, everywhere, key, value, sees)
        out: torch.Tensor = self.norm(stream[..., 1:, :])
        return out

    @property
    def embedding(self) -> torch.Tensor:
        """The target's embeddings, [rows, hidden]."""
        weight: torch.Tensor = self._embedding[0].weight
        return weight

    def unary(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., m] of each row by itself."""
        logits = nn.functional.linear(hidden, self.head) * self.config.logit_scale
        cap = self.config.softcap
        return torch.tanh(logits / cap) * cap if cap > 0 else logits

    def following(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """What the selector adds to every token's logit after `before` (token ids): [..., m]."""
        selector = self.candidate_selector
        assert selector is not None
        code = selector.code(hidden, self.word[before])
        return nn.functional.linear(code, selector.successor_codebook)

    def said(self, hidden: torch.Tensor, unary: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Logits [..., m] after the token chosen before: -inf for all but the candidates."""
        selector = self.candidate_selector
        if selector is None:
            return unary
        best, which = unary.topk(min(self.config.candidates, unary.shape[-1]), -1)
        code = selector.code(hidden, self.word[before])
        added = (selector.successor_codebook[which] @ code[..., None])[..., 0]
        return torch.full_like(unary, -torch.inf).scatter(-1, which, best + added)

    def _layers(self) -> Sequence[Any]:
        return list(self.layers)


def check_sizes(config: BlockConfig, target: Target, model: object, name: str) -> None:
    """Raise ValueError unless a network of these sizes can stand on the target."""
    rows, hidden = model.get_input_embeddings().weight.shape  # type: ignore[attr-defined]
    depth = len(model.get_decoder().layers)  # type: ignore[attr-defined]
    wrong = None
    if config.hidden != hidden:
        wrong = f"it has hidden states of {config.hidden} and the target of {hidden}"
    elif config.target_depth != depth:
        wrong = f"it taps a target of {config.target_depth} layers and this one has {depth}"
    elif not all(0 <= layer < depth for layer in config.target_layers):
        wrong = f"it taps layers {config.target_layers} and this target has {depth}"
    elif not 0 <= config.mask_token < rows:
        wrong = f"its mask token {config.mask_token} is none of the target's {rows} embeddings"
    if wrong is not None:
        raise ValueError(
            f"{name} does not fit {target.name}: {wrong}. Use the drafter made for this target."
        )
