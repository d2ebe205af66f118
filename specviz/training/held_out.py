"""Answers kept from training, and how far a student's drafts would go on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specviz.training.batches import Batch
from specviz.training.corpus import Corpus
from specviz.training.students import Student

#: Longest draft of the measurement, as in the article.
K = 7
#: Held-out answers of each content type.
PER_TYPE = 6


def hold_out(corpus: Corpus, per_type: int = PER_TYPE) -> tuple[Corpus, Corpus]:
    """Split off greedy answers of every content type; returns (training, held out).

    The first greedy answers of each type are held out: prompts all differ, so none of them is
    trained on. Greedy, because tokens per round are measured on greedy decoding.

    Raises
    ------
    ValueError
        When so few answers are left that there is nothing to train on.
    """
    kinds = corpus.table["content_type"].to_pylist()
    warm = corpus.table["temperature"].to_pylist()
    found: dict[str, list[int]] = {}
    for row, (kind, temperature) in enumerate(zip(kinds, warm, strict=True)):
        rows = found.setdefault(kind, [])
        if temperature == 0 and len(rows) < per_type:
            rows.append(row)
    held = sorted(row for rows in found.values() for row in rows)
    left = sorted(set(range(len(corpus))) - set(held))
    if not held or len(left) < len(held):
        raise ValueError(
            f"A corpus of {len(corpus)} answers is too small to hold {len(held)} out and learn "
            "from the others: build a larger one, with greedy answers in it."
        )
    return corpus.select(left), corpus.select(held)


@torch.inference_mode()
def evaluate(student: Student, batches: Sequence[Batch], corpus: Corpus) -> list[dict[str, Any]]:
    """Held-out loss and tokens per round, by content type and over all.

    Parameters
    ----------
    batches
        The corpus' rows in order.

    Returns
    -------
    list of dict
        content_type; loss: cross-entropy (nats) of the first drafted token with the target's
        distribution over the reduced vocabulary, over all types together; tokens_per_round:
        greedy, k = 7, the target's own token counted, answers walked from their first token;
        rounds; prompts.
    """
    student.net.eval()
    walks: list[tuple[int, int]] = []
    losses, sizes = [], []
    for batch in batches:
        matches, loss = student.matches(batch, K)
        losses.append(loss)
        sizes.append(batch.size)
        accepted = matches.long().cumprod(-1).sum(-1).cpu().numpy()
        walks += [
            walk(row, length) for row, length in zip(accepted, batch.lengths.tolist(), strict=True)
        ]
    kinds = np.array(corpus.table["content_type"].to_pylist())
    emitted, rounds = np.array(walks).T
    rows = []
    for kind in [*sorted(set(kinds.tolist())), "all"]:
        mine = (kinds == kind) | (kind == "all")
        rows.append(
            {
                "content_type": kind,
                "loss": float(np.average(losses, weights=sizes)),
                "tokens_per_round": float(emitted[mine].sum() / max(rounds[mine].sum(), 1)),
                "rounds": int(rounds[mine].sum()),
                "prompts": int(mine.sum()),
            }
        )
    return rows


def walk(matched: np.ndarray, length: int) -> tuple[int, int]:
    """(tokens emitted, rounds) of an answer, given the matches at every anchor.

    Examples
    --------
    >>> walk(np.array([2, 0, 0, 1, 0]), 6)      # 3 tokens, then 2: the answer is over
    (5, 2)
    """
    anchor = rounds = 0
    while anchor < length - 1:
        anchor = min(anchor + int(matched[anchor]) + 1, length - 1)
        rounds += 1
    return length - 1, rounds
