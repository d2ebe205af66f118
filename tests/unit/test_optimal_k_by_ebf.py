"""k by branching factor: the batch replay is the replay, the search is exhaustive, and what is
held out is held out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specviz.analysis.anchors import anchors_of
from specviz.analysis.ebf.optimal_k import OptimalKByEBF, optimal_k_by_ebf
from specviz.analysis.ebf.steps import (
    EBFSteps,
    bin_edges,
    causal_ebf,
    gates,
    hindsight_ebf,
    in_bins,
    seconds_of,
    step_functions,
    visited,
)
from specviz.analysis.replays.oracle import oracle
from specviz.analysis.replays.replay import replay
from specviz.bundled import bundled_trace
from specviz.cost import CostModel
from specviz.policies import FixedK, History
from specviz.presets import free_drafts, t4_like
from specviz.trace import Trace
from tests.synthetic import synthetic_trace, trace_of

K = 3
TRACE = synthetic_trace(0, k=K, max_new_tokens=30)
COST = CostModel.from_array([1.0, 1.1, 1.2, 1.25], [0.0, 0.3, 0.45, 0.7])


def per_prompt(trace: Trace, policy: Any, cost: CostModel) -> np.ndarray:
    found = replay(trace, policy)
    spent = pd.Series(found.seconds(cost)).groupby(found.rounds["seq"]).sum()
    return spent.reindex(trace.sequences["seq"], fill_value=0.0).to_numpy()


@cache
def planted(seed: int = 0) -> Trace:
    """Stretches where the target is sure and drafts match to the end, and stretches where it
    is not and none does."""
    rng = np.random.default_rng(seed)
    matches, heat = [], []
    for _ in range(10):
        n, k = 60, 4
        sure = np.repeat(rng.permutation([True, True, True, False, False, False]), 12)
        hit = sure[1 : n + k]
        run = np.array([int(np.argmin([*hit[a : a + k], False])) for a in range(n - 1)])
        matches.append(run)
        heat.append(np.where(sure[:n], 0.15, 1.2))
    return trace_of(matches, k=4, temperatures=heat, content_types=["code", "prose"] * 5)


@cache
def of_planted() -> OptimalKByEBF:
    return optimal_k_by_ebf(planted(), COST_4, m=2, bins=2, draws=300)


COST_4 = CostModel.from_array([1.0, 1.05, 1.1, 1.15, 1.2], [0.0, 0.2, 0.3, 0.4, 0.5])


# -- the parts --------------------------------------------------------------------------------


def test_the_two_readings() -> None:
    anchors = anchors_of(TRACE)
    h = TRACE.positions.set_index(["seq", "t"])["entropy"]
    causal, ahead = causal_ebf(TRACE, anchors, 4), hindsight_ebf(TRACE, anchors)
    for place in range(0, len(causal), 17):
        s, a = anchors.owner[place], anchors.anchor[place]
        mine = h.loc[anchors.seq[s]].to_numpy()
        assert causal[place] == pytest.approx(np.exp(mine[max(0, a - 3) : a + 1].mean()), rel=1e-5)
        assert ahead[place] == pytest.approx(np.exp(mine[a + 1 : a + 1 + K].mean()), rel=1e-5)


@pytest.mark.parametrize("window", [1, 8])
def test_all_at_once_is_one_by_one(window: int) -> None:
    anchors = anchors_of(TRACE)
    ebf = causal_ebf(TRACE, anchors, window)
    edges = bin_edges(ebf, 3)
    ks = step_functions(3, K, monotone=False)
    seconds = seconds_of(anchors, COST, in_bins(ebf, edges), ks)
    assert seconds.shape == (64, 12)
    for row in range(0, 64, 9):
        policy = EBFSteps(edges, ks[row].tolist(), window)
        np.testing.assert_allclose(seconds[row], per_prompt(TRACE, policy, COST))
        where = visited(anchors, ks[row][in_bins(ebf, edges)])
        rounds = replay(TRACE, policy).rounds
        assert where.tolist() == (anchors.start[rounds["seq"]] + rounds["anchor"]).tolist()


def test_blocks_do_not_change_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors = anchors_of(TRACE)
    place, ks = np.zeros(len(anchors.anchor), int), np.arange(K + 1)[:, None]
    whole = seconds_of(anchors, COST, place, ks)
    monkeypatch.setattr("specviz.analysis.ebf.steps._CHUNK", 20)
    np.testing.assert_array_equal(whole, seconds_of(anchors, COST, place, ks))


@pytest.mark.parametrize(("bins", "k"), [(1, 3), (3, 2), (4, 7)])
def test_step_functions_and_gates(bins: int, k: int) -> None:
    falling = step_functions(bins, k, monotone=True)
    assert len({tuple(row) for row in falling.tolist()}) == comb(k + bins, bins)
    assert (np.diff(falling, axis=1) <= 0).all()
    assert (falling[0] == 0).all()
    every = {tuple(row) for row in step_functions(bins, k, monotone=False).tolist()}
    assert every == set(product(range(k + 1), repeat=bins))
    assert {tuple(row) for row in falling.tolist()} <= every
    shut = gates(bins, k).tolist()
    assert len({tuple(row) for row in shut}) == bins * k + 1
    assert shut[0] == [1] * bins
    assert shut[-1] == [0] * bins
    for row in shut:
        levels = {each for each in row if each}
        assert len(levels) <= 1
        assert sorted(row, reverse=True) == row


def test_an_edge_belongs_to_the_bin_above() -> None:
    policy = EBFSteps((2.0, 5.0), (3, 2, 1), window=1)
    for b, k in [(1.0, 3), (1.999, 3), (2.0001, 2), (4.9, 2), (7, 1)]:
        assert policy.plan(History(0, (), [1], [np.log(b)], [], [])).k == k
    assert in_bins(np.array([1.9, 2.0, 5.0]), policy.edges).tolist() == [0, 1, 2]
    assert bin_edges(np.array([1.0, 1.0, 1.0]), 4) == ()
    assert bin_edges(np.arange(1.0, 9.0), 2) == (4.5,)
    assert bin_edges(np.arange(1.0, 9.0), np.array([2, 3])) == (2.0, 3.0)


# -- the search, and what is held out ---------------------------------------------------------


@pytest.mark.parametrize("monotone", [True, False])
def test_no_step_function_is_faster(monotone: bool) -> None:
    found = optimal_k_by_ebf(TRACE, COST, m=3, bins=2, monotone=monotone, draws=20)
    edges = found.policy.edges
    totals = {
        ks: per_prompt(TRACE, EBFSteps(edges, ks, 3), COST).sum()
        for ks in product(range(K + 1), repeat=2)
        if not monotone or ks[0] >= ks[1]
    }
    best = min(totals, key=lambda ks: totals[ks])
    assert totals[tuple(found.policy.ks)] == pytest.approx(totals[best])
    fixed = min(per_prompt(TRACE, FixedK(k), COST).sum() for k in range(K + 1))
    row = found.gains.set_index("policy").loc["k by causal EBF"]
    assert row["gain_fitted"] == pytest.approx(fixed / totals[best] - 1)
    own = replay(TRACE, found.policy)
    assert row["n_rounds"] == own.n_rounds
    assert row["tokens_per_round"] == pytest.approx(own.tokens_per_round)
    tokens = (TRACE.sequences["n_output"] - 1).sum()
    assert row["speedup"] == pytest.approx(tokens * COST.plain_seconds / totals[best])
    bins = found.table[found.table["reading"] == "causal"]
    assert bins["k"].tolist() == list(found.policy.ks)
    assert bins["n_rounds"].sum() == own.n_rounds
    assert (bins["n_rounds"] * bins["tokens_per_round"]).sum() == pytest.approx(tokens)
    assert (bins["k_low"] <= bins["k_high"]).all()


def test_held_out_is_chosen_without_the_prompt() -> None:
    found = optimal_k_by_ebf(TRACE, COST, m=3, bins=2, draws=20)
    policies = {
        ks: per_prompt(TRACE, EBFSteps(found.policy.edges, ks, 3), COST)
        for ks in product(range(K + 1), repeat=2)
        if ks[0] >= ks[1]
    }
    fixed = {k: per_prompt(TRACE, FixedK(k), COST) for k in range(K + 1)}

    def held_out(family: dict[Any, np.ndarray], among: np.ndarray | None = None) -> np.ndarray:
        out = np.zeros(12)
        for s in range(12):
            others = (np.arange(12) != s) & (True if among is None else among == among[s])
            best = min(family, key=lambda each: family[each][others].sum())
            out[s] = family[best][s]
        return out

    gains = found.gains.set_index("policy")["gain_held_out"]
    rival = held_out(fixed).sum()
    assert gains["best fixed k"] == 0
    assert gains["k by causal EBF"] == pytest.approx(rival / held_out(policies).sum() - 1)
    kinds = TRACE.sequences["content_type"].to_numpy()
    by_kind = held_out(fixed, kinds).sum()
    assert gains["best k by content type"] == pytest.approx(rival / by_kind - 1)
    least = oracle(TRACE, COST).seconds(COST).sum()
    assert gains["oracle"] == pytest.approx(rival / least - 1)
    assert found.folds == 12
    thirds = optimal_k_by_ebf(TRACE, COST, m=3, bins=2, folds=3, draws=20)
    assert thirds.folds == 3
    assert thirds.gains["gain_fitted"].equals(found.gains["gain_fitted"])


def test_a_prompt_is_held_out_with_all_its_outputs() -> None:
    """Two outputs of one prompt: one to judge on must not be fitted on through the other."""
    streams = [[3, 3, 3, 3] * 3, [3, 3, 3, 3] * 3, [0] * 12]
    trace = trace_of(streams, k=K, prompt_ids=["p", "p", "q"], content_types="code")
    gains = optimal_k_by_ebf(trace, COST, bins=(2,), draws=20).gains.set_index("policy")
    assert set(gains["n_prompts"]) == {2}
    seconds = np.array([per_prompt(trace, FixedK(k), COST) for k in range(K + 1)])
    p, q = seconds[:, :2].sum(axis=1), seconds[:, 2]
    rival = p[q.argmin()] + q[p.argmin()]  # each is given what is best for the other
    assert q.argmin() != p.argmin()
    least = oracle(trace, COST).seconds(COST).sum()
    assert gains["gain_held_out"]["oracle"] == pytest.approx(rival / least - 1)


def test_a_kind_with_one_prompt_is_held_out_to_what_is_best_for_the_others() -> None:
    streams = [[3, 2, 1, 0, 3, 2, 1, 0]] * 4
    trace = trace_of(streams, k=K, content_types=["code", "code", "code", "prose"])
    gains = optimal_k_by_ebf(trace, COST, bins=(2,), draws=20).gains.set_index("policy")
    assert gains.loc["best fixed k", "speedup"] > 1  # drafting nothing would be a loss
    assert gains.loc["best k by content type", "gain_held_out"] == pytest.approx(0)


def test_a_planted_rule_is_found_and_pays_on_other_prompts() -> None:
    found = of_planted()
    assert found.policy.ks[0] == 4
    assert found.policy.ks[-1] == 0
    row = found.gains.set_index("policy").loc["k by causal EBF"]
    assert row["held_out_low"] > 0.05
    assert row["gain_held_out"] <= row["gain_fitted"] + 1e-12
    sure, unsure = (np.exp(planted().positions["entropy"]).quantile(q) for q in (0.2, 0.8))
    assert sure < found.stops_low <= found.stops_at <= found.stops_high < unsure
    assert found.stops_share == 1
    assert "stops paying at a branching factor of" in str(found)
    # Made on these prompts, it pays on others of the same kind.
    elsewhere = planted(1)
    gain = min(per_prompt(elsewhere, FixedK(k), COST_4).sum() for k in range(5))
    assert gain / per_prompt(elsewhere, found.policy, COST_4).sum() - 1 > 0.05


def test_order_of_the_gains() -> None:
    gains = of_planted().gains.set_index("policy")
    assert gains["hindsight"].tolist() == [False, False, False, True, True]
    assert (gains.loc["oracle", "gain_fitted"] >= gains["gain_fitted"]).all()
    assert (gains["gain_fitted"] >= -1e-12).all()
    assert gains.loc["k by EBF of the next K", "gain_fitted"] > 0
    assert set(gains["n_prompts"]) == {10}


def test_chance_alone_does_not_pay_on_other_prompts() -> None:
    """Matches that have nothing to do with the entropy: something is always fitted."""
    fitted, held_out = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        matches = [np.minimum(rng.geometric(0.4, 31) - 1, K) for _ in range(8)]
        heat = [rng.uniform(0.2, 0.9, 32) for _ in range(8)]
        trace = trace_of(matches, k=K, temperatures=heat)
        found = optimal_k_by_ebf(trace, COST, m=2, bins=4, monotone=False, draws=20)
        row = found.gains.set_index("policy").loc["k by causal EBF"]
        fitted.append(row["gain_fitted"])
        held_out.append(row["gain_held_out"])
    assert np.mean(fitted) > 0.01
    assert np.mean(held_out) < 0.3 * np.mean(fitted)


def test_where_drafts_are_free_it_pays_everywhere_and_where_they_are_dear_nowhere() -> None:
    free = optimal_k_by_ebf(TRACE, free_drafts(), bins=2, draws=50)
    assert (free.stops_at, free.stops_share) == (np.inf, 0)
    assert "pays at every branching factor seen" in str(free)
    dear = optimal_k_by_ebf(TRACE, CostModel.from_array([1, 9], [0, 9, 18, 27]), bins=2, draws=50)
    assert (dear.stops_at, dear.stops_high) == (1, 1)
    assert set(dear.policy.ks) == {0}
    assert "at no branching factor" in str(dear)
    assert dear.gains["n_rounds"].nunique() == 1


def test_on_the_bundled_trace_the_branching_factor_hardly_helps() -> None:
    """SmolLM2, the small lm, T4-like costs: a thousandth or so, where an oracle gains 15 %."""
    found = optimal_k_by_ebf(bundled_trace("smollm2-trees"), t4_like(), "lm", draws=300)
    gains = found.gains.set_index("policy")
    causal = gains.loc["k by causal EBF"]
    assert abs(causal["gain_fitted"]) < 0.01
    assert causal["held_out_low"] < 0 < causal["held_out_high"] < 0.02
    assert gains.loc["oracle", "fitted_low"] > 0.1
    assert gains.loc["best fixed k", "n_prompts"] == 36
    assert "T4-like" in found.caption
    assert "hindsight" in found._repr_html_()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: optimal_k_by_ebf(TRACE, None), "not a cost model"),
        (lambda: optimal_k_by_ebf(TRACE, COST, m=0), "committed tokens to average"),
        (lambda: optimal_k_by_ebf(TRACE, COST, bins=1), "bins must be a whole number"),
        (lambda: optimal_k_by_ebf(TRACE, COST, bins="4"), "bins must be a whole number"),
        (lambda: optimal_k_by_ebf(TRACE, COST, bins=(3, 2)), "edges must rise"),
        (lambda: optimal_k_by_ebf(TRACE, COST, bins=(0.5, 2)), "Every edge must be"),
        (lambda: step_functions(60, 3, monotone=True), "step functions, more than 30,000: use"),
        (lambda: optimal_k_by_ebf(TRACE, COST, bins=9, monotone=False), "monotone=True"),
        (lambda: optimal_k_by_ebf(TRACE, COST, folds=13), "need as many prompts"),
        (lambda: optimal_k_by_ebf(trace_of([[1, 0, 0]], k=3), COST), "two prompts or more"),
        (lambda: optimal_k_by_ebf(TRACE, COST, level=2), "level is a share"),
        (lambda: EBFSteps((2,), (1,)), "make 2 bins"),
        (lambda: EBFSteps((2,), (1, 0.5)), "whole number"),
        (lambda: EBFSteps((2,), (1, 0)).plan(History(0, (), [1], [], [], [])), "records none"),
    ],
)
def test_refusals(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
