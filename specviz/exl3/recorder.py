"""exllamav3's Generator, watched: every round's draft, verified rows and times."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from specviz.engine.observe import RowStats, row_stats, sampled_logp, token_stats
from specviz.engine.sampling import Sampling


@dataclass
class Watched:
    """One round of one job.

    Attributes
    ----------
    draft, tokens
        What was drafted, and what was emitted: accepted tokens and the target's own.
    stats
        Of every verified row; rows behind the accepted ones are conditioned on rejected tokens.
    logp, sampled, rank
        ln p of every emitted token, raw and as sampled, and its rank.
    seconds
        Drafting, verifying and the rest of the whole batch's round; NaN when not timed.
    """

    draft: tuple[int, ...]
    tokens: tuple[int, ...]
    stats: RowStats
    logp: list[float]
    sampled: list[float]
    rank: list[int]
    seconds: tuple[float, float, float]


@dataclass
class _Round:
    """What is known of the round in progress."""

    logits: torch.Tensor | None = None
    verify: float = 0.0
    jobs: list[Any] = field(default_factory=list)


def recorder(generator_class: Any) -> type:
    """A subclass of the library's Generator that records; made when the library is there.

    It overrides `iterate_gen` and the four ways to draft, and puts itself in front of the
    target's `forward` while it works. Logits are reduced on the device, before the sampler
    masks them in place.
    """

    class Recorder(generator_class):
        def __init__(
            self,
            *,
            vocab_size: int,
            sampling: Sampling,
            wait: Callable[[], None] | None,
            **made: Any,
        ) -> None:
            super().__init__(**made)
            self.rounds: dict[int, list[Watched]] = {}  # by the job's serial number
            self._shaped, self._width, self._wait = sampling, vocab_size, wait
            self._round: _Round | None = None
            self._drafting = 0.0
            self._forward = self.model.forward
            self.model.forward = self._watched

        def close(self) -> None:
            """Take itself out of the model's way, and give back what the library holds for it.

            That may be gigabytes of the computer's memory, for checkpoints of recurrent states.
            """
            if self.model.__dict__.get("forward") == self._watched:
                del self.model.forward  # the class's own is there again
            super().close()

        def _clock(self) -> float:
            if self._wait is None:
                return float("nan")
            self._wait()
            return time.perf_counter()

        def _watched(self, input_ids: torch.Tensor, params: dict[str, Any] | None = None) -> Any:
            began = self._clock() if self._round is not None else 0.0
            out = self._forward(input_ids=input_ids, params=params)
            if self._round is not None and out is not None:
                self._round.logits = out[..., : self._width].clone()
                self._round.verify = self._clock() - began
            return out

        def _timed(self, draft: Callable[[], Any]) -> Any:
            began = self._clock()
            made = draft()
            self._drafting = self._clock() - began
            return made

        def iterate_draftmodel_gen(self, results: list[Any], window: int) -> Any:
            drafting = super().iterate_draftmodel_gen
            return self._timed(lambda: drafting(results, window))

        def iterate_draftmodel_mtp_gen(self, results: list[Any], window: int) -> Any:
            drafting = super().iterate_draftmodel_mtp_gen
            return self._timed(lambda: drafting(results, window))

        def iterate_draftmodel_dflash_gen(self, results: list[Any], window: int) -> Any:
            drafting = super().iterate_draftmodel_dflash_gen
            return self._timed(lambda: drafting(results, window))

        def iterate_ngram_gen(self, results: list[Any]) -> Any:
            drafting = super().iterate_ngram_gen
            return self._timed(lambda: drafting(results))

        def iterate_gen(self, results: list[Any], draft_tokens: torch.Tensor | None = None) -> None:
            jobs = [job for job in self.active_jobs if job.is_prefill_done()]
            before = [len(job.sequences[0].sequence_ids) for job in jobs]
            # The library uses one buffer for every round's draft.
            drafts = None if draft_tokens is None else draft_tokens[: len(jobs)].tolist()
            drafting, self._drafting = self._drafting, 0.0
            began, self._round = self._clock(), _Round()
            try:
                super().iterate_gen(results, draft_tokens)
                ended, seen = self._clock(), self._round
            finally:
                self._round = None
            if not jobs or seen.logits is None:
                return
            seconds = drafting, seen.verify, ended - began - seen.verify
            for row, job in enumerate(jobs):
                text = job.sequences[0].sequence_ids
                tokens = text.torch_slice(before[row], len(text))[0].tolist()
                kept = self._watch(seen.logits[row], drafts[row] if drafts else [], tokens, seconds)
                self.rounds.setdefault(job.serial_number, []).append(kept)

        def _watch(
            self,
            logits: torch.Tensor,
            draft: list[int],
            tokens: list[int],
            seconds: tuple[float, float, float],
        ) -> Watched:
            used = logits[: len(tokens)]
            emitted = torch.tensor(tokens, device=logits.device)
            logp, rank = token_stats(used, emitted)
            sampled = sampled_logp(used, emitted, self._shaped)
            return Watched(
                tuple(draft),
                tuple(tokens),
                row_stats(logits),
                logp.tolist(),
                sampled.tolist(),
                rank.tolist(),
                seconds,
            )

    return Recorder
