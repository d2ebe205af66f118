"""From what a drafter says at every position to its draft at every anchor.

A drafter that sees only tokens is suffix-consistent: while its draft follows the realised
output, the draft from anchor a is the tail of the draft from any earlier anchor (F7.5). So
one prediction per position and one off-path tail per mismatch hold every draft.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from specviz.engine.observe import CHUNK, PairStats
from specviz.engine.protocols import Drafts, Reference
from specviz.engine.sampling import in_full
from specviz.trace.schema import TOP_DRAFT


@dataclass(frozen=True)
class Predictions:
    """A drafter's choice for output tokens 1..T, given the realised text before each.

    Entry t - 1 of every array is about output token t; T is the length of output and
    lookahead, so the last entry continues the text beyond its end.
    """

    token: np.ndarray
    logq: np.ndarray
    entropy: np.ndarray
    confidence: np.ndarray


@dataclass(frozen=True)
class Tail:
    """What a drafter goes on to draft after its mismatch at one position, itself first."""

    token: list[int]
    logq: list[float]
    entropy: list[float]
    confidence: list[float]

    def extend(self, token: int, logq: float, entropy: float, confidence: float) -> None:
        self.token.append(token)
        self.logq.append(logq)
        self.entropy.append(entropy)
        self.confidence.append(confidence)


def blank_columns(anchors: int, k: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The columns of `Drafts` that follow the draft, and those that follow the output, unfilled."""
    free = {"token": np.full((anchors, k), -1, np.int64)}
    free |= {name: np.full((anchors, k), np.nan) for name in ("logq", "entropy", "confidence")}
    forced = {
        "path_logq": np.full((anchors, k), np.nan),
        "path_rank": np.full((anchors, k), -1),
        "overlap": np.full((anchors, k), np.nan),
        "kl": np.full((anchors, k), np.nan),
        "top4_ids": np.full((anchors, k, TOP_DRAFT), -1),
    }
    return free, forced


def greedy_columns(
    logits: torch.Tensor,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Greedy column, its ln q, the entropy (nats) and q, per row of logits [m, width]."""
    logp = in_full(logits).log_softmax(-1)
    best, token = logp.max(-1)
    entropy = torch.special.entr(logp.exp()).sum(-1)  # 0 where a token cannot be said
    return (
        token.cpu().numpy(),
        best.cpu().numpy(),
        entropy.cpu().numpy(),
        best.exp().cpu().numpy(),
    )


def first_departures(predicted: np.ndarray, reference: Reference) -> np.ndarray:
    """For every anchor, the first later position whose prediction is not the output's.

    Where all agree it is T, one past the end: the draft then runs on beyond the text.
    """
    realised = np.asarray(reference.realised)
    end = len(realised)
    wrong = np.r_[np.flatnonzero(predicted[: end - 1] != realised[1:]) + 1, end]
    return wrong[np.searchsorted(wrong, np.arange(reference.anchors), side="right")]


def tails_needed(departures: np.ndarray, k: int) -> dict[int, int]:
    """Length of the tail to unroll at each departure that some draft of length k reaches."""
    needed: dict[int, int] = {}
    for anchor, where in enumerate(departures.tolist()):
        length = anchor + k - where + 1
        if length > 0:
            needed[where] = max(needed.get(where, 0), length)
    return needed


def free_columns(
    predictions: Predictions, departures: np.ndarray, tails: dict[int, Tail], k: int
) -> dict[str, np.ndarray]:
    """token, logq, entropy and confidence [anchors, k] of the drafter's own drafts."""
    anchors = len(departures)
    columns = {
        "token": np.full((anchors, k), -1, np.int64),
        **{c: np.full((anchors, k), np.nan) for c in ("logq", "entropy", "confidence")},
    }
    for name, column in columns.items():
        along = getattr(predictions, name)
        for anchor in range(anchors):
            on_path = min(int(departures[anchor]) - anchor - 1, k)
            column[anchor, :on_path] = along[anchor : anchor + on_path]
            if on_path < k:
                tail = getattr(tails[int(departures[anchor])], name)
                column[anchor, on_path:] = tail[: k - on_path]
    return columns


def forced_columns(
    logq: np.ndarray,
    rank: np.ndarray,
    overlap: np.ndarray,
    kl: np.ndarray,
    top: np.ndarray,
    anchors: int,
    k: int,
) -> dict[str, np.ndarray]:
    """Spread per-position values (entry t - 1 is about token t, t < T) over anchors and depths."""
    where = np.arange(anchors)[:, None] + np.arange(k)[None]
    inside = where < len(logq)
    where = np.minimum(where, max(len(logq) - 1, 0))

    def spread(values: np.ndarray, missing: float) -> np.ndarray:
        return np.where(inside, values[where], missing)

    return {
        "path_logq": spread(logq, np.nan),
        "path_rank": spread(rank, -1),
        "overlap": spread(overlap, np.nan),
        "kl": spread(kl, np.nan),
        "top4_ids": np.where(inside[..., None], top[where], -1).reshape(anchors, k * TOP_DRAFT),
    }


def point_columns(reference: Reference, proposed: np.ndarray, k: int) -> dict[str, np.ndarray]:
    """Forced columns of a drafter whose q is a point mass.

    `proposed[t - 1]` is its token for output position t given the realised text, -1 for none.
    """
    realised = np.asarray(reference.realised)
    wanted, offered = realised[1:], np.asarray(proposed)[: len(realised) - 1]
    none = offered < 0
    right = offered == wanted
    p = np.full(len(offered), np.nan)
    for low in range(0, len(offered), CHUNK):
        high = min(low + CHUNK, len(offered))
        rows = reference.sampling.probs(reference.logits(low + 1, high + 1))
        token = torch.from_numpy(np.maximum(offered[low:high], 0)).to(rows.device)
        p[low:high] = rows.gather(-1, token[:, None])[:, 0].cpu().numpy()
    top = np.full((len(offered), TOP_DRAFT), -1)
    top[:, 0] = offered
    return forced_columns(
        logq=np.where(none, np.nan, np.where(right, 0.0, -np.inf)),
        rank=np.where(right, 0, -1),
        overlap=np.where(none, 0.0, p),
        kl=np.where(none, np.nan, np.where(p < 1, np.inf, 0.0)),
        top=top,
        anchors=reference.anchors,
        k=k,
    )


def pair_columns(stats: list[PairStats], anchors: int, k: int) -> dict[str, np.ndarray]:
    """Forced columns from per-position comparisons of q with p, in chunks."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in stats])

    return forced_columns(
        joined("logq"),
        joined("rank"),
        joined("overlap"),
        joined("kl"),
        joined("top_ids"),
        anchors,
        k,
    )


def no_drafts(k: int) -> Drafts:
    """For an output of one token: there is no anchor."""
    empty = np.zeros((0, k))
    return Drafts(
        np.zeros(0, np.int64),
        empty.astype(np.int64),
        empty,
        empty,
        empty,
        empty,
        empty.astype(np.int64),
        empty,
        empty,
        np.zeros((0, k * TOP_DRAFT), np.int64),
    )
