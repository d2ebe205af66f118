"""The training loop: AdamW, a cosine, checkpoints that survive a kill, a log that draws a curve."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm.auto import tqdm

from specviz.refuse import whole
from specviz.trace.store import made, placed
from specviz.training.batches import Batch, batch_of, shuffled_batches
from specviz.training.corpus import Corpus
from specviz.training.held_out import evaluate
from specviz.training.students import Student

CHECKPOINT = "checkpoint.safetensors"
LOG = "log.jsonl"


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn.

    Attributes
    ----------
    steps
        Optimiser steps.
    rate
        Highest learning rate; it rises over the first 5 % of the steps, then falls along a
        cosine to a twentieth.
    batch_tokens
        Answer tokens per step, about.
    seed
        Of the order of the batches.
    evaluate_every, save_every
        Steps between two measurements on held-out answers, and between two checkpoints.
    """

    steps: int = 1400
    rate: float = 1e-3
    batch_tokens: int = 640
    seed: int = 0
    evaluate_every: int = 150
    save_every: int = 40

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "evaluate_every", "save_every"):
            whole(name, getattr(self, name), 1)
        whole("seed", self.seed, 0)
        if not 0 < self.rate < math.inf:
            raise ValueError(f"A learning rate is above 0, such as 1e-3, not {self.rate}.")

    def at(self, step: int) -> float:
        """Learning rate of a step (0 is the first)."""
        warm = max(1, self.steps // 20)
        if step < warm:
            return self.rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def train(
    student: Student,
    corpus: Corpus,
    held_out: Corpus,
    out: str | Path,
    schedule: Schedule,
    *,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Train until the schedule ends; go on from the checkpoint in `out` if there is one.

    Parameters
    ----------
    corpus, held_out
        Answers to learn from and, of other prompts, to measure on.
    out
        Folder of the checkpoint and of the log. Killed at any time, a training goes on from
        its last checkpoint, with the same batches in the same order.

    Returns
    -------
    list of dict
        The log: one row per content type and evaluation (see `evaluate`), with step, tokens
        (answer tokens trained on), hours (of training) and train_loss.

    Raises
    ------
    ValueError
        When the checkpoint belongs to another training, or is damaged.
    """
    folder = made(out)
    lengths = [len(answer) for _, answer in corpus.texts()]
    device = next(student.net.parameters()).device
    asked = json.dumps(
        {
            "family": student.family,
            "objective": student.objective,
            **asdict(schedule),
            "rows": len(corpus),
            "tokens": sum(lengths),
        }
    )
    trained = {name: p for name, p in student.net.named_parameters() if p.requires_grad}
    optimiser = torch.optim.AdamW(trained.values(), betas=(0.9, 0.95), weight_decay=0.01)
    state = _resume(folder / CHECKPOINT, asked, trained, optimiser)
    log = _read_log(folder / LOG, state.step)
    tests = [
        batch_of(held_out, rows, device) for rows in _in_order(held_out, schedule.batch_tokens)
    ]

    def measure() -> None:
        rows = evaluate(student, tests, held_out)
        when = {
            "step": state.step,
            "tokens": state.tokens,
            "hours": state.seconds / 3600,
            "train_loss": None if state.step == 0 else state.loss,
        }
        log.extend({**when, **row} for row in rows)
        _write_log(folder / LOG, log)

    if not log:
        measure()
    with tqdm(
        total=schedule.steps, initial=state.step, desc=student.family, disable=not progress
    ) as bar:
        for rows in _batches(lengths, schedule, state.step):
            began = time.perf_counter()
            for group in optimiser.param_groups:
                group["lr"] = schedule.at(state.step)
            loss, size = _step(student, batch_of(corpus, rows, device), optimiser, trained)
            state.loss = loss if state.step == 0 else 0.95 * state.loss + 0.05 * loss
            state.step, state.tokens = state.step + 1, state.tokens + size
            state.seconds += time.perf_counter() - began
            bar.update()
            bar.set_postfix(loss=f"{state.loss:.3f}", refresh=False)
            last = state.step == schedule.steps
            if state.step % schedule.evaluate_every == 0 or last:
                measure()
            if state.step % schedule.save_every == 0 or last:
                _save(folder / CHECKPOINT, asked, trained, optimiser, state)
    return log


@dataclass
class _State:
    """Where a training stands."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float = 0.0


def _step(
    student: Student,
    batch: Batch,
    optimiser: torch.optim.Optimizer,
    trained: dict[str, torch.nn.Parameter],
) -> tuple[float, int]:
    student.net.train()
    optimiser.zero_grad(set_to_none=True)
    loss, first = student.loss(batch)
    if not torch.isfinite(loss):
        raise ValueError("The loss is no longer a number: lower the learning rate and start anew.")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained.values(), 1.0)
    optimiser.step()
    return first, batch.size


def _batches(lengths: Sequence[int], schedule: Schedule, done: int) -> Iterator[list[int]]:
    """Batches `done`, done + 1, ... of the schedule, over as many epochs as it takes."""
    number = epoch = 0
    while True:
        for rows in shuffled_batches(lengths, schedule.batch_tokens, schedule.seed, epoch):
            if number == schedule.steps:
                return
            if number >= done:
                yield rows
            number += 1
        epoch += 1


def _in_order(corpus: Corpus, tokens: int) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    size = 0
    for row, (_, answer) in enumerate(corpus.texts()):
        if size >= tokens:
            batches.append([])
            size = 0
        batches[-1].append(row)
        size += len(answer)
    return batches


def _save(
    file: Path,
    asked: str,
    trained: dict[str, torch.nn.Parameter],
    optimiser: torch.optim.Optimizer,
    state: _State,
) -> None:
    tensors = {f"net.{name}": p.detach().cpu() for name, p in trained.items()}
    for name, p in trained.items():
        for key, value in optimiser.state[p].items():
            tensors[f"{key}.{name}"] = torch.as_tensor(value).cpu()
    with placed(file) as temporary:
        save_file(tensors, temporary, {"asked": asked, "state": json.dumps(asdict(state))})


def _resume(
    file: Path,
    asked: str,
    trained: dict[str, torch.nn.Parameter],
    optimiser: torch.optim.Optimizer,
) -> _State:
    if not file.exists():
        return _State()
    try:
        with safe_open(file, "pt") as kept:
            said = kept.metadata()
            if said["asked"] != asked:
                raise ValueError(
                    f"{file} belongs to a training with other settings or another corpus "
                    f"({said['asked']}): use another folder, or delete it to start anew."
                )
            with torch.no_grad():
                for name, p in trained.items():
                    p.copy_(kept.get_tensor(f"net.{name}"))
                    optimiser.state[p] = {
                        key: kept.get_tensor(f"{key}.{name}").to(
                            "cpu" if key == "step" else p.device
                        )
                        for key in ("step", "exp_avg", "exp_avg_sq")
                    }
            return _State(**json.loads(said["state"]))
    except (SafetensorError, OSError, KeyError) as error:
        raise ValueError(
            f"{file} is damaged ({str(error).splitlines()[0]}): delete it to start anew."
        ) from None


def _read_log(file: Path, step: int) -> list[dict[str, Any]]:
    """What was measured up to a step; later rows belong to steps that will be made again."""
    if not file.exists() or step == 0:
        return []
    try:
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
        return [row for row in rows if row["step"] <= step]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{file} is damaged: delete it to go on without the earlier part of the curve."
        ) from None


def _write_log(file: Path, log: Sequence[dict[str, Any]]) -> None:
    lines = [json.dumps(row) for row in log]
    with placed(file) as temporary:
        temporary.write_text("\n".join(lines) + "\n", "utf-8")
