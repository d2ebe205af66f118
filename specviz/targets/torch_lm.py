"""A transformers causal LM as a target: prefill, verify a token tree, commit a path."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from specviz.engine.inputs import Ids, check_ids
from specviz.engine.protocols import FINAL, Draft, Rows
from specviz.targets.slots import SlotLM, plain_logits, weights_fingerprint
from specviz.targets.text import TextCodec


class TorchTarget:
    """A dense full-attention decoder of transformers, on a CPU or a CUDA device.

    Parameters
    ----------
    model
        A transformers causal LM, weights loaded.
    tokenizer
        Its tokenizer; logits are cropped to the tokens it knows.
    name, caption
        `caption` is what pictures say of the weights ("Q4_1 weights dequantised to fp32").
    check
        Compare tree verification with independent forwards before accepting the model.

    Raises
    ------
    ValueError
        When the model has sliding-window, recurrent or encoder layers, or when its tree rows
        differ from independent forwards: such a model would give wrong numbers silently.

    Notes
    -----
    Verified on CPU in fp32 and float64. Not verified on CUDA, fp16 or two GPUs.
    """

    supports_trees = True

    def __init__(
        self, model: Any, tokenizer: Any, name: str, caption: str = "", check: bool = True
    ) -> None:
        _refuse_unfit(model)
        self.model, self.codec = model, TextCodec(tokenizer)
        self.name, self.caption = name, caption or name
        rows = model.get_output_embeddings().weight.shape[0]
        self.vocab_size = min(rows, self.codec.size)
        self.eos_ids = _eos_ids(model, tokenizer)
        self.max_length: int | None = getattr(
            model.config.get_text_config(), "max_position_embeddings", None
        )
        self.lm = SlotLM(model, self.vocab_size)
        self.session = 0
        self.verifies = 0
        self._peak = 0  # most slots in use since the last prefill, unconfirmed rows included
        self._length = 0  # committed slots: prompt and every committed token but the anchor
        self._taps: tuple[int, ...] = ()
        self._pending: Draft | None = None
        if check:
            self.self_check()

    @cached_property
    def fingerprint(self) -> str:
        return weights_fingerprint(self.model)

    @property
    def dtype(self) -> str:
        return str(self.lm.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        return str(self.lm.device)

    def prefill(self, prompt: Ids, taps: Sequence[int] = ()) -> Rows:
        """Start a sequence; see `Target.prefill`."""
        check_ids(prompt, self.vocab_size)
        layers = len(self.lm.layers)
        for tap in taps:
            if tap != FINAL and not 0 < tap <= layers:
                raise ValueError(f"No hidden state after layer {tap}: {self.name} has {layers}.")
        self._check_length(len(prompt) + 1)
        self.session += 1
        self.verifies, self._length, self._pending = 0, 0, None
        self._taps, self._peak = tuple(taps), len(prompt)
        hidden, tapped = self.lm.forward(prompt, 0, taps=self._taps)
        self._length = len(prompt)
        return self._rows(hidden[-1:], hidden, tapped)

    def verify(self, draft: Draft) -> Rows:
        """One masked forward over the anchor and every node; see `Target.verify`."""
        start, n = self._length, len(draft)
        check_ids((draft.anchor, *draft.tokens), self.vocab_size)
        self._check_length(start + 1 + max(draft.depths(), default=0))
        visible = torch.zeros(n + 1, start + n + 1, dtype=torch.bool)
        visible[:, : start + 1] = True  # everything committed, and the anchor
        below = visible[:, start + 1 :]
        for node, parent in enumerate(draft.parents):
            if parent >= 0:
                below[node + 1] = below[parent + 1]
            below[node + 1, node] = True
        positions = [start, *(start + depth for depth in draft.depths())]
        hidden, tapped = self.lm.forward(
            (draft.anchor, *draft.tokens),
            start,
            positions=positions,
            visible=visible,
            taps=self._taps,
        )
        self._pending = draft
        self.verifies += 1
        self._peak = max(self._peak, start + n + 1)
        return self._rows(hidden, hidden, tapped)

    def commit(self, path: Sequence[int]) -> None:
        """Keep the anchor and the nodes of `path`; see `Target.commit`."""
        if self._pending is None:
            raise RuntimeError("Nothing to commit: verify a draft first.")
        self._pending.check_path(path)
        first = self._length + 1
        self.lm.cache.move([first + node for node in path], first)
        self._length = first + len(path)
        self._pending = None

    def unembed(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.lm.unembed(hidden)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read now means something."""
        for device in {p.device for p in self.model.parameters()}:  # two or more when split
            if device.type == "cuda":
                torch.cuda.synchronize(device)

    def memory(self) -> dict[str, int]:
        """Bytes of keys and values at the peak since the last prefill; see `Target.memory`."""
        buffers = [*self.lm.cache.keys, *self.lm.cache.values]
        slot = sum(b[:, :, 0].numel() * b.element_size() for b in buffers if b is not None)
        return {"peak_slots": self._peak, "peak_cache_bytes": self._peak * slot}

    def fork(self) -> TorchTarget:
        """The same weights with a KV cache of their own."""
        twin = copy.copy(self)
        twin.lm = SlotLM(self.model, self.vocab_size)
        twin.session = twin.verifies = twin._length = twin._peak = 0
        twin._pending = None
        return twin

    def self_check(self) -> None:
        """Compare a small tree's rows with independent forwards of its paths."""
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.vocab_size, (14,), generator=generator).tolist()
        prompt, anchor, nodes = tokens[:7], tokens[7], tokens[8:]
        draft = Draft(anchor, tuple(nodes), (-1, 0, -1, 2, 2, 1), (0.0,) * 6)
        self.prefill(prompt)
        rows = self.verify(draft).logits.float()
        tolerance = {torch.float64: 1e-8, torch.float32: 1e-3}.get(self.lm.dtype, 6e-2)
        for leaf in (5, 3, 4):
            path: list[int] = []
            node = leaf
            while node >= 0:
                path.insert(0, node)
                node = draft.parents[node]
            text = [*prompt, anchor, *(nodes[i] for i in path)]
            alone = plain_logits(self.model, text, self.vocab_size)[-1].float()
            gap = float((rows[leaf + 1] - alone).abs().max() / alone.abs().max().clamp(min=1))
            if not gap <= tolerance:
                raise ValueError(
                    f"{self.name} cannot be used: a tree row differs from an independent "
                    f"forward by {gap:.2g} (relative; at most {tolerance:g} is rounding). Its "
                    "attention or its output head does something this target does not model."
                )
        self.session = 0

    def _check_length(self, tokens: int) -> None:
        # Past it, rotary positions were never trained: numbers would be quietly wrong.
        if self.max_length is not None and tokens > self.max_length:
            raise ValueError(
                f"{self.name} reads at most {self.max_length:,} tokens and this text reaches "
                f"{tokens:,}: shorten the prompt or max_new_tokens."
            )

    def _rows(
        self, last: torch.Tensor, hidden: torch.Tensor, tapped: dict[int, torch.Tensor]
    ) -> Rows:
        taps = {tap: hidden if tap == FINAL else tapped[tap] for tap in self._taps}
        return Rows(self.unembed(last), taps)


def _refuse_unfit(model: Any) -> None:
    config, name = model.config.get_text_config(), type(model).__name__
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{name} has an encoder: the torch target takes decoders only.")
    if not hasattr(model.get_decoder(), "layers"):
        raise ValueError(
            f"{name} does not keep its decoder layers where this target looks for them: use a "
            "dense Llama- or Qwen-like model."
        )
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None and window and getattr(config, "use_sliding_window", True):
        kinds = ["sliding_attention"]
    other = sorted(set(kinds or []) - {"full_attention"})
    if other:
        raise ValueError(
            f"{name} has layers of {', '.join(other)}: the torch target rewinds full attention "
            "only. Use a dense Llama- or Qwen-like model."
        )


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            found.update(ids if isinstance(ids, (list, tuple)) else [ids])
    return frozenset(int(i) for i in found)
