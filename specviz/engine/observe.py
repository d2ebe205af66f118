"""Logits in, numbers out: every statistic of a distribution, in fp32, in one place.

Nothing here keeps a [T, vocabulary] array: callers hand over chunks of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch

from specviz.engine.sampling import RAW, Sampling, in_full
from specviz.trace.schema import TOP_DRAFT, TOP_TARGET

#: Rows reduced at a time: 32 rows of a 150k vocabulary are 20 MB in fp32.
CHUNK = 32
_NUCLEUS = 0.9
_NUCLEUS_TRY = 128  # candidates looked at before the whole row is sorted


@dataclass(frozen=True)
class RowStats:
    """Statistics of m distributions, one entry (or row) each; logarithms in nats.

    `entropy` is -sum p ln p, `ebf` its exponential, `ebf2` = 1 / sum p^2, `log2_moment` =
    sum p ln^2 p, `n90` the nucleus size at 0.9, `margin` = ln p(1st) - ln p(2nd), `tie` says
    that the margin is within two units in the last place of the logits' own dtype (F1.5).
    """

    entropy: np.ndarray
    ebf: np.ndarray
    ebf2: np.ndarray
    p_max: np.ndarray
    log2_moment: np.ndarray
    n90: np.ndarray
    margin: np.ndarray
    tie: np.ndarray
    top_ids: np.ndarray
    top_logp: np.ndarray

    def __len__(self) -> int:
        return len(self.entropy)

    def take(self, rows: Sequence[int]) -> RowStats:
        """The statistics of some rows."""
        index = list(rows)
        return RowStats(*(getattr(self, f.name)[index] for f in fields(RowStats)))


def row_stats(logits: torch.Tensor) -> RowStats:
    """Reduce logits [m, vocabulary] to statistics.

    Source: F1.1, F1.2 and F1.5. fp16 or bf16 logits are widened first; in half precision
    p ln p is NaN where p underflows.
    """
    wide = in_full(logits)
    logp = wide.log_softmax(-1)
    # 0 * -inf: a masked-out token contributes nothing.
    p = logp.exp()
    safe = logp.masked_fill(p == 0, 0.0)
    plogp = p * safe
    entropy = -plogp.sum(-1)
    width = logits.shape[-1]
    top_logp, top_ids = logp.topk(min(TOP_TARGET, width), -1)
    if width == 1:
        margin = torch.full_like(entropy, torch.inf)
    else:
        margin = top_logp[:, 0] - top_logp[:, 1]
    ulp = torch.finfo(logits.dtype).eps * logits.amax(-1).abs().to(wide.dtype)
    return RowStats(
        entropy=_np(entropy),
        ebf=_np(entropy.exp()),
        ebf2=_np(1 / p.square().sum(-1)),
        p_max=_np(top_logp[:, 0].exp()),
        log2_moment=_np((plogp * safe).sum(-1)),
        n90=_np(_nucleus(p)),
        margin=_np(margin),
        tie=_np(margin <= 2 * ulp),
        top_ids=_np(_padded(top_ids, -1)),
        top_logp=_np(_padded(top_logp, -torch.inf)),
    )


def token_stats(logits: torch.Tensor, tokens: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """ln p and rank (0 is the argmax) of one token per row.

    Ties count in favour of the token, so that the argmax has rank 0 whatever its index.
    """
    wide = in_full(logits)
    mine = wide.gather(-1, tokens[:, None])
    logp = mine[:, 0] - wide.logsumexp(-1)
    return _np(logp), _np((wide > mine).sum(-1))


def sampled_logp(logits: torch.Tensor, tokens: torch.Tensor, sampling: Sampling) -> np.ndarray:
    """ln p of one token per row as it was sampled: 0 for the argmax at temperature 0, -inf for
    what the settings rule out."""
    return _np(sampling.probs(logits).gather(-1, tokens[:, None])[:, 0].log())


@dataclass(frozen=True)
class PairStats:
    """A drafter's rows against the target's, at the realised token: one entry per row."""

    logq: np.ndarray
    rank: np.ndarray
    overlap: np.ndarray
    kl: np.ndarray
    top_ids: np.ndarray


def pair_stats(
    p_logits: torch.Tensor,
    q_logits: torch.Tensor,
    tokens: torch.Tensor,
    sampling: Sampling = RAW,
) -> PairStats:
    """ln q and rank of `tokens`, sum min(p, q) and KL(p || q), per row (F3.1, T5.1).

    Both sides are shaped by `sampling` first, but for ranks and candidates.
    """
    logq_token, rank = token_stats(q_logits, tokens)
    if sampling == RAW:
        logp, logq = p_logits.float().log_softmax(-1), q_logits.float().log_softmax(-1)
    else:
        logp, logq = (sampling.probs(logits).log() for logits in (p_logits, q_logits))
        logq_token = sampled_logp(q_logits, tokens, sampling)
    p = logp.exp()
    overlap = torch.minimum(p, logq.exp()).sum(-1)
    kl = (p * (logp - logq).masked_fill(p == 0, 0.0)).sum(-1)
    top = q_logits.topk(min(TOP_DRAFT, q_logits.shape[-1]), -1).indices
    return PairStats(logq_token, rank, _np(overlap), _np(kl), _np(_padded(top, -1, TOP_DRAFT)))


def concatenate(parts: Iterable[RowStats]) -> RowStats:
    """One RowStats of several."""
    parts = list(parts)
    return RowStats(
        *(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(RowStats))
    )


def _nucleus(p: torch.Tensor) -> torch.Tensor:
    """Smallest number of tokens whose probabilities reach 0.9, per row."""
    width = p.shape[-1]
    sizes = _reach(p.topk(min(_NUCLEUS_TRY, width), -1).values)
    short = sizes > min(_NUCLEUS_TRY, width)
    if short.any():
        sizes[short] = _reach(p[short].sort(-1, descending=True).values)
    return sizes.clamp(max=width)


def _reach(p_sorted: torch.Tensor) -> torch.Tensor:
    # The tolerance keeps an exact 0.9 from counting one token too many.
    return (p_sorted.cumsum(-1) < _NUCLEUS - 1e-6).sum(-1) + 1


def _padded(values: torch.Tensor, fill: float, width: int = TOP_TARGET) -> torch.Tensor:
    missing = width - values.shape[-1]
    if missing <= 0:
        return values
    return torch.nn.functional.pad(values, (0, missing), value=fill)


def _np(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
