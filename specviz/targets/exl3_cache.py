"""exllamav3's caches: pages of attention, and the state of recurrent layers with its rewind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

#: Tokens per page, everywhere in exllamav3.
PAGE = 256


def at(cache: Any, length: int, tables: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Parameters of a forward that writes behind `length` tokens; a fresh dict per call.

    Parameters
    ----------
    tables
        Per text of the batch, the physical page of each of its pages.
    """
    return {
        "attn_mode": "flash_attn",
        "cache": cache,
        "block_table": torch.tensor([list(table) for table in tables], dtype=torch.int32),
        "cache_seqlens": torch.full((len(tables),), length, dtype=torch.int32),
    }


class Pages:
    """Which physical page holds which page of the one sequence, and copies of it for branches.

    All pages belong to the sequence. The ones that it has not reached yet are lent to branches,
    and the branch that is kept is kept by exchanging pages, not by copying them.
    """

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.table = list(range(cache.max_num_tokens // PAGE))
        self._branches: list[list[int]] = []
        self._span = range(0)

    @torch.inference_mode()
    def branch(self, length: int, width: int, branches: int) -> list[list[int]]:
        """Page tables of branches that write `width` tokens behind `length` shared ones.

        Raises
        ------
        ValueError
            When there are not enough free pages.
        """
        self._span = range(length // PAGE, (length + width - 1) // PAGE + 1)
        free, shared = self.table[self._span.stop :], length % PAGE
        needed = len(self._span) * (branches - 1)
        if needed > len(free):
            raise ValueError(
                f"A tree of {branches} paths needs {needed} free pages of {PAGE} tokens and the "
                f"cache has {len(free)}: draft a narrower tree, or load with more tokens."
            )
        self._branches = [list(self.table)]
        for number in range(branches - 1):
            own = free[number * len(self._span) : (number + 1) * len(self._span)]
            table = list(self.table)
            table[self._span.start : self._span.stop] = own
            if shared:
                first = self.table[self._span.start]
                self.cache.copy_page(self.cache, first, own[0], shared)
            self._branches.append(table)
        return self._branches

    def keep(self, branch: int) -> None:
        """Go on with the pages of one branch."""
        for place in self._span:
            own = self._branches[branch][place]
            other = self.table.index(own)
            self.table[other], self.table[place] = self.table[place], own
        self.drop()

    def drop(self) -> None:
        """Forget the branches."""
        self._branches, self._span = [], range(0)


def conv_window(modules: Iterable[Any]) -> int:
    """Inputs that the widest convolution of some recurrent layers looks back on, 0 without any."""
    return max((int(getattr(module, "conv_kernel_size", 0)) for module in modules), default=0)


class Recurrent:
    """The state of a model's recurrent layers, for one sequence.

    A provisional pass (a verification) leaves the committed state alone: `keep(n)` settles it
    after its first n tokens, and `undo()` as if it had not been. Models without such layers
    need none of it.

    exllamav3's `GDNState` has two rows per sequence: a pass with history reads one and writes
    the other, and its `rewind` replays the accepted tokens. It settles whole rounds only, and a
    pass of one token not at all; those two cases are added here.
    """

    def __init__(self, model: Any, cache: Any, name: str) -> None:
        self.cache = cache
        # A family of hybrids may have a member without such layers.
        self.needed = bool(model.caps.get("recurrent_states") and cache.recurrent_layers)
        self._state: Any = None
        self._rows = 0  # tokens of the provisional pass
        kind = getattr(cache.recurrent_state_cls, "__name__", "") if self.needed else ""
        states = cache.recurrent_layers.values()
        layers = {type(layer).__name__ for layer in states}
        #: Most tokens of a provisional pass: its inputs must not reach the convolution's window.
        self.widest = cache.max_history - conv_window(layer.module for layer in states)
        self._refusal = ""
        if self.needed and (kind != "GDNState" or layers != {"GDNLayerState"}):
            self._refusal = (
                f"{name} has recurrent layers of {', '.join(sorted(layers)) or kind}: this target "
                "rewinds full attention, Gated DeltaNet and Mamba2 only. Watch the library's own "
                "generator with observe_exl3 instead."
            )
        self.nbytes = sum(layer.storage_size() for layer in cache.recurrent_layers.values())

    @torch.inference_mode()
    def start(self) -> None:
        """A fresh state for a new sequence.

        Raises
        ------
        ValueError
            For layers that cannot be rewound here.
        """
        if self._refusal:
            raise ValueError(self._refusal)
        self.drop()
        if self.needed:
            self._state = self.cache.get_new_state()

    def drop(self, given_back: bool = False) -> None:
        """Give the slot back; `given_back` says that the cache has taken all of them already."""
        if self._state is not None and not given_back:
            self._state.free()
        if given_back and self.needed:
            self.cache.reset_states()
        self._state, self._rows = None, 0

    def params(self, provisional: bool) -> dict[str, Any]:
        """What a forward has to be told."""
        if not self.needed:
            return {}
        return {"recurrent_states": [self._state], "recurrent_history": provisional}

    def check_width(self, rows: int) -> None:
        """Raise ValueError for a pass that could not be undone."""
        self._rows = rows
        if self.needed and rows > self.widest:
            raise ValueError(
                f"This hybrid target was loaded for drafts of at most {self.widest - 1} "
                f"tokens, and this one has {rows - 1}: load it with max_draft={rows - 1}."
            )

    @torch.inference_mode()
    def keep(self, rows: int) -> None:
        """Settle the last pass after its first `rows` tokens."""
        if self.needed:
            # One token counts as no history to the library, which would not turn the rows over.
            self._state.last_history = max(self._rows - 1, 1)
            self._state.rewind(self._rows - rows)
        self._rows = 0

    def undo(self, length: int) -> None:
        """Stand behind `length` tokens again, as if the last pass had not been, or been broken off.

        A provisional pass writes neither the row of state that it reads nor, of at most
        `widest` tokens, over the convolution's window: only the count has gone on.
        """
        if self._state is not None:
            self._state.position, self._state.last_history = length, 0
        self._rows = 0
