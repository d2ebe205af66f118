"""The oracle against every possible sequence of drafts, and regret against arithmetic by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.anchors import anchors_of
from specviz.analysis.replays.by_k import speedup_by_k
from specviz.analysis.replays.oracle import best_fixed, oracle, regret, round_oracle
from specviz.analysis.replays.replay import Replay, replay
from specviz.cost import CostModel
from specviz.policies import ConfidenceStop, FixedK, Heuristic, History, Plan, Policy
from specviz.presets import free_drafts, t4_like
from specviz.trace.trace import Trace
from tests.synthetic import synthetic_trace, trace_of
from tests.unit.test_policies import K, policies, some_trace, traces
from tests.unit.test_replay import captures

some = settings(max_examples=40, deadline=None)
SHORT = 3


@st.composite
def costs(draw: st.DrawFn, drafters: tuple[str, ...] = ("*",), longest: int = K) -> CostModel:
    """Any curves, falling ones included: then drafting more can be cheaper."""
    some_seconds = st.integers(1, 40).map(lambda x: x / 16)

    def curve(n: int) -> list[float]:
        return draw(st.lists(some_seconds, min_size=n, max_size=n))

    return CostModel.from_array(
        curve(longest + 1), {name: [0.0, *curve(longest)] for name in drafters}
    )


@st.composite
def small(draw: st.DrawFn) -> Trace:
    """Two drafters on one or two outputs of at most six tokens."""
    limit = draw(st.integers(2, 6))
    matches: dict[str, list[np.ndarray]] = {"a": [], "b": []}
    offers: dict[str, list[np.ndarray]] = {"a": [], "b": []}
    finishes = []
    for _ in range(draw(st.integers(1, 2))):
        finish = draw(st.sampled_from(["limit", "eos"]))
        n = limit if finish == "limit" else draw(st.integers(2, limit))
        finishes.append(finish)
        for name in matches:
            d = np.array([draw(st.integers(0, SHORT)) for _ in range(n - 1)])
            reach = [n - 1 - a if finish == "eos" else SHORT for a in range(n - 1)]
            m = [draw(st.integers(0, min(int(d[a]), reach[a]))) for a in range(n - 1)]
            matches[name].append(np.array(m))
            offers[name].append(d)
    return trace_of(
        matches, drafted=offers, finish=finishes, k=SHORT, max_new_tokens=limit
    ).validate()


def every_way(trace: Trace, cost: CostModel, names: list[str], seq: int) -> list[float]:
    """Seconds of every sequence of rounds through one output, from tables alone."""
    s = trace.sequences.set_index("seq").loc[seq]
    table = trace.drafts[trace.drafts["seq"] == seq].set_index(["drafter", "anchor"])

    def ways(a: int) -> list[float]:
        if a == s.n_output - 1:
            return [0.0]
        found = []
        for name in names:
            offer = table.loc[(name, a)]
            for k in range(min(offer.drafted, s.max_new_tokens - 2 - a) + 1):
                accepted = min(k, offer.matched, s.n_output - 2 - a)
                price = cost.round_seconds(name, k)
                found += [price + rest for rest in ways(a + accepted + 1)]
        return found

    return ways(0)


def seconds_of(run: Replay, cost: CostModel) -> pd.Series:
    """Modelled seconds of every sequence."""
    rounds = run.rounds
    spent = [cost.round_seconds(r.drafter, int(r.drafted)) for r in rounds.itertuples()]
    return rounds.assign(spent=spent).groupby("seq")["spent"].sum()


@some
@given(small(), costs(("a", "b"), SHORT), st.sampled_from([None, "a", "b"]))
def test_the_oracle_is_the_best_of_all_ways(
    trace: Trace, cost: CostModel, drafter: str | None
) -> None:
    names = ["a", "b"] if drafter is None else [drafter]
    found = oracle(trace, cost, drafter)
    spent = seconds_of(found, cost)
    for seq in trace.sequences["seq"]:
        assert spent[seq] == pytest.approx(min(every_way(trace, cost, names, seq)), abs=1e-12)
    rounds = found.rounds
    emitted = rounds.groupby("seq")["emitted"].sum()
    assert (emitted == trace.sequences.set_index("seq")["n_output"] - 1).all()
    assert set(rounds["drafter"]) == set(found.drafters) <= set(names)
    for name in found.drafters:  # what it drafted was on offer, and accepted as M(a) says
        anchors = anchors_of(trace, name)
        for r in rounds[rounds["drafter"] == name].itertuples():
            at = int(anchors.start[r.seq]) + r.anchor
            assert 0 <= r.drafted <= anchors.offered[at]
            assert r.accepted == min(r.drafted, anchors.acceptable[at])


@some
@given(traces(), policies(), costs())
def test_no_policy_beats_the_oracle(trace: Trace, policy: Policy, cost: CostModel) -> None:
    if policy.name.startswith("adaedl"):
        policy = FixedK(3)  # its replay waits for plans that keep their threshold
    best = seconds_of(oracle(trace, cost), cost)
    for run in (replay(trace, policy), round_oracle(trace)):
        assert (seconds_of(run, cost) >= best - 1e-9).all()
    table = regret(trace, [policy], cost, draws=50)
    assert (table["regret"] >= -1e-12).all()
    assert not (table["regret_low"] < -1e-12).any()


@some
@given(captures())
def test_the_round_oracle_wastes_no_token(trace: Trace) -> None:
    rounds, longest = round_oracle(trace).rounds, replay(trace, FixedK(6)).rounds
    assert (rounds["drafted"] == rounds["accepted"]).all()
    shown = ["seq", "anchor", "accepted", "emitted"]
    assert rounds[shown].equals(longest[shown])


@some
@given(captures(consistent=True))
def test_with_free_drafts_of_one_text_both_oracles_agree(trace: Trace) -> None:
    """When every draft is the tail of the one before, greedy rounds are the fewest."""
    assert oracle(trace, free_drafts()).n_rounds == round_oracle(trace).n_rounds


def test_the_oracle_gives_up_tokens_for_a_better_anchor() -> None:
    trace = trace_of([[3, 0, 0, 2, 0, 0, 2, 0, 0]], k=3)
    assert round_oracle(trace).rounds["anchor"].tolist() == [0, 4, 5, 6]
    found = oracle(trace, free_drafts()).rounds
    assert found["anchor"].tolist() == [0, 3, 6]
    assert found["drafted"].tolist() == [2, 2, 2]


def test_the_oracle_leaves_out_drafts_that_do_not_pay() -> None:
    """One more row costs 0.9 plain steps; a token saved is worth 1 only if it is accepted."""
    cost = CostModel.from_array([1 + 0.9 * n for n in range(4)], [0.0] * 4)
    found = oracle(trace_of([[3, 2, 1, 0]], k=3), cost).rounds
    assert found["drafted"].tolist() == [3]
    dear = CostModel.from_array([1 + 1.1 * n for n in range(4)], [0.0] * 4)
    assert oracle(trace_of([[3, 2, 1, 0]], k=3), dear).rounds["drafted"].tolist() == [0] * 4


def test_drafters_are_chosen_round_by_round() -> None:
    trace = trace_of({"a": [[2, 0, 0, 0, 0, 0]], "b": [[0, 0, 0, 2, 0, 0]]}, k=2)
    for run in (oracle(trace, free_drafts()), round_oracle(trace)):
        assert run.rounds["drafter"].tolist() == ["a", "b"]
        assert run.rounds["emitted"].tolist() == [3, 3]
    assert oracle(trace, free_drafts(), "b").n_rounds == 4
    assert round_oracle(trace, "a").drafters == ("a",)
    one = trace_of({"a": [[0, 0, 0]], "b": [[2, 1, 0]]}, k=2)
    assert oracle(one, free_drafts()).drafters == ("b",)
    assert oracle(one, free_drafts()).rounds["drafter"].tolist() == ["b"]


@cache
def two_drafters() -> Trace:
    return synthetic_trace(3, drafters=("steady", "block"), prompts_per_type=3)


def test_regret_by_hand() -> None:
    trace, cost = two_drafters(), t4_like()
    policy = ConfidenceStop(0.5, 12, "steady")
    table = regret(trace, [policy], cost, draws=400, seed=5)
    groups = [*trace.content_types, "all"]
    names = ["oracle", f"best {best_fixed(trace, cost).name}", "round-oracle", policy.name]
    assert list(zip(table["content_type"], table["policy"], strict=True)) == [
        (group, name) for group in groups for name in names
    ]
    fixed = best_fixed(trace, cost)
    spent = {
        "oracle": seconds_of(oracle(trace, cost), cost),
        "fixed": seconds_of(replay(trace, fixed), cost),
        "mine": seconds_of(replay(trace, policy), cost),
    }
    sequences = trace.sequences.set_index("seq")
    mine = table[table["policy"] == policy.name].set_index("content_type")
    for group in groups:
        of = sequences if group == "all" else sequences[sequences["content_type"] == group]
        total = {name: seconds[of.index].sum() for name, seconds in spent.items()}
        row = mine.loc[group]
        assert row.regret == pytest.approx(total["mine"] / total["oracle"] - 1)
        assert row.over_fixed == pytest.approx(total["mine"] / total["fixed"] - 1)
        assert row.tokens_per_second == pytest.approx((of["n_output"] - 1).sum() / total["mine"])
        assert row.n_prompts == len(of)
        assert 0 <= row.regret_low < row.regret < row.regret_high
        assert row.over_fixed_low < row.over_fixed < row.over_fixed_high
    found = replay(trace, policy)
    assert mine.loc["all"].tokens_per_round == pytest.approx(found.tokens_per_round)
    assert mine.loc["all"].n_rounds == found.n_rounds
    assert mine.loc["code"].tokens_per_round == pytest.approx(
        found.by().set_index("content_type").loc["code"].tokens_per_round
    )
    assert set(table["cost"]) == {"T4-like"}
    said = f"{fixed.name} with {fixed.drafter}, chosen on these prompts"
    assert set(table["best_fixed"]) == {said}
    assert table.equals(regret(trace, [policy], cost, draws=400, seed=5))


def test_intervals_are_paired() -> None:
    """What is the same on every prompt has no width, however much the prompts differ."""
    trace = two_drafters()
    fixed = best_fixed(trace, t4_like(), "steady")
    table = regret(trace, {"again": fixed}, t4_like(), "steady", draws=200)
    again, best = (table[table["policy"] == name] for name in ("again", f"best {fixed.name}"))
    for column in ("over_fixed", "over_fixed_low", "over_fixed_high"):
        assert (again[column] == 0).all()
    for column in ("regret", "regret_low", "regret_high"):
        assert again[column].tolist() == best[column].tolist()
    ideal = table[table["policy"] == "oracle"]
    assert (ideal[["regret", "regret_low", "regret_high"]] == 0).all(axis=None)


@settings(max_examples=15, deadline=None)
@given(traces(), costs())
def test_the_best_fixed_k_is_the_peak_of_the_curve(trace: Trace, cost: CostModel) -> None:
    curve = speedup_by_k(trace, cost, draws=1)  # these traces have one content type
    fixed = best_fixed(trace, cost)
    assert curve.set_index("k")["speedup"][fixed.k] == pytest.approx(curve["speedup"].max())
    table = regret(trace, [FixedK(k) for k in range(K + 1)], cost, draws=2)
    over = table[table["content_type"] == "all"].set_index("policy")["over_fixed"].iloc[3:]
    assert over.min() == over[fixed.name] == 0


def test_labels_for_policies_of_one_name() -> None:
    trace = some_trace(4)
    both = {"short": Heuristic(2, most=3), "long": Heuristic(2, most=K)}
    table = regret(trace, both, free_drafts(), draws=10)
    assert list(table["policy"].unique()[3:]) == ["short", "long"]
    with pytest.raises(ValueError, match="Two policies are called 'heuristic-2\\+2-1'"):
        regret(trace, list(both.values()), free_drafts())
    with pytest.raises(ValueError, match="Two policies are called 'oracle'"):
        regret(trace, {"oracle": FixedK(1)}, free_drafts())


def test_one_prompt_has_no_interval() -> None:
    table = regret(trace_of([[1, 0, 0]], k=2), [FixedK(2)], free_drafts())
    assert (
        table[["regret_low", "regret_high", "over_fixed_low", "over_fixed_high"]]
        .isna()
        .all(axis=None)
    )
    assert (table["n_prompts"] == 1).all()


class Measured(FixedK):
    """Says that it learns from a clock."""

    replayable = False

    def plan(self, past: History) -> Plan:
        return Plan(1)


def test_refusals() -> None:
    trace = some_trace(4)
    with pytest.raises(ValueError, match="is not a cost model"):
        oracle(trace, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not a cost model"):
        best_fixed(trace, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prices drafts of at most 1 tokens"):
        oracle(trace, CostModel.from_array([1.0, 1.0], [0.0, 0.1]))
    with pytest.raises(ValueError, match="No drafter 'eagle'"):
        round_oracle(trace, "eagle")
    with pytest.raises(ValueError, match="must be a list of policies"):
        regret(trace, FixedK(3), t4_like())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one policy"):
        regret(trace, [], t4_like())
    with pytest.raises(ValueError, match="is not a policy"):
        regret(trace, [3], t4_like())  # type: ignore[list-item]
    with pytest.raises(ValueError, match="learns from measured seconds"):
        regret(trace, [Measured(1)], t4_like())
    with pytest.raises(ValueError, match="draws, the number of resamples,"):
        regret(trace, [FixedK(1)], t4_like(), draws=0)
    with pytest.raises(ValueError, match="needs the `drafts` table"):
        oracle(Trace(trace.meta, {"sequences": trace.table("sequences")}), t4_like())
