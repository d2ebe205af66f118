"""Does a drafter beat another, and does it beat its own drafts on the wrong text?

Both questions are answered per prompt (tokens and rounds) and compared on the same prompts, so
that an interval holds the drafters' difference and not the prompts' difficulty (F7.2).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specviz.analysis.anchors import GROUPS, Anchors, Ints, anchors_of, by_position, fixed_rounds
from specviz.analysis.replays.simulate import check_k
from specviz.analysis.resampling import DRAWS, LEVEL, check_resampling, ratio_difference
from specviz.refuse import whole
from specviz.trace import Trace

_COLUMNS = ["content_type", "prompt_id", "drafter", "k", "tokens", "rounds"]


def rounds_by_prompt(trace: Trace, drafter: str | None = None, k: int = 7) -> pd.DataFrame:
    """Tokens and rounds of every prompt with `k` tokens drafted a round, replayed exactly (F7.5).

    Parameters
    ----------
    trace
        A greedy capture.
    drafter
        May be left out when the trace has only one.
    k
        Tokens drafted in a round, at least 1.

    Returns
    -------
    DataFrame
        One row per prompt: content_type, prompt_id, drafter, k, tokens (emitted by rounds, the
        bonus token counted), rounds. A one-token output has 0 of both.

    Raises
    ------
    ValueError
        As `replay`, and when k is not 1 to K.
    """
    whole("k", k, 1)
    return _rows(anchors_of(trace, drafter), k)


def shuffled_control(
    trace: Trace, drafter: str | None = None, k: int = 7, seed: int = 0
) -> pd.DataFrame:
    """Right drafts, wrong text: what a drafter scores without knowing what it drafts for.

    The stored drafts of every prompt are held against the output of *another prompt of the
    same content type*, anchor by anchor, and walked with a fixed k. Whatever is accepted there
    the drafter owes to tokens and formats that all such outputs share. A drafter that has
    learnt this target's text has to beat it: see `compare_drafters`.

    Parameters
    ----------
    trace
        A greedy capture with at least two prompts of every content type.
    drafter
        May be left out when the trace has only one.
    k
        Tokens drafted in a round, at least 1.
    seed
        Of the exchange of outputs: per content type one random cycle through its prompts, so
        that every output is used once and none by its own prompt. Other content types in the
        trace do not change it.

    Returns
    -------
    DataFrame
        As `rounds_by_prompt`, and `text_of`: the prompt whose output was used. Of two outputs
        of different length only the anchors both have are walked. The drafter is called
        "NAME, other text".

    Raises
    ------
    ValueError
        As `rounds_by_prompt`, and when a content type has one prompt only.

    Notes
    -----
    Drafts are the free-running ones, made after the drafter's own text; nothing is drafted
    anew. Every output serves two rows (its own drafts and another's), which the resampling of
    prompts takes as independent.

    Examples
    --------
    >>> control = shuffled_control(trace, "eagle")                         # doctest: +SKIP
    >>> compare_drafters(trace, "eagle", control)                          # doctest: +SKIP
    """
    whole("k", k, 1)
    whole("seed", seed, 0)
    own = anchors_of(trace, drafter)
    text_of = _exchange(own, seed)
    rows = _rows(_on_other_text(trace, own, text_of), k)
    return rows.assign(text_of=own.prompt_id[text_of])


def compare_drafters(
    trace: Trace,
    better: str,
    worse: str | pd.DataFrame,
    k: int = 7,
    by: str = "content_type",
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per round of two drafters on the same prompts, and their difference.

    Parameters
    ----------
    trace
        A greedy capture.
    better
        A drafter of the trace.
    worse
        Another one, or rows per prompt: of `shuffled_control`, or of `rounds_by_prompt` for a
        drafter captured elsewhere on the same prompts.
    k
        Tokens drafted in a round, at least 1.
    by
        "content_type" or "prompt_id".
    level, draws, seed
        Of the expanded percentile interval, which resamples prompts, the same ones for both (F7.2).

    Returns
    -------
    DataFrame
        Per value of `by`, and in the last row ("all") over all prompts: better, worse (their
        names), k, tokens_per_round_better, tokens_per_round_worse (bonus counted), difference
        (better - worse) with low and high (NaN with one prompt), n_prompts, n_rounds_better,
        n_rounds_worse. Prompts without a round of either are left out.

    Raises
    ------
    ValueError
        As `rounds_by_prompt`, and when `worse` has other prompts or another k, `by` is not
        one of the two, or no interval can be made of `level`, `draws` and `seed`.

    Examples
    --------
    >>> compare_drafters(trace, "eagle", "bigram")                         # doctest: +SKIP
    """
    check_resampling(level, draws, seed)
    if by not in GROUPS:
        raise ValueError(f"by must be 'content_type' or 'prompt_id', not {by!r}.")
    first = rounds_by_prompt(trace, better, k)
    second = rounds_by_prompt(trace, worse, k) if isinstance(worse, str) else _checked(worse, k)
    if sorted(first["prompt_id"]) != sorted(second["prompt_id"]):
        shared = len(set(first["prompt_id"]) & set(second["prompt_id"]))
        raise ValueError(
            f"Both sides must hold the same prompts, each once: {better!r} has {len(first)}, the "
            f"other {len(second)}, and {shared} are in both."
        )
    both = first.merge(second, on="prompt_id", suffixes=("_better", "_worse"))
    both["content_type"] = both["content_type_better"]
    both = both[(both["rounds_better"] > 0) & (both["rounds_worse"] > 0)]
    if both.empty:
        raise ValueError("No prompt has a round of both: their outputs are one token long.")
    groups = [(value, part) for value, part in both.groupby(by, sort=False)]
    rows = []
    for value, part in [*groups, ("all", both)]:
        tokens_a, rounds_a = part["tokens_better"], part["rounds_better"]
        tokens_b, rounds_b = part["tokens_worse"], part["rounds_worse"]
        found = ratio_difference(
            tokens_a,
            rounds_a,
            tokens_b,
            rounds_b,
            paired=True,
            level=level,
            draws=draws,
            seed=seed,
        )
        rows.append(
            {
                by: value,
                "better": first["drafter"].iloc[0],
                "worse": second["drafter"].iloc[0],
                "k": k,
                "tokens_per_round_better": tokens_a.sum() / rounds_a.sum(),
                "tokens_per_round_worse": tokens_b.sum() / rounds_b.sum(),
                "difference": found.estimate,
                "low": found.low,
                "high": found.high,
                "n_prompts": found.n_prompts,
                "n_rounds_better": int(rounds_a.sum()),
                "n_rounds_worse": int(rounds_b.sum()),
            }
        )
    return pd.DataFrame(rows)


def _rows(anchors: Anchors, k: int) -> pd.DataFrame:
    check_k(k, anchors)
    where, _, _ = fixed_rounds(anchors, k)
    return pd.DataFrame(
        {
            "content_type": anchors.content_type,
            "prompt_id": anchors.prompt_id,
            "drafter": anchors.drafter,
            "k": k,
            "tokens": anchors.n - 1,
            "rounds": np.bincount(anchors.owner[where], minlength=len(anchors.n)),
        }
    )


def _exchange(anchors: Anchors, seed: int) -> Ints:
    """Per sequence, the sequence whose output it gets: never itself, of the same content type."""
    text_of = np.arange(len(anchors.n))
    for content_type in dict.fromkeys(anchors.content_type):
        members = np.flatnonzero(anchors.content_type == content_type)
        if len(members) < 2:
            raise ValueError(
                f"Content type {content_type!r} has one prompt only, so there is no other text to "
                "hold its drafts against: capture a second one, or leave the type out."
            )
        cycle = np.random.default_rng(seed).permutation(members)
        text_of[cycle] = np.roll(cycle, 1)
    return text_of


def _on_other_text(trace: Trace, own: Anchors, text_of: Ints) -> Anchors:
    """The anchors of `own` with M(a) counted against other outputs, cut to the shorter one."""
    n = np.minimum(own.n, own.n[text_of])
    kept = np.flatnonzero(own.anchor < n[own.owner] - 1)
    owner, anchor = own.owner[kept], own.anchor[kept]
    left = n[owner] - 2 - anchor  # the last token of an output is the target's own
    offered = np.minimum(own.offered[kept], left)
    depth = np.arange(own.k)
    drafts = trace.matrix("token", own.drafter)[own.row[kept], : own.k]
    outputs = by_position(trace, own, "token_id")
    first = (np.cumsum(own.n) - own.n)[text_of[owner]] + anchor + 1
    compared = depth < offered[:, None]  # so no comparison runs into the next output
    wanted = outputs[np.where(compared, first[:, None] + depth, 0)]
    return dataclasses.replace(
        own,
        drafter=f"{own.drafter}, other text",
        n=n,
        eos=own.eos[text_of] & (n == own.n[text_of]),
        start=np.concatenate([[0], np.cumsum(n - 1)]),
        owner=owner,
        anchor=anchor,
        room=left,
        offered=offered,
        acceptable=_leading(compared & (drafts == wanted)),
        row=own.row[kept],
    )


def _leading(agree: NDArray[np.bool_]) -> Ints:
    """How many True stand at the start of every row."""
    return np.asarray(np.cumprod(agree, axis=1, dtype=np.int64).sum(axis=1))


def _checked(rows: Any, k: int) -> pd.DataFrame:
    if not isinstance(rows, pd.DataFrame) or not set(_COLUMNS) <= set(rows.columns):
        raise ValueError(
            "Compare with the name of a drafter of this trace, or with rows that "
            "shuffled_control or rounds_by_prompt made."
        )
    if not (rows["k"] == k).all():
        raise ValueError(
            f"The rows to compare with were walked with k = {rows['k'].iloc[0]}, not {k}: "
            "use the same k for both."
        )
    return rows
