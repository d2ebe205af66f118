"""What a fresh draft is worth beside the tail of the one before it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from specviz.analysis.anchors import Anchors
from specviz.analysis.grouped import captured_by, groups_of, ratios
from specviz.analysis.replays.simulate import check_k
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, check_resampling
from specviz.refuse import whole
from specviz.trace import Trace


def reanchoring_gain(
    trace: Trace,
    drafter: str | None = None,
    k: int = 7,
    by: str = "content_type",
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """How much further a fresh draft goes than the tail of the one before it.

    After j tokens of the draft at anchor t turned out right, two drafts speak of what follows:
    the rest of the old one, and a new one made at t + j. Over the tokens that both cover, the
    gain is the right tokens at the start of the new one less those at the start of the old
    one's rest: min(M(t + j), w) - min(M(t) - j, w), with w = k - j where both offer k tokens
    (F7.5). A drafter that sees tokens only drafts the same tail again, and gains exactly
    nothing; one that is fed the target's states knows more at t + j than it did at t. The larger
    the gain, the less a long draft is worth beside a new, shorter one.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        None takes every drafter of the trace.
    k
        Length of both drafts, from 2 to K.
    by
        "content_type" or "prompt_id".
    level, draws, seed
        Of the expanded percentile intervals over resampled prompts (F7.2).

    Returns
    -------
    DataFrame
        One row per drafter, group ("all" last) and j = 1..k-1, then over all j ("all"): drafter,
        the group, k, j; fresh and tail, mean right tokens of the new draft and of the old one's
        rest (no bonus in either); gain, their difference (tokens), with low and high (NaN with
        one prompt); differs (share of the pairs where the two are not alike); n_pairs of t and
        t + j, n_prompts. Easy text has more pairs: these are not the pairs that rounds meet.

    Raises
    ------
    ValueError
        As `depth_match`, and when k is not 2 to K.

    Examples
    --------
    >>> import specviz as sv
    >>> found = reanchoring_gain(sv.bundled_trace("smollm2-trees"), draws=100)
    >>> sorted(set(found[found["gain"] != 0]["drafter"]))    # the only one fed hidden states
    ['eagle']
    """
    check_resampling(level, draws, seed)
    whole("k", k, 2)
    tables = []
    for anchors in captured_by(trace, drafter):
        check_k(k, anchors)
        fresh, tail, differ, n = _pairs(anchors, k)
        steps = [*range(1, k), "all"]
        many = len(steps)
        for group, mine in groups_of(anchors, by):
            top = np.hstack([fresh[mine] - tail[mine], fresh[mine], tail[mine], differ[mine]])
            names, below = anchors.prompt_id[mine], np.hstack([n[mine]] * 4)
            mean, low, high, prompts = ratios(names, top, below, level, draws, seed)
            gain, new, rest, share = mean.reshape(4, many)
            tables.append(
                pd.DataFrame(
                    {
                        "drafter": anchors.drafter,
                        by: group,
                        "k": k,
                        "j": steps,
                        "fresh": new,
                        "tail": rest,
                        "gain": gain,
                        "low": low[:many],
                        "high": high[:many],
                        "differs": share,
                        "n_pairs": n[mine].sum(axis=0).astype(int),
                        "n_prompts": prompts[:many],
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


def _pairs(anchors: Anchors, k: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Right tokens of new drafts and of old tails, unlike pairs, and pairs; [S, k], all j last."""
    left = anchors.n[anchors.owner] - 2 - anchors.anchor
    reach = np.minimum(np.minimum(anchors.offered, left), k)
    right = np.minimum(anchors.acceptable, k)
    fresh, tail, differ, n = (np.zeros((len(anchors.n), k)) for _ in range(4))
    for j in range(1, k):
        t = np.flatnonzero(right >= j)  # so t + j is an anchor of the same output
        both = np.minimum(reach[t] - j, reach[t + j])
        t, both = t[both > 0], both[both > 0]
        new, old = np.minimum(right[t + j], both), np.minimum(right[t] - j, both)
        for sums, values in ((fresh, new), (tail, old), (differ, new != old), (n, both > 0)):
            sums[:, j - 1] = np.bincount(anchors.owner[t], values, len(anchors.n))
    for sums in (fresh, tail, differ, n):
        sums[:, -1] = sums[:, :-1].sum(axis=1)
    return fresh, tail, differ, n
