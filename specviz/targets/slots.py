"""Any transformers causal LM as rows over a preallocated KV buffer.

`SlotLM` is what the torch target and the language-model drafters stand on. It knows token
ids, positions and masks, and nothing of drafts. Shapes are kept few on purpose (the buffer is
allocated once and doubled rarely, the attended window is rounded up to a bucket, masks are
explicit), so that a compiled forward can replace the eager one without a redesign.

Everything that depends on the transformers version stands in this file.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import Cache

from specviz.engine.inputs import fingerprint_of

WINDOW = 64  # the attended window is a multiple of this many slots
CAPACITY = 1024  # slots allocated at first


class SlotCache(Cache):
    """Keys and values in fixed buffers; the forward in flight writes at `start`."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[])
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers
        self.start = 0
        self.window = 0
        self.capacity = CAPACITY

    def update(  # type: ignore[override]
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self.keys[layer_idx] = self._room(self.keys[layer_idx], key)
        values = self.values[layer_idx] = self._room(self.values[layer_idx], value)
        stop = self.start + key.shape[2]
        keys[:, :, self.start : stop] = key
        values[:, :, self.start : stop] = value
        return keys[:, :, : self.window], values[:, :, : self.window]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.start

    def _room(self, buffer: torch.Tensor | None, new: torch.Tensor) -> torch.Tensor:
        if buffer is not None and buffer.shape[2] >= self.window:
            return buffer
        while self.capacity < self.window:
            self.capacity *= 2
        batch, heads, _, width = new.shape
        # Zeros, not garbage: a masked NaN would still poison the softmax.
        room = new.new_zeros(batch, heads, self.capacity, width)
        if buffer is not None:
            room[:, :, : buffer.shape[2]] = buffer
        return room

    @torch.inference_mode()
    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these texts of the batch only."""
        for buffers in (self.keys, self.values):
            for layer, buffer in enumerate(buffers):
                if buffer is not None:
                    buffers[layer] = buffer.index_select(0, rows.to(buffer.device))

    @torch.inference_mode()
    def move(self, sources: Sequence[int], start: int) -> None:
        """Copy the slots `sources` to start, start + 1, ... in every layer."""
        if list(sources) == list(range(start, start + len(sources))):
            return
        for buffers in (self.keys, self.values):
            for buffer in buffers:
                if buffer is not None:
                    index = torch.tensor(sources, device=buffer.device)
                    buffer[:, :, start : start + len(sources)] = buffer.index_select(2, index)


class SlotLM:
    """Forward passes of a causal LM with explicit slots, positions and visibility.

    Parameters
    ----------
    model
        A decoder-only transformers model with full attention in every layer.
    vocab_size
        Logits are cropped to this many columns (the tokenizer's size).
    """

    def __init__(self, model: Any, vocab_size: int) -> None:
        self.model = model.eval().requires_grad_(False)
        self.decoder: Any = model.get_decoder()
        self.head: Any = model.get_output_embeddings()
        self.vocab_size = vocab_size
        self.layers: nn.ModuleList = self.decoder.layers
        self.cache = SlotCache(len(self.layers))
        self.dtype = model.dtype
        self.device: torch.device = input_device(model)
        self._tapped: dict[int, torch.Tensor] = {}

    @torch.inference_mode()
    def forward(
        self,
        tokens: Sequence[int],
        start: int,
        *,
        positions: Sequence[int] | None = None,
        visible: torch.Tensor | None = None,
        taps: Sequence[int] = (),
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Run `tokens` in the slots start, start + 1, ...

        Parameters
        ----------
        positions
            Position of each token in its own text; start, start + 1, ... by default.
        visible
            Bool [n, start + n]: which slots each token attends to (itself included).
            Causal over all earlier slots by default.
        taps
            Layers whose output to return: i is the residual stream after i layers.

        Returns
        -------
        hidden
            Final hidden states [n, hidden], as the unembedding sees them.
        tapped
            Per tap, [n, hidden].
        """
        end = start + len(tokens)
        if visible is None:
            visible = torch.arange(end)[None] <= torch.arange(start, end)[:, None]
        place = torch.tensor([list(positions) if positions is not None else range(start, end)])
        hidden, tapped = self.forward_batch(
            torch.tensor([list(tokens)]), start, place, visible[None], taps
        )
        return hidden[0], {layer: states[0] for layer, states in tapped.items()}

    @torch.inference_mode()
    def forward_batch(
        self,
        tokens: torch.Tensor,
        start: int,
        positions: torch.Tensor,
        visible: torch.Tensor,
        taps: Sequence[int] = (),
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """`forward` for several texts side by side in the same slots.

        Takes tokens and positions [batch, n] and visible [batch, n, start + n]; returns hidden
        states [batch, n, hidden], and the same of every tap.
        """
        device = self.device
        end = start + tokens.shape[1]
        window = -(-end // WINDOW) * WINDOW
        mask = additive_mask(nn.functional.pad(visible, (0, window - end)).to(device), self.dtype)
        self.cache.start, self.cache.window = start, window
        self._tapped = {}
        hooks = [self._tap(layer) for layer in taps if layer > 0]
        try:
            out = self.decoder(
                input_ids=tokens.to(device),
                attention_mask=mask,
                position_ids=positions.to(device),
                cache=self.cache,
                use_cache=True,
            )
        finally:
            for hook in hooks:
                hook.remove()
        hidden = out.last_hidden_state
        # Of a model that is split over devices, drafters get their states in one place.
        return hidden, {layer: states.to(hidden.device) for layer, states in self._tapped.items()}

    @torch.inference_mode()
    def unembed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [m, vocab_size] of final hidden states [m, hidden]."""
        logits: torch.Tensor = self.head(hidden.to(self.head.weight.device))
        return logits[..., : self.vocab_size]

    def _tap(self, layer: int) -> torch.utils.hooks.RemovableHandle:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            states = output[0] if isinstance(output, tuple) else output
            self._tapped[layer] = states

        return self.layers[layer - 1].register_forward_hook(keep)


def additive_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What attention adds to its scores, [batch, 1, n, m]: 0 where `visible` [batch, n, m]."""
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


def plain_logits(model: Any, tokens: Sequence[int], vocab_size: int) -> torch.Tensor:
    """Logits [n, vocab_size] of one independent forward, as transformers computes them."""
    with torch.inference_mode():
        ids = torch.tensor([list(tokens)], device=input_device(model))
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits[0, :, :vocab_size]


def weights_fingerprint(model: Any) -> str:
    """Short hash of a model's shape and of the ends of every weight: cheap, and it tells
    another checkpoint, another rounding or another choice of layers."""
    parts: list[object] = [type(model).__name__]
    for name, weight in model.named_parameters():
        flat = weight.detach().reshape(-1)
        ends = torch.cat([flat[:32], flat[-32:]]).float().cpu()
        parts += [name, tuple(weight.shape), ends.numpy().tobytes()]
    return fingerprint_of(*parts)


def input_device(model: Any) -> torch.device:
    """Where a model wants its token ids."""
    device: torch.device = model.get_input_embeddings().weight.device
    return device


def without_layers(model: Any, left_out: Sequence[int]) -> Any:
    """The same model, weights shared, with some decoder layers left out."""
    kept = [i for i in range(len(model.get_decoder().layers)) if i not in set(left_out)]
    thin = copy.copy(model)
    thin._modules = dict(model._modules)
    thin.config = copy.deepcopy(model.config)
    thin.config.get_text_config().num_hidden_layers = len(kept)
    thin.generation_config = copy.deepcopy(getattr(model, "generation_config", None))
    decoder = copy.copy(model.get_decoder())
    decoder._modules = dict(decoder._modules)
    decoder.config = copy.deepcopy(decoder.config)
    decoder.config.num_hidden_layers = len(kept)
    decoder.layers = nn.ModuleList(
        _renumbered(model.get_decoder().layers[old], new) for new, old in enumerate(kept)
    )
    name = next(n for n, m in model._modules.items() if m is model.get_decoder())
    thin._modules[name] = decoder
    return thin


def _renumbered(layer: Any, index: int) -> Any:
    """A view of a decoder layer that writes to another place in the KV cache."""
    twin = copy.copy(layer)
    twin._modules = dict(layer._modules)
    for name, module in layer._modules.items():
        if hasattr(module, "layer_idx"):
            part = copy.copy(module)
            part.layer_idx = index
            twin._modules[name] = part
    return twin
