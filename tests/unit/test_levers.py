"""Policies side by side: the numbers are the replays', the intervals are of the same prompts."""

from __future__ import annotations

import numpy as np
import pytest

import specviz as sv
from specviz.analysis import length_by_nodes
from specviz.policies import FixedK, FixedTree
from specviz.presets import free_drafts, t4_like
from tests.synthetic import synthetic_trace
from tests.unit.test_tree_rounds import K, captured, toy

POLICIES = {"chain": FixedK(3), "longer": FixedK(5), "none": FixedK(0)}


def test_rows_are_the_replays() -> None:
    trace = synthetic_trace(3, content_types=("code", "prose"), prompts_per_type=4)
    costs = [free_drafts(), t4_like()]
    table = sv.compare_policies(trace, POLICIES, costs, draws=200)
    assert table.content_type.unique().tolist() == ["code", "prose", "all"]
    for row in table.to_dict("records"):
        part = trace if row["content_type"] == "all" else trace.select(row["content_type"])
        run = sv.replay(part, POLICIES[row["policy"]])
        assert row["tokens_per_round"] == pytest.approx(run.tokens_per_round)
        assert row["rows_per_round"] == pytest.approx(run.rows_per_round)
        assert row["n_rounds"] == run.n_rounds
        tokens = run.rounds.emitted.sum()
        for cost in costs:
            expected = cost.speedup(tokens, run.seconds(cost).sum())
            assert row[f"speedup ({cost.name})"] == pytest.approx(expected)
        assert row["low"] <= row["tokens_per_round"] <= row["high"]
    first = table[table.policy == "chain"]
    assert (first[["gain", "gain_low", "gain_high"]] == 0).all().all()
    plain = table[table.policy == "none"]
    np.testing.assert_allclose(plain[["tokens_per_round", "speedup (T4-like)"]], 1.0)
    longer = table[table.policy == "longer"]
    assert (longer.gain_low <= longer.gain).all()


def test_trees_stand_beside_chains() -> None:
    trace = captured(toy)
    tree = FixedTree(sv.BestFirst(12, depth=K))
    costs = [t4_like(), t4_like("rows")]
    table = sv.compare_policies(trace, {"chain": FixedK(K), "tree": tree}, costs, draws=50)
    chain, wide = table.to_dict("records")
    assert wide["rows_per_round"] > chain["rows_per_round"] + 2
    assert chain["speedup (T4-like)"] == pytest.approx(chain["speedup (T4-like, rows charged)"])
    assert wide["speedup (T4-like)"] > wide["speedup (T4-like, rows charged)"]


def test_trees_at_every_budget_beside_chains() -> None:
    trace = captured(toy)
    table = length_by_nodes(trace, budgets=(1, 4, 5, 12, 64), draws=20)
    sizes = table.groupby("builder").nodes.apply(list).to_dict()
    assert sizes["chain"] == [1, 4, 5]  # the longest, too
    assert sizes["best-first-d5"] == [1, 4, 5, 12]
    assert sizes["cartesian-3-2-1"] == [15]
    one = table[table.nodes == 1].tokens_per_round
    assert one.nunique() == 1  # one node is one token, however it was chosen
    row = table[(table.builder == "best-first-d5") & (table.nodes == 12)].iloc[0]
    run = sv.replay(trace, FixedTree(sv.BestFirst(12, depth=K)))
    assert row.tokens_per_round == run.tokens_per_round
    assert row.rows_per_round == run.rows_per_round
    with pytest.raises(ValueError, match="no trees by 'markov'"):
        length_by_nodes(captured(toy, trees=()))


def test_bad_input() -> None:
    trace = synthetic_trace(1, content_types=("code",), prompts_per_type=1)
    assert np.isnan(sv.compare_policies(trace, POLICIES, draws=5).low).all()
    with pytest.raises(ValueError, match="map labels to policies"):
        sv.compare_policies(trace, [FixedK(3)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Two cost models have one name"):
        sv.compare_policies(trace, POLICIES, [t4_like(), t4_like()])
    with pytest.raises(ValueError, match="not a cost model"):
        sv.compare_policies(trace, POLICIES, [7])  # type: ignore[list-item]
    with pytest.raises(ValueError, match='charge must be "tokens" or "rows"'):
        t4_like("both")
