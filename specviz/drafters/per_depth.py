"""Drafts from every anchor side by side, one token deeper at a time.

For drafters that are not suffix-consistent (F7.5): the draft of an anchor says nothing of the
draft of the next one. So every anchor is unrolled twice, on its own tokens and on the realised
ones.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from specviz.drafters.assemble import blank_columns, greedy_columns
from specviz.engine.observe import CHUNK, pair_stats
from specviz.engine.protocols import Drafts, Reference
from specviz.trace.schema import TOP_DRAFT


class Unroll(Protocol):
    """A drafter at all anchors of an output at once."""

    def said(self, low: int, high: int) -> torch.Tensor:
        """Logits [high - low, V] of the next drafted token at anchors low..high-1."""
        ...

    def go(self, tokens: torch.Tensor) -> Unroll:
        """The same one token deeper, after `tokens` [anchors]."""
        ...


def all_drafts(unroll: Unroll, reference: Reference, k: int, max_k: int) -> Drafts:
    """Drafts of `k` tokens, or of `max_k` if that is less, at every anchor.

    Parameters
    ----------
    unroll
        Before the first drafted token.
    """
    anchors, drafted = reference.anchors, min(k, max_k)
    free, forced = blank_columns(anchors, k)
    own, told = unroll, unroll
    realised = torch.tensor(reference.realised)
    for depth in range(drafted):
        for low in range(0, anchors, CHUNK):
            high = min(low + CHUNK, anchors)
            columns = greedy_columns(own.said(low, high))
            for column, values in zip(free.values(), columns, strict=True):
                column[low:high, depth] = values
        # The draft's token at this depth stands against output token anchor + depth + 1.
        last = min(anchors, len(realised) - 1 - depth)
        for low in range(0, last, CHUNK):
            high = min(low + CHUNK, last)
            q = told.said(low, high)
            there = slice(low + depth + 1, high + depth + 1)
            p = reference.logits(there.start, there.stop).to(q.device)
            stats = pair_stats(p, q, realised[there].to(q.device), reference.sampling)
            forced["path_logq"][low:high, depth] = stats.logq
            forced["path_rank"][low:high, depth] = stats.rank
            forced["overlap"][low:high, depth] = stats.overlap
            forced["kl"][low:high, depth] = stats.kl
            forced["top4_ids"][low:high, depth] = stats.top_ids
        if depth + 1 < drafted:
            own = own.go(torch.from_numpy(free["token"][:, depth]))
            # Behind the end of the output nothing is compared: any token will do there.
            fed = torch.nn.functional.pad(realised[depth + 1 :], (0, depth + 1))
            told = told.go(fed[:anchors])
    forced["top4_ids"] = forced["top4_ids"].reshape(anchors, k * TOP_DRAFT)
    return Drafts(drafted=np.full(anchors, drafted), **free, **forced)
