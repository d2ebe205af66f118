"""How often a drafter is right at every depth, and how far its own candidates would carry it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, Ints, fixed_rounds
from specviz.analysis.grouped import captured_by, groups_of, ratios
from specviz.analysis.replays.simulate import check_k
from specviz.analysis.resampling import DRAWS, LEVEL, Floats, check_resampling
from specviz.refuse import whole
from specviz.trace import Trace


def depth_match(
    trace: Trace,
    drafter: str | None = None,
    by: str = "content_type",
    k: int | None = None,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """How often the drafter's likeliest token at depth j is the text's own.

    The drafter stands on the text's own tokens at every depth, not on its own, and every anchor
    counts, not those that rounds visit. So this is a property of the drafter and the text alone:
    neither the policy nor an earlier mismatch shows in it. It is no round's result.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        None takes every drafter of the trace.
    by
        "content_type" or "prompt_id".
    k
        Deepest depth; None goes as deep as each drafter was captured.
    level, draws, seed
        Of the percentile intervals over resampled prompts (F7.2).

    Returns
    -------
    DataFrame
        One row per drafter, group ("all" last) and depth j = 1..k: drafter, the group, depth,
        match (share of anchors), low, high (NaN with one prompt), n_anchors, n_prompts. An
        anchor counts at depth j where the text goes on that far, the tokens captured beyond the
        limit included; one where the drafter offers nothing counts as a miss.

    Raises
    ------
    ValueError
        As `replay`, and when k is not 1 to K, `by` is not one of the two, or no interval can be
        made of `level`, `draws` and `seed`.

    Examples
    --------
    >>> import specviz as sv
    >>> found = depth_match(sv.bundled_trace("smollm2-trees"), "eagle", draws=100)
    >>> code = found[found["content_type"] == "code"]["match"]
    >>> bool(code.iloc[0] > code.iloc[-1])    # its first token is right more often than its last
    True
    """
    check_resampling(level, draws, seed)
    if k is not None:
        whole("k", k, 1)
    tables = []
    for anchors in captured_by(trace, drafter):
        deepest = anchors.k if k is None else k
        right = _ranks(trace, anchors, deepest) == 0
        exists = np.arange(deepest) < _known(trace, anchors)[:, None]
        hits, n = _per_sequence(anchors, right & exists), _per_sequence(anchors, exists)
        for group, mine in groups_of(anchors, by):
            names = anchors.prompt_id[mine]
            share, low, high, prompts = ratios(names, hits[mine], n[mine], level, draws, seed)
            tables.append(
                pd.DataFrame(
                    {
                        "drafter": anchors.drafter,
                        by: group,
                        "depth": np.arange(1, deepest + 1),
                        "match": share,
                        "low": low,
                        "high": high,
                        "n_anchors": n[mine].sum(axis=0).astype(int),
                        "n_prompts": prompts,
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


def recall_lengths(
    trace: Trace,
    drafter: str | None = None,
    tops: Sequence[int] = (1, 2, 4, 16),
    k: int = 7,
    by: str = "content_type",
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per round if the text's token only had to be among the drafter's first m.

    What a verifier would keep of the full tree of depth k in which every node has the drafter's
    m likeliest tokens as children; followed from round to round over the anchors that such
    rounds visit, not averaged over all of them (F7.5). For m = 1 that is the chain the drafter
    really drafts. Beside it: what that chain emits, and how much of the ceiling it reaches.

    It is a ceiling for whatever picks from the m first candidates (re-ranking, or a tree of at
    most m children a node and depth k): no round of theirs is accepted further from the same
    anchor. It is *not* a bound for another drafter, another training or other candidates, and it
    says nothing of cost, since the full tree has m + m^2 + ... + m^k nodes. Nor is it quite a
    bound on whole outputs: where drafts are not suffix-consistent, a shorter round can lead to a
    better anchor. Under greedy decoding the only theorem is k + 1, for any text and drafter.

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        None takes every drafter of the trace.
    tops
        The m, each at least 1. A drafter of points (ngram, bigram) has one candidate, and its
        numbers do not grow with m.
    k
        Tokens drafted in a round, from 1 to K.
    by
        "content_type" or "prompt_id".
    level, draws, seed
        Of the percentile intervals over resampled prompts (F7.2), the same for every column.

    Returns
    -------
    DataFrame
        One row per drafter, group ("all" last) and m: drafter, the group, k, top (m);
        tokens_per_round of the chain (bonus counted) with low and high; recall, tokens per round
        of the full tree (bonus counted), with recall_low and recall_high; share,
        tokens_per_round / recall on the same prompts, with share_low and share_high; ceiling
        (k + 1); n_rounds (of the chain), n_rounds_recall, n_prompts. Intervals are NaN with one
        prompt.

    Raises
    ------
    ValueError
        As `depth_match`, and when `tops` are no whole numbers of at least 1.

    Examples
    --------
    >>> import specviz as sv
    >>> found = recall_lengths(sv.bundled_trace("smollm2-trees"), "lm", (1, 4), draws=100)
    >>> found.query("content_type == 'all'")["recall"].round(2).is_monotonic_increasing
    True
    """
    check_resampling(level, draws, seed)
    whole("k", k, 1)
    wanted = [whole("Every one of tops", m, 1) for m in _listed(tops)]
    tables = []
    for anchors in captured_by(trace, drafter):
        check_k(k, anchors)
        rank = _ranks(trace, anchors, k)
        # A token that the drafter cannot say ranks behind all it can: it is no candidate.
        rank = np.where(_sayable(trace, anchors, k), rank, -1)
        walks = [anchors, *(_among(anchors, rank, m) for m in wanted)]
        rounds = np.column_stack([_rounds_of(walk, k) for walk in walks])
        many = len(wanted)
        for group, mine in groups_of(anchors, by):
            own, tokens = rounds[mine], (anchors.n[mine] - 1).astype(float)
            # The same tokens over fewer rounds, and those rounds over the chain's.
            top = np.column_stack([*[tokens] * (many + 1), own[:, 1:]])
            below = np.column_stack([own, *[own[:, 0]] * many])
            names = anchors.prompt_id[mine]
            length, low, high, prompts = ratios(names, top, below, level, draws, seed)
            here, share = slice(1, many + 1), slice(many + 1, None)
            total = own.sum(axis=0).astype(int)
            tables.append(
                pd.DataFrame(
                    {
                        "drafter": anchors.drafter,
                        by: group,
                        "k": k,
                        "top": wanted,
                        "tokens_per_round": length[0],
                        "low": low[0],
                        "high": high[0],
                        "recall": length[here],
                        "recall_low": low[here],
                        "recall_high": high[here],
                        "share": length[share],
                        "share_low": low[share],
                        "share_high": high[share],
                        "ceiling": k + 1,
                        "n_rounds": total[0],
                        "n_rounds_recall": total[1:],
                        "n_prompts": prompts[0],
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


def _listed(tops: Any) -> list[Any]:
    listed = list(tops) if isinstance(tops, Sequence) and not isinstance(tops, str) else []
    if not listed:
        raise ValueError(f"tops must list how many candidates count, such as (1, 4), not {tops!r}.")
    return listed


def _ranks(trace: Trace, anchors: Anchors, k: int) -> NDArray[Any]:
    """Rank of the text's token among the drafter's at every depth [A, k]; -1 for unknown."""
    check_k(k, anchors)
    return np.asarray(trace.matrix("path_rank", anchors.drafter)[anchors.row, :k])


def _sayable(trace: Trace, anchors: Anchors, k: int) -> NDArray[np.bool_]:
    return np.asarray(trace.matrix("path_logq", anchors.drafter)[anchors.row, :k] > -np.inf)


def _known(trace: Trace, anchors: Anchors) -> Ints:
    """Per anchor, how many tokens of the text follow it, those beyond the limit included."""
    order = np.argsort(trace.column("sequences", "seq"), kind="stable")
    ahead = pc.list_value_length(trace.table("sequences")["lookahead"]).to_numpy()[order]
    return np.asarray((anchors.n + ahead)[anchors.owner] - 1 - anchors.anchor)


def _among(anchors: Anchors, rank: NDArray[Any], m: int) -> Anchors:
    """The same anchors, where a token counts as right among the first m."""
    inside = (rank >= 0) & (rank < m)
    leading = np.cumprod(inside, axis=1, dtype=np.int64).sum(axis=1)
    left = anchors.n[anchors.owner] - 2 - anchors.anchor  # the last token is the target's own
    acceptable = np.minimum(np.minimum(leading, anchors.offered), left)
    return dataclasses.replace(anchors, acceptable=acceptable)


def _rounds_of(anchors: Anchors, k: int) -> Ints:
    where, _, _ = fixed_rounds(anchors, k)
    return np.bincount(anchors.owner[where], minlength=len(anchors.n))


def _per_sequence(anchors: Anchors, flags: NDArray[np.bool_]) -> Floats:
    """Sums of [A, k] over the anchors of every sequence: [S, k]."""
    columns = [np.bincount(anchors.owner, column, len(anchors.n)) for column in flags.T]
    return np.column_stack(columns)
