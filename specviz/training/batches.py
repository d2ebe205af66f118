"""Corpus rows side by side: answers begin in the same column, prompts end there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specviz.training.corpus import Corpus


@dataclass(frozen=True)
class Batch:
    """Texts of one training step.

    Attributes
    ----------
    tokens
        [batch, columns]; padded with 0 on the left of prompts and on the right of answers.
    states
        [batch, columns, taps, hidden] (fp32), row t holding what the target held at token t.
    pads
        Padding columns before each prompt.
    lengths
        Answer tokens of each row.
    start
        Column of every answer's first token.
    """

    tokens: torch.Tensor
    states: torch.Tensor
    pads: torch.Tensor
    lengths: torch.Tensor
    start: int

    @property
    def positions(self) -> torch.Tensor:
        """Position of every column in its own text, [batch, columns]."""
        columns = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (columns - self.pads[:, None]).clamp(min=0)

    def causal(self, skip: int = 0) -> torch.Tensor:
        """Bool [batch, columns, columns]: each column sees itself and the earlier ones, but for
        padding and a text's first `skip` tokens."""
        columns = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        real = columns >= self.pads[:, None] + skip
        return ((columns <= columns[:, None]) & real[:, None]) | torch.eye(
            len(columns), dtype=torch.bool, device=columns.device
        )

    def teaches(self, depth: int) -> torch.Tensor:
        """Bool [batch, answer columns]: whether an answer token `depth` later exists."""
        columns = torch.arange(self.tokens.shape[1] - self.start, device=self.tokens.device)
        return columns + depth < self.lengths[:, None]

    @property
    def size(self) -> int:
        """Answer tokens in all."""
        return int(self.lengths.sum())


def batch_of(corpus: Corpus, rows: Sequence[int], device: torch.device) -> Batch:
    """The named rows of a corpus as one batch."""
    texts = corpus.select(rows).texts()
    return side_by_side(
        [(p, a, corpus.states(row)) for row, (p, a) in zip(rows, texts, strict=True)], device
    )


def side_by_side(
    texts: Sequence[tuple[Sequence[int], Sequence[int], torch.Tensor]], device: torch.device
) -> Batch:
    """(prompt ids, answer ids, states [prompt + answer - 1, taps, hidden]) as one batch."""
    start = max(len(prompt) for prompt, _, _ in texts)
    columns = start + max(len(answer) for _, answer, _ in texts)
    tokens = torch.zeros(len(texts), columns, dtype=torch.long)
    states = torch.zeros(len(texts), columns, *texts[0][2].shape[1:])
    for place, (prompt, answer, held) in enumerate(texts):
        first = start - len(prompt)
        tokens[place, first : start + len(answer)] = torch.tensor([*prompt, *answer])
        states[place, first : first + len(held)] = held.float()
    return Batch(
        tokens.to(device),
        states.to(device),
        torch.tensor([start - len(prompt) for prompt, _, _ in texts], device=device),
        torch.tensor([len(answer) for _, answer, _ in texts], device=device),
        start,
    )


def shuffled_batches(
    lengths: Sequence[int] | np.ndarray, tokens: int, seed: int, epoch: int
) -> Iterator[list[int]]:
    """Rows of one epoch in batches of about `tokens` answer tokens, of like length.

    The order depends on the seed and the epoch only, so that a resumed run goes on with the
    batches it would have had.
    """
    lengths = np.asarray(lengths)
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    batches: list[list[int]] = []
    stretch = 64  # rows sorted among themselves: little padding, still a random order
    for low in range(0, len(order), stretch):
        part = order[low : low + stretch]
        batch: list[int] = []
        for row in part[np.argsort(lengths[part], kind="stable")].tolist():
            batch.append(row)
            if lengths[batch].sum() >= tokens:
                batches.append(batch)
                batch = []
        if batch:
            batches.append(batch)
    for index in rng.permutation(len(batches)):
        yield batches[index]
