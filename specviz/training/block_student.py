"""A DFlash block in training: some anchors of every answer, all tokens of their blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from specviz.drafters.block_layers import BlockConfig, Layer
from specviz.drafters.block_net import BlockNet, Context
from specviz.training.batches import Batch

#: Embeddings are far smaller than the states that a target's last layers are used to. Scaled to
#: this share of their size, the loss fell faster than unscaled on the embedded target.
EMBEDDED = 0.1


class BlockStudent:
    """DFlash2, begun as the target's own layers.

    Parameters
    ----------
    model
        The target's transformers model.
    taps
        Layers whose states the corpus holds, counted as `Corpus.taps` does.
    vocabulary
        Token ids that can be said, [m].
    layers
        Which of the target's layers to begin with; its last two by default. Right behind the
        last tap, they find there what they found in the target.
    tokens
        Drafted tokens of a block.
    anchors
        Anchors of every answer in a training step, drawn anew in every epoch. Neighbouring
        anchors teach much the same, so that a few of many answers teach more than all of one.
    discount
        Weight of a depth against the one before it.
    second
        DFlash2, or else DFlash: without convolutions and selector.
    config
        To go on from: sizes of a trained block, instead of `taps`, `layers`, `tokens` and
        `second`.

    Notes
    -----
    The loss is the cross-entropy with the target's distribution of each row by itself (what the
    selector takes its candidates from) and of each row behind the answer's own token (what it
    chooses by), in equal parts.
    """

    family = "block"
    objective = "cross-entropy"

    def __init__(
        self,
        model: Any,
        taps: Sequence[int],
        vocabulary: torch.Tensor,
        layers: Sequence[int] | None = None,
        tokens: int = 7,
        anchors: int = 16,
        discount: float = 0.8,
        second: bool = True,
        config: BlockConfig | None = None,
    ) -> None:
        self._fresh = config is None
        begun = _begun(model, layers)
        if config is None:
            config = _config(model, taps, vocabulary, len(begun), tokens + 1, second)
        self.net = BlockNet(config, model, vocabulary)
        self.config, self.vocabulary = config, self.net.vocabulary
        self.anchors, self.discount = anchors, discount
        self._sizes = torch.ones(len(config.target_layers))
        self._unsized = self._fresh and _begin(self.net, model, begun)

    @property
    def settings(self) -> dict[str, Any]:
        """What a drafter needs besides tensors."""
        return asdict(self.config)

    def scale_to(self, batch: Batch) -> None:
        """Let all taps be learned at unit size; in a new network, let embeddings, keys and queries
        begin at a size the layers are used to. Changes nothing that a trained one says."""
        held = self._states(batch)[batch.positions > 0].to(self.net.fc.weight.dtype)
        self._learn_at(held.square().mean((0, 2)).sqrt())
        if not self._fresh:
            return
        self._fresh = False
        self._embed_for(float(held[:, -1].square().mean().sqrt()))
        if self._unsized:
            with torch.no_grad():
                fused = self.net.hidden_norm(held[:, -1])
                for layer in self.net.layers:
                    assert isinstance(layer, Layer)
                    layer.self_attn.begin_as_large_as(fused)

    def loss(self, batch: Batch) -> tuple[torch.Tensor, float]:
        columns = self._drawn(batch)
        hidden = self._hidden(batch, columns)
        depths = torch.arange(hidden.shape[2], device=hidden.device)
        # The row of depth d (0 is the first) is about the answer token d + 1 behind the anchor.
        behind = columns[..., None] + depths
        taught = behind + 1 < batch.lengths[:, None, None]
        text = torch.arange(len(columns), device=hidden.device)[:, None, None].expand_as(behind)
        where = (text[taught], batch.start + behind[taught])
        with torch.no_grad():
            final = batch.states[..., -1, :][where].to(hidden.dtype)
            wanted = nn.functional.linear(final, self.net.head).softmax(-1)
        rows = hidden[taught]
        unary = self.net.unary(rows)
        parts = [nn.functional.cross_entropy(unary, wanted, reduction="none")]
        if self.config.second:
            chosen = unary + self.net.following(rows, batch.tokens[where])
            parts.append(nn.functional.cross_entropy(chosen, wanted, reduction="none"))
        depth = depths.expand_as(behind)[taught]
        weight = self.discount ** depth.to(hidden.dtype)
        loss = sum((part * weight).sum() for part in parts) / (len(parts) * weight.sum())
        assert isinstance(loss, torch.Tensor)
        return loss, float(parts[-1][depth == 0].mean().detach())

    def matches(self, batch: Batch, k: int) -> tuple[torch.Tensor, float]:
        every = torch.arange(batch.tokens.shape[1] - batch.start, device=batch.tokens.device)
        columns = every.expand(len(batch.tokens), -1)
        hidden = self._hidden(batch, columns)
        answers = nn.functional.pad(batch.tokens[:, batch.start :], (0, k))
        right: list[torch.Tensor] = []
        first = 0.0
        for depth in range(k):
            if depth >= hidden.shape[2]:  # the block is shorter: what is not drafted is no match
                right.append(torch.zeros_like(right[0]))
                continue
            before, told = answers[:, depth:][:, : len(every)], answers[:, depth + 1 :]
            rows = hidden[:, :, depth]
            unary = self.net.unary(rows)
            said = self.vocabulary[self.net.said(rows, unary, before).argmax(-1)]
            taught = batch.teaches(depth + 1)
            right.append((said == told[:, : len(every)]) & taught)
            if depth == 0:
                final = batch.states[:, batch.start :, -1][taught].to(rows.dtype)
                wanted = nn.functional.linear(final, self.net.head).softmax(-1)
                logits = unary[taught].detach()
                if self.config.second:
                    logits = logits + self.net.following(rows[taught], before[taught]).detach()
                first = float(nn.functional.cross_entropy(logits, wanted))
        return torch.stack(right, -1), first

    def weights(self) -> dict[str, torch.Tensor]:
        tensors = {name: tensor.detach().clone() for name, tensor in self.net.state_dict().items()}
        tensors["fc.weight"] = self._scaled(tensors["fc.weight"], 1 / self._sizes)
        return tensors

    def _hidden(self, batch: Batch, columns: torch.Tensor) -> torch.Tensor:
        """Final states [batch, blocks, block - 1, hidden] of the blocks whose anchors are the
        answers' tokens at `columns` [batch, blocks]."""
        context = self._context(batch)
        at = batch.start + columns
        slots = torch.arange(batch.tokens.shape[1], device=at.device)
        seen = (slots < at[..., None]) & (slots >= batch.pads[:, None, None])
        anchors, places = (x.gather(1, at) for x in (batch.tokens, batch.positions))
        hidden: torch.Tensor = self.net(anchors, places, seen, context)
        return hidden

    def _context(self, batch: Batch) -> Context:
        states = self._states(batch).to(self.net.fc.weight.dtype)
        return self.net.context(states / self._sizes.to(states)[:, None], batch.positions)

    def _states(self, batch: Batch) -> torch.Tensor:
        return batch.states[:, :, : len(self._sizes)]

    def _drawn(self, batch: Batch) -> torch.Tensor:
        """Anchors [batch, blocks]: answer columns, each once if there are as many that teach.

        A function of the batch alone, so that a resumed training draws the same.
        """
        key = int((batch.tokens.double().cpu() * torch.arange(1, batch.tokens.shape[1] + 1)).sum())
        draw = torch.Generator().manual_seed(key % (1 << 62))
        teaches = batch.teaches(1).cpu()
        lots = torch.rand(teaches.shape, generator=draw) + teaches.to(torch.float32)
        n = max(1, min(self.anchors, int(teaches.sum(1).max())))
        return lots.topk(n, 1).indices.sort(1).values.to(batch.tokens.device)

    def _embed_for(self, size: float) -> None:
        """Scale embeddings up to their share of the states' size, to one digit."""
        own = float(self.net.embedding.square().mean().sqrt())
        scale = max(1.0, float(f"{EMBEDDED * size / own:.1g}"))
        self.config = self.net.config = replace(self.config, embedding_scale=scale)

    def _learn_at(self, sizes: torch.Tensor) -> None:
        with torch.no_grad():
            weight = self.net.fc.weight
            weight.copy_(self._scaled(weight, sizes.to(weight) / self._sizes.to(weight)))
        self._sizes = sizes.detach().to(self._sizes)

    def _scaled(self, weight: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return weight * by.to(weight).repeat_interleave(self.config.hidden)


def _begun(model: Any, layers: Sequence[int] | None) -> tuple[int, ...]:
    depth = len(model.get_decoder().layers)
    chosen = tuple(layers) if layers is not None else tuple(range(max(depth - 2, 0), depth))
    if not chosen or any(not 0 <= layer < depth for layer in chosen):
        raise ValueError(f"The target has layers 0 to {depth - 1} to begin with, not {chosen}.")
    return chosen


def _config(
    model: Any,
    taps: Sequence[int],
    vocabulary: torch.Tensor,
    layers: int,
    block: int,
    second: bool,
) -> BlockConfig:
    """Sizes like the target's own."""
    depth = len(model.get_decoder().layers)
    own = model.config.get_text_config()
    heads = own.num_attention_heads
    rows = len(model.get_input_embeddings().weight)
    rope = getattr(own, "rope_parameters", None) or {}
    attention = model.get_decoder().layers[0].self_attn
    unsaid = torch.ones(rows, dtype=torch.bool)
    unsaid[vocabulary.cpu()] = False
    return BlockConfig(
        hidden=own.hidden_size,
        layers=layers,
        heads=heads,
        kv_heads=heads,  # all that a row learns of the text has to come through them
        head_dim=getattr(own, "head_dim", None) or own.hidden_size // heads,
        inner=own.intermediate_size,
        block=block,
        # A token that is never drafted, if there is one.
        mask_token=int(unsaid.nonzero()[-1]) if unsaid.any() else rows - 1,
        target_layers=tuple(tap - 1 for tap in taps),
        target_depth=depth,
        eps=float(own.rms_norm_eps),
        rope_theta=float(rope.get("rope_theta", 10_000.0)),
        bias=getattr(attention.q_proj, "bias", None) is not None,
        kernel=2 if second else 0,
        group=math.gcd(own.hidden_size, 16) if second else 0,
        rank=32 if second else 0,
        candidates=min(16, len(vocabulary)) if second else 0,
    )


def _begin(net: BlockNet, model: Any, layers: Sequence[int]) -> bool:
    """Copy the target's layers; says whether keys and queries still need a size.

    The text enters as the last tap: what layer `layers[0]` of the target would have seen, if
    that tap lies right before it.
    """
    decoder = model.get_decoder()
    theirs = [decoder.layers[index] for index in layers]
    with torch.no_grad():
        net.fc.weight.zero_()
        net.fc.weight[:, -net.config.hidden :].fill_diagonal_(1)
        net.norm.weight.copy_(decoder.norm.weight)
        for mine, other in zip(net.layers, theirs, strict=True):
            assert isinstance(mine, Layer)
            copied = other.state_dict()
            for name, tensor in mine.state_dict().items():
                if name in copied:
                    wide = _for_every_head(copied[name], len(tensor), net.config.head_dim)
                    if wide.shape == tensor.shape:
                        tensor.copy_(wide)
                elif name.endswith("o_proj.bias"):
                    tensor.zero_()
            # The text's keys and values skip this norm: its weights go into what follows it.
            for projection in (mine.self_attn.q_proj, mine.self_attn.k_proj, mine.self_attn.v_proj):
                projection.weight.mul_(mine.input_layernorm.weight)
            mine.input_layernorm.weight.fill_(1)
    return not hasattr(theirs[0].self_attn, "q_norm")


def _for_every_head(weight: torch.Tensor, rows: int, head_dim: int) -> torch.Tensor:
    """Keys and values that query heads shared, once for each of them."""
    if len(weight) >= rows:
        return weight
    shared = weight.unflatten(0, (-1, head_dim))
    return shared.repeat_interleave(rows // len(weight), 0).flatten(0, 1)
