"""Curves over k and the best k: equal to replay, consistent, and honest when unsure."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from specviz.analysis.replays.optimal_k import length_by_k, optimal_k, speedup_by_k
from specviz.analysis.replays.replay import replay
from specviz.cost import CostModel
from specviz.policies import FixedK
from specviz.presets import free_drafts, t4_like
from specviz.trace.trace import Trace
from tests.synthetic import synthetic_trace, trace_of

TIGHT = CostModel.from_array(1 + 0.05 * np.arange(16), 0.12 * np.arange(16), name="tight")
DEAR = CostModel.from_array(1 + 0.9 * np.arange(16), 0.3 * np.arange(16), name="dear")
FEW = 800  # draws


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(0, prompts_per_type=6, drafters=("steady", "block"))


def test_length_by_k_equals_replay(trace: Trace) -> None:
    table = length_by_k(trace, "block", draws=FEW)
    assert list(table["k"].unique()) == list(range(1, 16))
    for k in (1, 4, 15):
        rounds = replay(trace, FixedK(k), "block", draws=FEW)
        expected = rounds.by("content_type")
        found = table[table["k"] == k].reset_index(drop=True)
        columns = ["content_type", "tokens_per_round", "low", "high", "n_rounds", "n_prompts"]
        pd.testing.assert_frame_equal(found[columns], expected[columns], check_dtype=False)
        sums = rounds.rounds.groupby("content_type", sort=False)[["accepted", "drafted"]].sum()
        assert found["draft_yield"].tolist() == pytest.approx(
            (sums["accepted"] / sums["drafted"]).tolist()
        )
    assert (table["tokens_per_round"] == table["accepted_per_round"] + 1).mean() > 0.5
    assert table["accepted_per_round"].to_numpy() == pytest.approx(table["tokens_per_round"] - 1)


def test_speedup_by_k_is_a_ratio_of_total_times(trace: Trace) -> None:
    table = speedup_by_k(trace, TIGHT, "block", draws=FEW)
    for k in (0, 3, 15):
        rounds = replay(trace, FixedK(k), "block").rounds
        seconds = TIGHT.round_seconds("block", rounds["drafted"].to_numpy())
        rounds = rounds.assign(seconds=seconds)
        sums = rounds.groupby("content_type", sort=False)[["emitted", "seconds"]].sum()
        found = table[table["k"] == k]
        assert found["speedup"].tolist() == pytest.approx(
            (sums["emitted"] * TIGHT.plain_seconds / sums["seconds"]).tolist()
        )
    plain = table[table["k"] == 0]
    assert plain[["speedup", "low", "high", "tokens_per_round"]].to_numpy() == pytest.approx(1.0)
    drafted = table[table["k"] > 0]
    assert (drafted["low"] < drafted["speedup"]).all()
    assert (drafted["speedup"] < drafted["high"]).all()
    # F2.5: no speed-up above tokens per round when a round costs at least a plain step.
    assert (table["speedup"] <= table["tokens_per_round"] + 1e-12).all()


def test_free_drafts_turn_length_into_speedup(trace: Trace) -> None:
    table = speedup_by_k(trace, free_drafts(), "steady", draws=FEW)
    assert table["speedup"].to_numpy() == pytest.approx(table["tokens_per_round"].to_numpy())


def test_by_prompt_and_chosen_lengths(trace: Trace) -> None:
    table = length_by_k(trace, "steady", by="prompt_id", ks=[2, 9])
    assert len(table) == 2 * 18
    assert table["low"].isna().all()  # one prompt each
    assert set(table["n_prompts"]) == {1}
    whole = length_by_k(trace, "steady", ks=[2])
    assert table[table["k"] == 2]["n_rounds"].sum() == whole["n_rounds"].sum()
    assert np.isnan(length_by_k(trace, "steady", ks=[0])["draft_yield"]).all()


def test_two_sequences_of_one_prompt_count_as_one() -> None:
    two = trace_of([[1, 0, 2, 0], [0, 0, 0, 0]], prompt_ids=["p", "p"], k=3)
    assert set(length_by_k(two)["n_prompts"]) == {1}
    assert replay(two, FixedK(3)).interval.n_prompts == 1


def test_the_best_k_is_the_best_of_the_curve(trace: Trace) -> None:
    found = optimal_k(trace, TIGHT, drafter="steady", draws=FEW)
    assert list(found.table["content_type"]) == ["code", "prose", "mixed"]
    for row in found.table.itertuples():
        curve = found.curve[found.curve["content_type"] == row.content_type].set_index("k")
        sure = curve[curve["low"] > 1]
        if row.k:
            assert row.speedup == pytest.approx(sure["speedup"].max())
            assert row.low > 1
        else:
            assert sure.empty
        assert row.second_k != row.k
        assert row.second_speedup == curve.drop(row.k)["speedup"].max()
        assert 0 <= row.k_low <= row.k_high <= 15
        assert 0 <= row.k_share <= 1
        assert row.tokens_per_round == curve["tokens_per_round"][row.k]
        assert (row.cost, row.provenance, row.n_prompts) == ("tight", "given", 6)
    assert found.table.set_index("content_type").loc["code", "k"] > 1


def test_do_not_draft_is_an_answer(trace: Trace) -> None:
    found = optimal_k(trace, DEAR, draws=FEW)
    assert (found.table["k"] == 0).all()
    assert found.table[["speedup", "low", "high"]].to_numpy() == pytest.approx(1.0)
    assert (found.table["second_k"] > 0).all()
    assert (found.table["second_speedup"] < 1).all()
    sentence = found.sentences["prose"]
    assert sentence.startswith("On prose, do not draft: no length up to 15 is surely faster")
    assert "Cost: dear (given)" in sentence


def test_a_gain_that_prompts_disagree_on_is_not_sure() -> None:
    """Half the prompts gain, half lose: the estimate is above 1 and the interval is not."""
    good, bad = [1, 0] * 10, [0] * 20
    trace = trace_of([good, bad, good, bad], k=2)
    cost = CostModel.from_array([1, 1.1, 1.2], [0, 0.1, 0.2])
    curve = speedup_by_k(trace, cost).set_index("k")
    assert curve["speedup"][1] > 1 > curve["low"][1]
    found = optimal_k(trace, cost)
    assert found.table["k"].tolist() == [0]
    assert found.table["second_k"].tolist() == [1]
    assert found.table["k_low"].tolist() == [0]
    assert found.table["k_high"].tolist() == [1]


def test_one_prompt_decides_by_its_estimate_and_says_so() -> None:
    found = optimal_k(trace_of([[3, 2, 1, 0] * 5], k=3), TIGHT)
    assert found.table["k"].tolist() == [3]
    assert np.isnan(found.table["low"][0])
    assert "one prompt, so no interval" in str(found)


def test_free_drafts_of_a_perfect_drafter() -> None:
    perfect = trace_of([[4] * 10] * 3, k=4)
    found = optimal_k(perfect, free_drafts())
    assert found.table["k"].tolist() == [4]
    # 10 tokens after the first, in two rounds of 5.
    assert found.table["speedup"][0] == pytest.approx(5)
    assert found.table["k_share"].tolist() == [1.0]


def test_ties_take_the_shorter_draft() -> None:
    never_more_than_one = trace_of([[1, 0] * 6] * 3, k=4)
    assert optimal_k(never_more_than_one, free_drafts()).table["k"].tolist() == [1]


def test_all_drafters_are_compared_and_simulated_cost_is_said(trace: Trace) -> None:
    cost = CostModel(
        "here", "measured here", tuple(1 + 0.05 * np.arange(16)),
        {"steady": tuple(0.1 * np.arange(16)), "block": (0.0, *[0.15] * 15)},
        simulated=("block", "steady"),
    )  # fmt: skip
    found = optimal_k(trace, cost, draws=FEW)
    assert len(found.table) == 6
    assert set(found.curve["drafter"]) == {"steady", "block"}
    code = found.table[found.table["content_type"] == "code"]
    best = code.iloc[code["speedup"].to_numpy().argmax()]
    assert f"draft {best['k']} tokens with {best['drafter']}" in found.sentences["code"]
    assert "is simulated" in found.sentences["code"]
    assert "The cost of steady, block is simulated." in found.caption
    html = found._repr_html_()
    assert "<li>On code, draft" in html
    assert "count the bonus token" in html


def test_the_t4_preset_prices_any_drafter(trace: Trace) -> None:
    found = optimal_k(trace, t4_like(), drafter="steady", draws=FEW)
    assert "T4-like (preset)" in found.sentences["code"]
    assert found.table["provenance"].tolist() == ["preset"] * 3


def test_refusals(trace: Trace) -> None:
    with pytest.raises(ValueError, match="Say which drafter"):
        length_by_k(trace)
    with pytest.raises(ValueError, match="from 0 to K = 15"):
        length_by_k(trace, "block", ks=[16])
    with pytest.raises(ValueError, match="'content_type' or 'prompt_id'"):
        length_by_k(trace, "block", by="finish")
    with pytest.raises(ValueError, match="does not price the drafter"):
        speedup_by_k(trace, CostModel("x", "given", (1.0, 1.0), {}), "block")
    with pytest.raises(ValueError, match="drafts of at most 2 tokens"):
        optimal_k(trace, CostModel.from_array([1, 1], [0, 1, 2]), drafter="block")


def test_what_is_no_cost_is_refused(trace: Trace) -> None:
    for function in (optimal_k, speedup_by_k):
        with pytest.raises(ValueError, match="3 is not a cost model"):
            function(trace, 3)  # type: ignore[operator]


def test_it_says_that_timings_are_taken_as_exact(trace: Trace) -> None:
    said = "not the noise of the timings"
    assert said in " ".join(str(optimal_k.__doc__).split())
    found = optimal_k(trace, TIGHT, draws=FEW)
    assert "do not cover the noise of the timings" in found.caption


def test_one_prompt_is_its_own_every_resample() -> None:
    one = trace_of([[3, 2, 1, 0, 0, 1, 0]], k=4)
    row = optimal_k(one, free_drafts(), draws=FEW).table.iloc[0]
    assert (row["k_low"], row["k_high"], row["k_share"]) == (row["k"], row["k"], 1.0)
