"""M(a) and draft lengths at every anchor of a capture, sequence after sequence.

Replay and the sweeps over k read the same flat arrays, so that following a chain of anchors
needs no table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from specviz.trace import Trace, need_trace
from specviz.trace.remembered import per_trace

Ints = NDArray[np.int64]

#: What results are told apart by.
GROUPS = ("content_type", "prompt_id")
#: A trace never changes, so its anchors are read once, and kept as long as the trace is.


@dataclass(frozen=True, eq=False)
class Anchors:
    """One drafter's draft at every anchor; A anchors of S sequences, in order of `seq`.

    Attributes
    ----------
    drafter, k
        The drafter's name and its K.
    seq, n, prompt_id, content_type, eos
        Per sequence, shape [S]; `n` counts output tokens, `eos` is True where the sequence
        ended by itself.
    start
        Shape [S + 1]: anchors of sequence s are start[s] .. start[s + 1] - 1.
    owner, anchor
        Per anchor, shape [A]: the row of its sequence, and a = 0..n-2.
    room
        Most tokens a round may draft there before the limit: the engine never drafts past it.
    offered
        Tokens the drafter may draft there: at most what it offers and the limit leaves.
    acceptable
        Of those, how many would be accepted if all were drafted: at most M(a), and short of
        the output's last token, which is the target's own.
    row
        The anchor's row in `trace.draft_table(drafter)`.
    """

    drafter: str
    k: int
    seq: Ints
    n: Ints
    prompt_id: NDArray[Any]
    content_type: NDArray[Any]
    eos: NDArray[np.bool_]
    start: Ints
    owner: Ints
    anchor: Ints
    room: Ints
    offered: Ints
    acceptable: Ints
    row: Ints

    def labels(self, by: str) -> NDArray[Any]:
        """Per sequence, its content type or prompt id, shape [S].

        Raises
        ------
        ValueError
            When `by` is neither.
        """
        if by not in GROUPS:
            raise ValueError(f"by must be 'content_type' or 'prompt_id', not {by!r}.")
        return self.content_type if by == "content_type" else self.prompt_id

    @cached_property
    def cells(self) -> tuple[NDArray[np.intp], pd.MultiIndex]:
        """Per sequence its cell, shape [S] (-1: no round), and every cell's kind and prompt."""
        some, codes = self.n > 1, np.full(len(self.n), -1)
        pairs = [self.content_type[some], self.prompt_id[some]]
        codes[some], cells = pd.factorize(pd.MultiIndex.from_arrays(pairs))
        return codes, pd.MultiIndex.from_tuples(list(cells), names=list(GROUPS))

    @cached_property
    def drafted_by_k(self) -> Ints:
        """Rounds of every fixed k = 0..K by the tokens they draft, shape [K + 1, K + 1]."""
        drafted = (fixed_rounds(self, k)[1] for k in range(self.k + 1))
        return np.stack([np.bincount(each, minlength=self.k + 1) for each in drafted])


def anchors_of(trace: Trace, drafter: str | None = None) -> Anchors:
    """The anchors of an exhaustive greedy capture.

    Raises
    ------
    ValueError
        When the trace has no drafts, was sampled, holds visited anchors only, has an anchor
        without a draft, or lengths that cannot be; the sentence says what to do.
    """
    require_capture(trace)
    return read_anchors(trace, trace.drafter_name(drafter))


def need_every_anchor(trace: Trace, so: str) -> None:
    """Refuse what is no capture with a draft at every anchor; `so` ends the sentence."""
    need_trace(trace)
    if trace.meta.kind != "capture" or not trace.meta.exhaustive:
        raise ValueError(
            f"This {trace.meta.kind} trace has drafts at visited anchors only, if at all{so}"
        )


def require_capture(trace: Trace) -> None:
    """Refuse a trace that does not hold a greedy draft at every anchor."""
    need_every_anchor(
        trace, ", and another k would visit others: make a capture of the same prompts first."
    )
    trace.require("drafts")
    if not trace.meta.greedy:
        raise ValueError(
            f"This trace was sampled at temperature {trace.meta.sampling['temperature']:g}; "
            "rounds are counted exactly on greedy captures only: capture with temperature 0."
        )


def fixed_rounds(anchors: Anchors, k: int) -> tuple[Ints, Ints, Ints]:
    """Where rounds of `k` tokens start (flat index), and what each drafts and accepts.

    A sequence's last round lands on the next sequence's first anchor, so one loop follows
    all chains.
    """
    accepted = np.minimum(anchors.acceptable, k)
    where = follow(np.maximum(accepted, 0) + 1)
    return where, np.minimum(anchors.offered[where], k), accepted[where]


