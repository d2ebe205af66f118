"""Does the branching factor tell how many tokens to draft? The best k per bin of it, judged.

Every step function from branching factor to k is replayed exactly, over the anchors that it
visits itself, and the fastest under a cost model is kept. What is fitted on the prompts it is
judged on looks better than it is, so every gain is given twice: on the same prompts, and with
the choice made on the other prompts each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from specviz.analysis.anchors import Anchors, anchors_of
from specviz.analysis.ebf.search import Contest, Family
from specviz.analysis.ebf.steps import (
    EBFSteps,
    bin_edges,
    causal_ebf,
    gates,
    hindsight_ebf,
    in_bins,
    step_functions,
    visited,
)
from specviz.analysis.resampling import LEVEL, Floats, check_resampling, expanded_tail, percentiles
from specviz.cost import CostModel, need_cost
from specviz.markup import counted
from specviz.refuse import whole, yes_no
from specviz.trace import Trace

#: Thresholds that are tried for where drafting stops paying: between bins of like size.
FINE = 40


@dataclass(frozen=True, eq=False)
class OptimalKByEBF:
    """The best k per bin of the branching factor, and what it brings.

    Attributes
    ----------
    table
        Per reading of the branching factor ("causal": the last m committed tokens;
        "hindsight": the next K, which no policy knows) and bin: ebf_low, ebf_high, k, k_low
        and k_high (over resampled prompts, each with its own best step function), n_rounds
        that start there, share_of_rounds, tokens_per_round of these (bonus counted).
    gains
        Per policy: hindsight, speedup (over plain decoding, fitted on these prompts) and its
        tokens_per_round (bonus counted), gain_fitted (modelled speed over the best fixed k,
        less 1; both chosen on these prompts) with fitted_low and fitted_high, gain_held_out
        (both chosen without the prompts they are judged on) with held_out_low and
        held_out_high, cost, n_rounds, n_prompts. The oracle is the least time there could be.
    stops_at
        The branching factor at and above which drafting does not pay, inf where it pays at
        every one seen: of all "draft k below, nothing from here on", the fastest.
    stops_low, stops_high, stops_share
        Over resampled prompts: its range, and the share in which there is such a place.
    policy
        The causal step function, to run live or to replay on other prompts.
    m, folds, level, draws, seed
        Tokens averaged, folds of held-out prompts, intervals.
    caption
        Whose cost, and what is counted.
    """

    table: pd.DataFrame
    gains: pd.DataFrame
    stops_at: float
    stops_low: float
    stops_high: float
    stops_share: float
    policy: EBFSteps
    m: int
    folds: int
    level: float
    draws: int
    seed: int
    caption: str

    def __str__(self) -> str:
        causal = self.gains[self.gains["policy"] == "k by causal EBF"].iloc[0].to_dict()
        held, low, high = (
            _percent(causal[name]) for name in ("gain_held_out", "held_out_low", "held_out_high")
        )
        share = f"{100 * self.stops_share:.0f} % of resamples"
        if self.stops_at == np.inf:
            stop = f"Drafting pays at every branching factor seen (it stops in {share})."
        elif self.stops_at == 1:
            stop = "Drafting pays at no branching factor seen."
        else:
            stop = f"Drafting stops paying at a branching factor of {self.stops_at:.3g}."
        return (
            f"k by the causal branching factor of {self.m} tokens, against the best fixed k: "
            f"{_percent(causal['gain_fitted'])} on the prompts it was fitted on, "
            f"{held} on prompts held out ({100 * self.level:g} % interval {low} to {high}, "
            f"{counted(causal['n_prompts'], 'prompt')}). {stop}"
        )

    def _repr_html_(self) -> str:
        from specviz.markup import escape, table_html

        return (
            f"<p>{escape(str(self))}</p>"
            + table_html(self.gains, caption=self.caption)
            + table_html(self.table)
        )


def optimal_k_by_ebf(
    trace: Trace,
    cost: CostModel,
    drafter: str | None = None,
    m: int = 8,
    bins: int | Sequence[float] = 4,
    *,
    monotone: bool = True,
    folds: int | None = None,
    level: float = LEVEL,
    draws: int = 2000,
    seed: int = 0,
) -> OptimalKByEBF:
    """The best k as a function of the branching factor, by exact replay.

    Parameters
    ----------
    trace
        A greedy capture.
    cost
        Seconds of drafting and verifying.
    drafter
        May be left out when the trace has only one.
    m
        Committed tokens whose branching factors are averaged (geometrically).
    bins
        How many bins, of like size over all anchors; or their inner edges, such as (1.5, 4).
        The edges of the hindsight reading are made the same way. Counted bins know the branching
        factors of held-out prompts (never their matches); edges that you give know nothing.
    monotone
        Only step functions whose k never rises with the branching factor: fewer, so less
        is fitted to chance. False tries all.
    folds
        Groups of prompts that are held out in turn; None holds out one prompt at a time.
    level, draws, seed
        Of the percentile intervals over resampled prompts; the seed also deals the folds.

    Returns
    -------
    OptimalKByEBF

    Raises
    ------
    ValueError
        As `replay`; when `cost` does not price the drafter up to its K, there are more step
        functions than can be replayed, bins cannot be made, or there is one prompt only.

    Notes
    -----
    The search is over whole policies, so that a longer draft that leads to worse anchors pays
    for it; an average over all anchors would not see that (F7.5). Tokens are the same for every
    policy, so the fastest has the least seconds. Intervals cover the choice of prompts only,
    not the noise of the timings; those of gain_held_out do not cover how the choice would
    differ on other prompts to fit on.

    Examples
    --------
    >>> from specviz.bundled import bundled_trace
    >>> from specviz.presets import t4_like
    >>> found = optimal_k_by_ebf(bundled_trace("smollm2-trees"), t4_like(), "lm", bins=(2, 8),
    ...                          draws=200)
    >>> found.policy.ks[0] >= found.policy.ks[-1]
    True
    """
    check_resampling(level, draws, seed)
    need_cost(cost)
    m = whole("m, the number of committed tokens to average,", m, least=1)
    monotone = yes_no("monotone", monotone)
    anchors = anchors_of(trace, drafter)
    contest = Contest.of(trace, anchors, cost, folds, level, draws, seed)
    nothing, each = np.zeros(len(anchors.anchor), np.int64), np.arange(anchors.k + 1)[:, None]
    fixed, alike = contest.family(nothing, each), np.zeros(contest.size, np.int64)
    rows = [
        contest.row("best fixed k", False, fixed, fixed, alike),
        contest.row("best k by content type", False, fixed, fixed, contest.kinds),
    ]
    recent, tables = causal_ebf(trace, anchors, m), []
    steps: dict[str, EBFSteps] = {}
    for reading, name, ebf in (
        ("causal", "k by causal EBF", recent),
        ("hindsight", "k by EBF of the next K", hindsight_ebf(trace, anchors)),
    ):
        edges = bin_edges(ebf, bins)
        family = contest.family(
            in_bins(ebf, edges), step_functions(len(edges) + 1, anchors.k, monotone)
        )
        rows.append(contest.row(name, reading == "hindsight", family, fixed, alike))
        drawn = family.ks[contest.winners(family.seconds)]
        ends = percentiles(drawn.astype(float), level, contest.size)
        part = _bins(anchors, ebf, edges, family, ends)
        tables.append(part.assign(reading=reading)[["reading", *part.columns]])
        steps[reading] = EBFSteps(edges, family.best.tolist(), m, anchors.drafter)
    rows.append(contest.oracle_row(trace, fixed))
    stops, closes = _stops(contest, recent, anchors)
    tail = expanded_tail(level, contest.size)
    low, high = np.quantile(closes, [tail, 1 - tail], method="inverted_cdf")
    return OptimalKByEBF(
        table=pd.concat(tables, ignore_index=True),
        gains=pd.DataFrame(rows),
        stops_at=stops,
        stops_low=float(low),
        stops_high=float(high),
        stops_share=float(np.isfinite(closes).mean()),
        policy=steps["causal"],
        m=m,
        folds=contest.folds,
        level=level,
        draws=draws,
        seed=seed,
        caption=f"Drafts by {anchors.drafter}; modelled seconds of {cost.name} "
        f"({cost.provenance}). {cost.note} Gains are in speed, over the best fixed k. What is "
        "called hindsight no policy can know. Intervals resample prompts.",
    )


def _bins(
    anchors: Anchors,
    ebf: Floats,
    edges: tuple[float, ...],
    family: Family,
    ends: tuple[Floats, Floats],
) -> pd.DataFrame:
    """Per bin: its k and how sure it is, and the rounds that start in it."""
    ks, place = family.best, family.place
    where = visited(anchors, ks[place])
    accepted = np.minimum(anchors.acceptable, ks[place])[where]
    rounds = np.bincount(place[where], minlength=len(ks))
    tokens = np.bincount(place[where], accepted + 1.0, len(ks))
    low, high = ends
    return pd.DataFrame(
        {
            "bin": np.arange(len(ks)),
            "ebf_low": [min([*edges, float(ebf.min())]), *edges],
            "ebf_high": [*edges, max([*edges, float(ebf.max())])],
            "k": ks,
            "k_low": np.floor(low).astype(int),
            "k_high": np.ceil(high).astype(int),
            "n_rounds": rounds,
            "share_of_rounds": rounds / rounds.sum(),
            "tokens_per_round": np.where(rounds > 0, tokens / np.maximum(rounds, 1), np.nan),
        }
    )


def _stops(contest: Contest, ebf: Floats, anchors: Anchors) -> tuple[float, Floats]:
    """Where the fastest gate closes, and where it does in every resample; inf for nowhere."""
    edges = bin_edges(ebf, FINE)
    family = contest.family(in_bins(ebf, edges), gates(len(edges) + 1, anchors.k))
    # A gate that is open in the first i bins closes at edge i - 1; below 1 there is no B.
    closes = np.array([1.0, *edges, np.inf])[(family.ks > 0).sum(axis=1)]
    best = int(np.argmin(family.seconds.sum(axis=1)))
    return float(closes[best]), closes[contest.winners(family.seconds)]


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
