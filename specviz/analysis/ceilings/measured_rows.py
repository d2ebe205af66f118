"""The rows of `measured_bounds`: what is summed per prompt, and what is read from the sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from specviz.analysis.anchors import Anchors, Ints, anchors_of, fixed_rounds, follow
from specviz.analysis.branching import pmax_bounds
from specviz.analysis.ceilings.first_tokens import Statistic
from specviz.analysis.replays.sampled import replay_sampled
from specviz.analysis.theory.bounds import chain_tau, explicit_bound, posterior_entropy_bounds
from specviz.analysis.theory.divergence import (
    bretagnolle_huber_floor,
    kl_certificate,
    overlap_certificate,
    pinsker_floor,
)
from specviz.trace import Trace
from specviz.trace.remembered import per_trace

FIRST, TAU, UNKNOWN = "first token kept", "tokens per round", "H(Y | F), nats"


@dataclass(frozen=True)
class Row:
    """One bound of every group.

    Attributes
    ----------
    quantity, bound, side, holds, assumes, formula
        Columns of the table.
    statistic
        Its value from the means of columns over anchors.
    rounds
        The column that its n counts; None counts anchors.
    """

    quantity: str
    bound: str
    side: str
    holds: str
    assumes: str
    formula: str
    statistic: Statistic
    rounds: str | None = None


def limit(k: int) -> Row:
    """k + 1, the one ceiling that always applies."""

    def constant(means: Mapping[str, Any]) -> Any:
        return np.full(np.shape(means["count"]), k + 1.0)

    return Row(TAU, "length of the draft", "at most", "theorem", "nothing", "F2.5", constant)


# ---- greedy target -----------------------------------------------------------------------


def greedy_columns(frame: pd.DataFrame, among: list[int]) -> dict[str, Any]:
    """Per anchor, whether the first token matches, surely matches, or is among m candidates."""
    p, second = frame["p_max"].to_numpy(), frame["second"].to_numpy()
    by_kl = frame["kl"].to_numpy() < kl_certificate(p, second)
    by_overlap = frame["overlap"].to_numpy() > overlap_certificate(p, second)
    rank = frame["rank"].to_numpy()
    return {
        "match": frame["matched"].to_numpy() >= 1,
        "by_kl": by_kl,
        "by_overlap": by_overlap,
        "sure": by_kl | by_overlap,
        **{f"recall_{m}": (rank >= 0) & (rank < m) for m in among},
    }


def greedy_rounds(trace: Trace, drafter: str, k: int, among: list[int]) -> pd.DataFrame:
    """Tokens and rounds per prompt: of the chain, and the fewest rounds with m candidates."""
    anchors, runs = anchors_of(trace, drafter), _runs(trace, drafter, tuple(among))
    where, _, _ = fixed_rounds(anchors, k)
    table = {
        "tokens": anchors.n - 1,
        "rounds_chain": np.bincount(anchors.owner[where], minlength=len(anchors.n)),
        **{f"rounds_{m}": fewest_rounds(anchors, np.minimum(runs[m], k)) for m in among},
    }
    frame = pd.DataFrame(table, pd.Index(anchors.prompt_id, name="prompt_id"), dtype=float)
    return frame.groupby(level=0, sort=False).sum()  # a prompt may have several outputs


def greedy_rows(size: int, k: int, among: list[int]) -> list[Row]:
    """Floors and ceilings of a greedy target; `size` is V."""
    argmax = "drafts of the drafter's argmax"
    sure = {"by_kl": "certain from KL", "by_overlap": "certain from overlap"}
    floors = [
        Row(FIRST, words, "at least", "theorem", argmax, "F3.4", mean(name))
        for name, words in {**sure, "sure": "certain from either"}.items()
    ]
    chosen = "one draft out of those candidates"
    recalls = [
        Row(FIRST, f"{m} candidates", "at most", "theorem", chosen, "T6.4", mean(f"recall_{m}"))
        for m in among
    ]
    held = "chains or trees of the drafter's m likeliest at every depth"
    ceilings = [
        Row(TAU, f"{m} candidates", "at most", "theorem", held, "T6.4", *_per_round(str(m)))
        for m in among
    ]
    own = "rounds of k tokens"
    unknown = [
        Row(UNKNOWN, name, side, holds, assumes, "T6.4", _posterior(size, end))
        for name, side, holds, assumes, end in (
            ("Fano", "at most", "theorem", "F is what this drafter sees", 1),
            ("Feder and Merhav", "at least", "model", "no drafter makes more of F", 0),
        )
    ]
    return [
        Row(FIRST, "matched", "measured", "measured", "nothing", "F3.4", mean("match")),
        *floors,
        *recalls,
        Row(TAU, "this drafter", "measured", "measured", own, "F7.5", *_per_round("chain")),
        *ceilings,
        limit(k),
        *unknown,
    ]


@per_trace
def _runs(trace: Trace, drafter: str, among: tuple[int, ...]) -> dict[int, Ints]:
    """Per m and anchor, leading depths at which the realised token is among m candidates."""
    anchors = anchors_of(trace, drafter)
    rank = trace.matrix("path_rank", drafter)[anchors.row]
    end = anchors.n[anchors.owner] - 2 - anchors.anchor
    most = np.minimum(anchors.offered, end)
    runs = {m: np.cumprod((rank >= 0) & (rank < m), axis=1).sum(axis=1) for m in among}
    return {m: np.asarray(np.minimum(run, most), dtype=np.int64) for m, run in runs.items()}


def fewest_rounds(anchors: Anchors, held: Ints) -> Ints:
    """Per sequence, the fewest rounds when up to `held` tokens can be accepted at an anchor.

    The longest step is not always best: a shorter one can lead to a better anchor. All anchors
    that r rounds can reach lie in one piece, so r + 1 rounds reach what the best of them, or of
    those before, reaches.
    """
    at = np.arange(len(held))
    reach = np.maximum.accumulate(at + 1 + held)  # at most the next sequence's first anchor
    return np.bincount(anchors.owner[follow(reach - at)], minlength=len(anchors.n))


def _per_round(which: str) -> tuple[Statistic, str]:
    name = f"rounds_{which}"
    return (lambda means: means["tokens"] / means[name]), name


def _posterior(size: int, end: int) -> Statistic:
    def statistic(means: Mapping[str, Any]) -> Any:
        return posterior_entropy_bounds(np.clip(means["match"], 1 / size, 1.0), size)[end]

    return statistic


# ---- sampled target ----------------------------------------------------------------------


def sampled_columns(frame: pd.DataFrame, size: int, raw: bool) -> dict[str, Any]:
    """Per anchor, how near q is to p, and (of the raw p only) how undecided p is."""
    kl = frame["kl"].to_numpy()
    columns: dict[str, Any] = {
        "match": frame["matched"].to_numpy() >= 1,
        "overlap": frame["overlap"],
        "kl": np.where(np.isinf(kl), 0.0, kl),  # infinity times no prompt is no number
        "unbounded": np.isinf(kl),
        "bretagnolle_huber": bretagnolle_huber_floor(kl),
        "pinsker": pinsker_floor(kl),
    }
    if raw:
        low, high = pmax_bounds(np.minimum(frame["entropy"].to_numpy(), np.log(size)), size)
        columns |= {name: frame[name] for name in ("entropy", "log2_moment", "p_max")}
        columns |= {"p_low": low, "p_high": high}
    return columns


def sampled_rounds(trace: Trace, drafter: str, k: int) -> pd.DataFrame:
    """Tokens, and expected rounds under two lossless rules (F7.6), per prompt."""
    columns = {}
    for rule in ("argmax-match", "rejection"):
        rounds = replay_sampled(trace, k, drafter, rule=rule, draws=1).rounds
        prompt, weight = rounds["prompt_id"], rounds["weight"]
        columns[f"rounds_{rule}"] = weight.groupby(prompt, sort=False).sum()
        columns["tokens"] = (weight * rounds["emitted"]).groupby(prompt, sort=False).sum()
    return pd.DataFrame(columns).rename_axis("prompt_id")


def sampled_rows(size: int, k: int, nodes: int, raw: bool) -> list[Row]:
    """Floors and ceilings of a sampled target under lossless rules; `size` is V."""
    drawn, argmax = "one draft drawn from q, kept by rejection", "this drafter's argmax"
    floors = {
        "Bretagnolle-Huber at every position": mean("bretagnolle_huber"),
        "Pinsker at every position": mean("pinsker"),
        "Bretagnolle-Huber at the mean KL": _at_mean_kl,
    }
    return [
        Row(FIRST, "overlap of p and q", "measured", "measured", drawn, "F3.1", mean("overlap")),
        *(
            Row(FIRST, name, "at least", "theorem", drawn, "T5.1", statistic)
            for name, statistic in floors.items()
        ),
        Row(FIRST, "argmax draft", "measured", "measured", argmax, "F3.2", mean("match")),
        *(
            Row(TAU, name, "measured", "measured", assumes, "F7.6", *_per_round(rule))
            for name, assumes, rule in (
                ("this drafter's argmax", "kept where the target draws the same", "argmax-match"),
                ("this drafter's draws", "drawn from q, kept by rejection", "rejection"),
            )
        ),
        *(_fixed_rows(size, k, nodes) if raw else []),
        limit(k),
    ]


def _at_mean_kl(means: Mapping[str, Any]) -> Any:
    return bretagnolle_huber_floor(np.where(means["unbounded"] > 0, np.inf, means["kl"]))


def _fixed_rows(size: int, k: int, nodes: int) -> list[Row]:
    fixed = "one fixed draft, or a match with an independent draw"
    best = "the best fixed draft"
    tokens = [
        Row(FIRST, name, side, "theorem", assumes, formula, mean(column))
        for name, side, assumes, formula, column in (
            ("mean of p_max = 1 / EBF_inf", "at most", fixed, "T5.2", "p_max"),
            ("least mean p_max at these entropies", "at least", best, "F1.3", "p_low"),
            ("largest mean p_max at these entropies", "at most", fixed, "F1.3", "p_high"),
        )
    ]
    alike = "a fixed chain; one law at every position"
    chains = [
        Row(TAU, f"chain at {name}", side, "model", alike, "T5.7", _chain(chance, k))
        for name, side, chance in (
            ("exp(-mean entropy)", "at least", lambda m: np.exp(-m["entropy"])),
            ("the least p_max of the mean entropy", "at least", _allowed(size, 0)),
            ("the mean p_max", "at most", mean("p_max")),
            ("the largest p_max of the mean entropy", "at most", _allowed(size, 1)),
        )
    ]

    def light(means: Mapping[str, Any]) -> Any:
        found = explicit_bound(means["entropy"], means["log2_moment"], nodes)
        return np.minimum(found, min(nodes, k) + 1.0)

    apart = "fixed tokens; laws independent after every prefix"
    name = f"speed of light, {nodes} nodes to depth {k}"
    return [*tokens, *chains, Row(TAU, name, "at most", "model", apart, "T5.5'", light)]


def _allowed(size: int, end: int) -> Statistic:
    def statistic(means: Mapping[str, Any]) -> Any:
        return pmax_bounds(np.clip(means["entropy"], 0.0, np.log(size)), size)[end]

    return statistic


def _chain(chance: Statistic, k: int) -> Statistic:
    return lambda means: chain_tau(chance(means), k)


def mean(name: str) -> Statistic:
    """The mean of a column over anchors."""
    return lambda means: means[name]