def follow(steps: Ints) -> Ints:
    """The places on the way from place 0 that goes on by `steps[place]`, each at least 1."""
    # Bytes are the fastest thing a plain loop can index, and mark.
    small = len(steps) == 0 or steps.max() < 256
    step: Sequence[int] = steps.astype(np.uint8).tobytes() if small else steps.tolist()
    at, end, visited = 0, len(steps), bytearray(len(steps))
    while at < end:
        visited[at] = 1
        at += step[at]
    return np.flatnonzero(np.frombuffer(visited, dtype=np.uint8))


def repeated_next(trace: Trace, anchors: Anchors) -> NDArray[np.bool_]:
    """Per anchor: whether the token after it, y[a+1], repeats earlier text. Shape [A]."""
    flags = by_position(trace, anchors, "repeated").astype(bool)
    first = np.concatenate([[0], np.cumsum(anchors.n)])
    return np.asarray(flags[first[anchors.owner] + anchors.anchor + 1])


def by_position(trace: Trace, anchors: Anchors, name: str) -> NDArray[Any]:
    """A column of `positions` in the order of `anchors.seq`: shape [sum of n]."""
    trace.require("positions")
    order = np.lexsort((trace.column("positions", "t"), trace.column("positions", "seq")))
    values = trace.column("positions", name)[order]
    if len(values) != int(anchors.n.sum()):
        raise ValueError(
            f"This trace has {len(values)} positions for {int(anchors.n.sum())} output tokens: "
            "see trace.validate()."
        )
    return np.asarray(values)


@per_trace
def read_anchors(trace: Trace, name: str) -> Anchors:
    """The anchors of an exhaustive capture, greedy or sampled; refused as by `anchors_of`."""
    order = np.argsort(trace.column("sequences", "seq"), kind="stable")
    sequences = trace.table("sequences").take(pa.array(order))
    seq, n, limit = (_ints(sequences, c) for c in ("seq", "n_output", "max_new_tokens"))
    if np.any((n < 1) | (n > limit)):
        bad = int(np.flatnonzero((n < 1) | (n > limit))[0])
        raise ValueError(
            f"Sequence {seq[bad]} has {n[bad]} output tokens of at most {limit[bad]}, so its "
            "rounds cannot be followed: see trace.validate()."
        )
    drafts = trace.table("drafts", ["seq", "anchor", "drafter", "drafted", "matched"])
    if len(trace.drafters) > 1:
        drafts = drafts.filter(pc.equal(drafts["drafter"], pa.scalar(name)))
    of_seq, anchor = _ints(drafts, "seq"), _ints(drafts, "anchor")
    start = np.concatenate([[0], np.cumsum(n - 1)])
    owner = np.repeat(np.arange(len(seq)), n - 1)
    expected = np.arange(len(owner)) - start[owner]
    row = np.arange(len(of_seq))
    if not _same(of_seq, anchor, seq[owner], expected):
        row = np.lexsort((anchor, of_seq))
        if not _same(of_seq[row], anchor[row], seq[owner], expected):
            raise ValueError(
                f"The drafter {name!r} does not have one draft at every anchor of this capture: "
                "finish it with resume=True, or see trace.validate()."
            )
    room = limit[owner] - 2 - expected
    offered = np.minimum(_ints(drafts, "drafted")[row], room)
    matched = np.minimum(_ints(drafts, "matched")[row], n[owner] - 2 - expected)
    acceptable = np.minimum(offered, matched)
    if np.any(acceptable < 0):
        bad = int(np.argmin(acceptable))
        raise ValueError(
            f"The draft at anchor {expected[bad]} of sequence {seq[owner[bad]]} has a negative "
            "length: see trace.validate()."
        )
    return Anchors(
        drafter=name,
        k=int(trace.meta.drafters[name]["k"]),
        seq=seq,
        n=n,
        prompt_id=np.array(sequences["prompt_id"].to_pylist(), dtype=object),
        content_type=np.array(sequences["content_type"].to_pylist(), dtype=object),
        eos=np.array([finish == "eos" for finish in sequences["finish"].to_pylist()], dtype=bool),
        start=start,
        owner=owner,
        anchor=expected,
        room=room,
        offered=offered,
        acceptable=acceptable,
        row=row,
    )


def _ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(table[name].combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)


def _same(seq: Ints, anchor: Ints, expected_seq: Ints, expected_anchor: Ints) -> bool:
    return np.array_equal(seq, expected_seq) and np.array_equal(anchor, expected_anchor)
