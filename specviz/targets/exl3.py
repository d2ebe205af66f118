"""An exllamav3 model as a target, by the library's low-level forward.

Attention is rewound by writing over it: nothing is erased, the next forward writes where the
rejected rows lie. Recurrent layers keep a state that has to be stepped back (`Recurrent`).
exllamav3 has no tree mask; a tree is verified as a batch of its root-to-leaf paths (`paths`)
where every layer is full attention, and refused elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from specviz.engine.inputs import Ids, check_ids
from specviz.engine.protocols import FINAL, Draft, Rows
from specviz.targets.exl3_cache import PAGE, Pages, Recurrent, at
from specviz.targets.exl3_paths import Paths
from specviz.targets.text import TextCodec


class Exl3Target:
    """A target of exllamav3's, on one or more GPUs; made by `specviz.load_exl3`.

    Parameters
    ----------
    model, cache
        exllamav3's, the cache made before the model's weights were loaded.
    tokenizer
        A transformers tokenizer of the same folder; logits are cropped to the tokens it knows.
    name, caption, fingerprint
        `caption` is what pictures say of the weights, `fingerprint` changes with them.
    chunk
        Most prompt tokens of one forward pass.

    Raises
    ------
    ValueError
        When the cache came after the weights; by `prefill`, when the model has layers that
        this target cannot rewind.

    Notes
    -----
    Rows carry the quantised model's own fp16 logits. Not verified on T4: what ran is the
    library's Python code with CPU operator stand-ins.
    """

    trees_as_paths = True  # more rows are forwarded than a tree has nodes

    def __init__(
        self,
        model: Any,
        cache: Any,
        tokenizer: Any,
        name: str,
        caption: str = "",
        fingerprint: str = "",
        chunk: int = 1024,
    ) -> None:
        if not cache.initialized:
            raise ValueError("The cache has no tensors: make it before the model's weights load.")
        self.model, self.cache, self.codec = model, cache, TextCodec(tokenizer)
        self.name, self.caption, self.fingerprint = name, caption or name, fingerprint
        self.chunk = chunk
        # The output head is padded, and may have more rows than the tokenizer has tokens.
        self.vocab_size = min(model.config.vocab_size, self.codec.size)
        self.eos_ids = frozenset(i for i in model.config.eos_token_id_list if i is not None)
        self.dtype = "float16"
        self.session = self.verifies = 0
        self.rows_forwarded = 0  # by verify since the last prefill; of a tree, all its paths' rows
        self._pages = Pages(cache)
        self._recurrent = Recurrent(model, cache, name)
        self.supports_trees = not self._recurrent.needed
        self._peak = 0
        self._forget()

    def _forget(self) -> None:
        self._text: list[int] = []  # what the cache holds: prompt and committed tokens
        self._taps: tuple[int, ...] = ()
        self._pending: tuple[Draft, Paths | None] | None = None

    @property
    def device(self) -> str:
        """Devices of the layers, the first layer's first."""
        placed = [str(module.device) for module in self.model.modules if module.device is not None]
        return ", ".join(dict.fromkeys(d for d in placed if d != "cpu")) or "cpu"

    @property
    def max_draft(self) -> int | None:
        """Most drafted tokens of a round, where recurrent layers set a limit; else None."""
        return self._recurrent.widest - 1 if self._recurrent.needed else None

    def prefill(self, prompt: Ids, taps: Sequence[int] = ()) -> Rows:
        """Start a sequence; see `Target.prefill`."""
        check_ids(prompt, self.vocab_size)
        layers = self.model.config.num_hidden_layers
        for tap in taps:
            if tap != FINAL and not 0 < tap <= layers:
                raise ValueError(f"No hidden state after layer {tap}: {self.name} has {layers}.")
        self.check_room(len(prompt) + 1)
        self.session += 1
        self.verifies = self.rows_forwarded = 0
        self._forget()
        self._taps, self._peak = tuple(taps), len(prompt)
        return self._read(prompt)

    def verify(self, draft: Draft) -> Rows:
        """Rows after the anchor and after every node; see `Target.verify`."""
        check_ids((draft.anchor, *draft.tokens), self.vocab_size)
        if not draft.is_chain and not self.supports_trees:
            raise ValueError(
                f"{self.name} verifies a chain of tokens, not a tree: its recurrent layers have "
                "one state, not one per branch. Draft a chain."
            )
        start = len(self._text)
        if not start:  # none was given, or reading it was broken off
            raise RuntimeError("Nothing to verify a draft behind: prefill a prompt first.")
        self.check_room(start + 1 + draft.depth)
        # A verification that was never committed, or was broken off, leaves nothing behind.
        self._recurrent.undo(start)
        self._pages.drop()
        self._pending = None
        if draft.is_chain:
            paths = None
            self._recurrent.check_width(1 + len(draft))
            logits, taken = self._forward(
                [(draft.anchor, *draft.tokens)], start, [self._pages.table], provisional=True
            )
            rows = Rows(logits[0], {tap: states[0] for tap, states in taken.items()})
            self.rows_forwarded += 1 + len(draft)
        else:
            paths = Paths.of(draft)
            tables = self._pages.branch(start, paths.width, len(paths.tokens))
            logits, taken = self._forward(paths.tokens, start, tables)
            rows = Rows(paths.gather(logits), {tap: paths.gather(s) for tap, s in taken.items()})
            self.rows_forwarded += len(paths.tokens) * paths.width
        self._pending = draft, paths
        self.verifies += 1
        self._peak = max(self._peak, start + 1 + len(draft))
        return rows

    def commit(self, path: Sequence[int]) -> None:
        """Keep the anchor and the nodes of `path`; see `Target.commit`."""
        if self._pending is None:
            raise RuntimeError("Nothing to commit: verify a draft first.")
        draft, paths = self._pending
        draft.check_path(path)
        if paths is not None and path:
            self._pages.keep(paths.row_of(path[-1]))
        elif paths is not None:
            self._pages.keep(0)  # every path has the anchor
        else:
            self._recurrent.keep(1 + len(path))
        self._text += [draft.anchor, *(draft.tokens[node] for node in path)]
        self._pending = None

    @torch.inference_mode()
    def unembed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [m, vocabulary] of final hidden states, by the model's own head."""
        head = self.model.modules[self.model.logit_layer_idx]
        params: dict[str, Any] = {}
        wide = hidden.half().contiguous()[None]
        logits: torch.Tensor = head.forward(head.prepare_for_device(wide, params), params)
        return logits[0, :, : self.vocab_size]

    def memory(self) -> dict[str, int]:
        """Slots and bytes of keys and values at the peak, and rows that `verify` forwarded.

        `verified_rows` counts every row of a tree's paths, padding included: more than its
        nodes. `recurrent_bytes` is what recurrent layers take, however long the text is.
        """
        layers = self.cache.layers.values()
        slot = int(sum(layer.storage_size() for layer in layers)) // self.cache.max_num_tokens
        return {
            "peak_slots": self._peak,
            "peak_cache_bytes": self._peak * slot,
            "verified_rows": self.rows_forwarded,
            "recurrent_bytes": int(self._recurrent.nbytes),
        }

    def synchronize(self) -> None:
        """Wait for every device, so that a clock read now means something."""
        if torch.cuda.is_available():
            for device in range(torch.cuda.device_count()):
                torch.cuda.synchronize(device)

    @contextlib.contextmanager
    def lent(self) -> Iterator[Any]:
        """The model for someone else's use, such as exllamav3's Generator; older runs close."""
        self._recurrent.drop()
        self.session += 1
        self._forget()
        try:
            yield self.model
        finally:
            self._recurrent.drop(given_back=True)

    def _read(self, prompt: Ids) -> Rows:
        """Forward a text from nothing, in chunks; hidden states of all of it."""
        self._recurrent.start()
        kept: dict[int, list[torch.Tensor]] = {tap: [] for tap in self._taps}
        for low in range(0, len(prompt), self.chunk):
            part = prompt[low : low + self.chunk]
            logits, taken = self._forward([part], low, [self._pages.table], last_tokens_only=1)
            for tap, states in taken.items():
                kept[tap].append(states[0])
        self._text = list(prompt)
        return Rows(logits[0], {tap: torch.cat(parts) for tap, parts in kept.items()})

    @torch.inference_mode()
    def _forward(
        self,
        tokens: Sequence[Ids],
        start: int,
        tables: Sequence[Sequence[int]],
        provisional: bool = False,
        **options: int,
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Logits [batch, rows, vocabulary] of texts side by side, and their hidden states."""
        params = at(self.cache, start, tables) | self._recurrent.params(provisional) | options
        layers = sorted(tap for tap in self._taps if tap != FINAL)
        params["export_state_layers"] = {tap - 1 for tap in layers}  # numbered by layer output
        if FINAL in self._taps:
            norm = self.model.modules[self.model.logit_layer_idx - 1]
            params["export_state_norm_keys"] = {norm.key}
        logits = self.model.forward(torch.tensor([list(row) for row in tokens]), params)
        order = [*layers, FINAL] if FINAL in self._taps else layers
        taken = dict(zip(order, params.get("export_states", ()), strict=True))  # as executed
        return logits[..., : self.vocab_size], taken

    def check_room(self, tokens: int) -> None:
        """Raise ValueError for a text that the cache cannot hold."""
        if tokens > self.cache.max_num_tokens:
            raise ValueError(
                f"{self.name} was loaded with a cache of {self.cache.max_num_tokens:,} tokens and "
                f"this text reaches {tokens:,}: load it with tokens={-(-tokens // PAGE) * PAGE}."
            )
