"""k as a step function of the branching factor: the policy, and all such policies at once.

The causal branching factor at an anchor is exp of the mean entropy over the last m committed
tokens, which a running engine knows. The hindsight one averages over the K tokens to come,
which nobody knows before they are verified; it is here to say how much is lost by not knowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise, product
from math import comb, exp, fsum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specviz.analysis.anchors import Anchors, Ints, by_position
from specviz.analysis.resampling import Floats
from specviz.cost import CostModel
from specviz.policies import DraftView, History, Plan
from specviz.policies.base import number, recent
from specviz.refuse import whole
from specviz.trace import Trace

#: Most step functions that are replayed in one search, and sequences held at once.
MOST = 30_000
_CHUNK = 2_000_000


@dataclass(frozen=True)
class EBFSteps:
    """Draft `ks[i]` tokens while the causal branching factor is in bin i.

    B is the geometric mean of the target's branching factor over the last `window` committed
    tokens, exp(mean H) (F1.6). It is in bin i when exactly i of the edges are at most B. Depends
    on committed text only; runs live and in replay.

    Parameters
    ----------
    edges
        Rising branching factors, each at least 1.
    ks
        One more than there are edges; none above the drafter's K.
    window
        Committed tokens to average; fewer at the start of the output.
    drafter
        Name of the drafter; None takes the only one.

    Raises
    ------
    ValueError
        When edges do not rise or their number does not fit ks; from `plan`, when the run
        records no entropies.

    Examples
    --------
    >>> policy = EBFSteps((1.5, 4.0), (5, 2, 0), window=4)
    >>> policy.name
    'ebf-steps-4'
    >>> policy.plan(History(1, (), [7, 8], [0.7, 0.9], [], [])).k        # B = exp(0.8) = 2.2
    2
    """

    edges: Sequence[float]
    ks: Sequence[int]
    window: int = 8
    drafter: str | None = None
    replayable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        edges = tuple(number("Every edge", edge, 1) for edge in self.edges)
        ks = tuple(whole("Every one of ks", k, least=0) for k in self.ks)
        if any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"edges must rise: {edges} do not.")
        if len(ks) != len(edges) + 1:
            raise ValueError(f"{len(edges)} edges make {len(edges) + 1} bins, not {len(ks)} ks.")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "ks", ks)
        object.__setattr__(self, "window", whole("window", self.window, least=1))

    @property
    def name(self) -> str:
        return f"ebf-steps-{self.window}"

    def plan(self, past: History) -> Plan:
        b = _geometric(recent(past, self.window))
        return Plan(self.ks[int(np.searchsorted(self.edges, b, side="right"))], self.drafter)

    def more(self, view: DraftView) -> bool:
        return True


def causal_ebf(trace: Trace, anchors: Anchors, window: int) -> Floats:
    """Per anchor: geometric mean of the branching factor up to and with the anchor. Shape [A]."""
    return np.array(
        [
            _geometric(h[max(0, a + 1 - window) : a + 1])
            for h in _entropies(trace, anchors)
            for a in range(len(h) - 1)
        ]
    )


def hindsight_ebf(trace: Trace, anchors: Anchors) -> Floats:
    """Per anchor: geometric mean over the next K output tokens (fewer at the end). Shape [A]."""
    return np.array(
        [
            _geometric(h[a + 1 : a + 1 + anchors.k])
            for h in _entropies(trace, anchors)
            for a in range(len(h) - 1)
        ]
    )


def bin_edges(ebf: Floats, bins: int | Sequence[float]) -> tuple[float, ...]:
    """Edges between bins of like size over anchors, or the edges given."""
    if not isinstance(bins, int | np.integer) and np.ndim(bins) == 1:
        given = [*bins]
        return tuple(EBFSteps(given, (0,) * (len(given) + 1)).edges)
    inner = np.quantile(ebf, np.linspace(0, 1, whole("bins", bins, least=2) + 1)[1:-1])
    return tuple(np.unique(inner[inner > ebf.min()]).tolist())


def in_bins(ebf: Floats, edges: Sequence[float]) -> Ints:
    return np.searchsorted(np.asarray(edges), ebf, side="right")


def step_functions(bins: int, k: int, monotone: bool) -> Ints:
    """Every k per bin, 0..K; with `monotone` only those that never rise. Shape [C, bins]."""
    count = comb(k + bins, bins) if monotone else (k + 1) ** bins
    if count > MOST:
        raise ValueError(
            f"{bins} bins and K = {k} make {count:,} step functions, more than {MOST:,}: use "
            f"fewer bins{'' if monotone else ', or monotone=True'}."
        )
    ks = range(k + 1)  # drafting nothing comes first, so that it wins a tie
    every = combinations_with_replacement(ks, bins) if monotone else product(ks, repeat=bins)
    return np.array(list(every), dtype=np.int64)[:, ::-1]


def gates(bins: int, k: int) -> Ints:
    """One k in the first bins and nothing from some bin on: shape [K bins + 1, bins].

    Of equal ones, drafting everywhere comes first, and nowhere last.
    """
    upto = np.arange(bins, 0, -1)[:, None] > np.arange(bins)
    rows = [one * upto for one in range(1, k + 1)]
    return np.vstack([*rows, np.zeros((1, bins))]).astype(np.int64)


def seconds_of(anchors: Anchors, cost: CostModel, place: Ints, ks: Ints) -> Floats:
    """Modelled seconds of every sequence under every step function, replayed exactly (F7.5).

    Parameters
    ----------
    place
        Bin of every anchor, shape [A].
    ks
        Shape [C, bins].

    Returns
    -------
    array
        Shape [C, S].
    """
    price = np.asarray(cost.round_seconds(anchors.drafter, np.arange(anchors.k + 1)))
    # One more anchor, where a finished sequence waits for nothing.
    offered = np.append(anchors.offered, 0)
    acceptable = np.append(anchors.acceptable, -1)
    bins = np.append(place, 0)
    rest = len(place)
    first, last = anchors.start[:-1], anchors.start[1:]
    found = np.zeros((len(ks), len(first)))
    block = max(1, _CHUNK // max(len(first), 1))
    for low in range(0, len(ks), block):
        part = ks[low : low + block]
        at = np.broadcast_to(np.where(first < last, first, rest), (len(part), len(first))).copy()
        spent = found[low : low + len(part)]
        rows = np.arange(len(part))[:, None]
        while (at < rest).any():
            k = part[rows, bins[at]]
            spent += np.where(at < rest, price[np.minimum(k, offered[at])], 0.0)
            on = at + np.minimum(k, acceptable[at]) + 1
            at = np.where((at < rest) & (on < last), on, rest)
    return found


def visited(anchors: Anchors, k: Ints) -> NDArray[np.int64]:
    """Anchors (flat) where rounds start when anchor a drafts k[a]."""
    step = np.maximum(np.minimum(anchors.acceptable, k), 0) + 1
    where, at = [], 0
    steps = step.tolist()
    while at < len(steps):  # a sequence's last round lands on the next one's first anchor
        where.append(at)
        at += steps[at]
    return np.array(where, dtype=np.int64)


def _geometric(entropies: Sequence[float]) -> float:
    return exp(fsum(entropies) / len(entropies))


def _entropies(trace: Trace, anchors: Anchors) -> list[list[float]]:
    """Of every sequence, in the order of the anchors."""
    every = by_position(trace, anchors, "entropy").tolist()
    ends = np.cumsum(anchors.n).tolist()
    return [every[low:high] for low, high in zip([0, *ends[:-1]], ends, strict=True)]
