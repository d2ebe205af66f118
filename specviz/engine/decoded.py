"""Plain decoding, greedy or sampled, with everything capture needs to know of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from specviz.engine.observe import (
    CHUNK,
    RowStats,
    concatenate,
    row_stats,
    sampled_logp,
    token_stats,
)
from specviz.engine.protocols import FINAL, Draft, Target
from specviz.engine.sampling import Dice, Sampling


class Decoded:
    """The target's own output with its statistics and hidden states.

    At a temperature above 0 one token is drawn per position from a generator seeded with
    `seed`: the output is the one that a live run with this seed and `SampleMatch` gives.
    Logits are reduced in chunks and dropped; what a drafter needs of them again is
    recomputed from the final hidden states.
    """

    def __init__(
        self,
        target: Target,
        ids: tuple[int, ...],
        taps: Sequence[int],
        max_new_tokens: int,
        k: int,
        sampling: Sampling,
        seed: int,
        tick: Callable[[int], Any],
    ) -> None:
        self.target = target
        self.tokens: list[int] = []
        self.seconds = 0.0
        parts: list[RowStats] = []
        logp: list[Any] = []
        sampled: list[Any] = []
        rank: list[Any] = []
        dice = Dice(torch.Generator().manual_seed(seed))
        pending: list[torch.Tensor] = []
        collected: dict[int, list[torch.Tensor]] = {tap: [] for tap in taps}

        def reduce() -> None:
            if not pending:
                return
            rows = torch.cat(pending)
            tokens = torch.tensor(self.tokens[-len(pending) :], device=rows.device)
            parts.append(row_stats(rows))
            mine, places = token_stats(rows, tokens)
            logp.extend(mine.tolist())
            sampled.extend(sampled_logp(rows, tokens, sampling).tolist())
            rank.extend(places.tolist())
            pending.clear()

        rows = target.prefill(ids, taps)
        target.synchronize()
        began = time.perf_counter()
        while True:
            for tap in taps:
                collected[tap].append(rows.taps[tap])
            pending.append(rows.logits[-1:])
            row = rows.logits[-1:]
            token = int(row.argmax()) if sampling.greedy else dice.draw(sampling.probs(row)[0])
            self.tokens.append(token)
            size, last = len(self.tokens), self.tokens[-1]
            if size == max_new_tokens or (last in target.eos_ids and size < max_new_tokens):
                target.synchronize()
                self.seconds = time.perf_counter() - began
            if size <= max_new_tokens:
                tick(1)
            # Text after an end of text is neither accepted nor rejected: do not decode it.
            if last in target.eos_ids or size == max_new_tokens + k:
                break
            if len(pending) == CHUNK:
                reduce()
            rows = target.verify(Draft(last))
            target.commit(())
        reduce()
        self.stats = concatenate(parts)
        self.logp, self.logp_sampled, self.rank = logp, sampled, rank
        self.taps = {tap: torch.cat(states) for tap, states in collected.items()}
        self._first = len(ids) - 1  # hidden row that produced output token 0

    def logits(self, low: int, high: int) -> torch.Tensor:
        hidden = self.taps[FINAL][self._first + low : self._first + high]
        return self.target.unembed(hidden)
