"""The report of the families says what the analyses it is made of say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import specviz as sv
from specviz._data_files import data_file
from specviz.analysis import (
    FamilyReport,
    depth_match,
    family_report,
    family_table,
    optimal_k,
    replay,
    survival_by,
)
from specviz.cards import drafter_card
from specviz.cost import CostModel
from specviz.drafters.weights import load_weights
from specviz.policies import FixedK
from specviz.presets import free_drafts, t4_like
from specviz.trace import Trace
from tests.synthetic import synthetic_trace

K, DRAWS = 5, 200
TIMED = CostModel(
    "desk", "measured here", (1.0, 1.02), {"*": tuple(0.02 * k for k in range(16))}, note="By hand."
)
COSTS = [TIMED, t4_like(), free_drafts()]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthetic_trace(4, drafters=("steady", "fresh"))


@pytest.fixture(scope="module")
def report(trace: Trace) -> FamilyReport:
    return family_report(trace, COSTS, K, draws=DRAWS)


def test_lengths_are_those_of_the_family_table(trace: Trace, report: FamilyReport) -> None:
    table = family_table(trace, k=K, draws=DRAWS)
    same = ["drafter", "content_type", "k", "tokens_per_round", "low", "high"]
    pd.testing.assert_frame_equal(report.lengths[same], table[same])
    assert report.lengths["n_rounds"].tolist() == table["rounds"].tolist()
    assert report.lengths["n_prompts"].tolist() == table["prompts"].tolist()


def test_repeated_text_can_be_left_out(trace: Trace, report: FamilyReport) -> None:
    run = replay(trace, FixedK(K), "fresh", draws=DRAWS).by("policy", repeated=False).iloc[0]
    row = report.lengths.iloc[-1]
    assert (row["drafter"], row["content_type"]) == ("fresh", "all")
    for name in ("tokens_per_round", "low", "high", "n_rounds", "n_prompts"):
        assert row[f"{name}_unrepeated"] == run[name]
    assert row["n_rounds_unrepeated"] < row["n_rounds"]


def test_text_that_only_repeats_leaves_no_round() -> None:
    trace = synthetic_trace(1, content_types=("code",), prompts_per_type=1)
    positions = trace.table("positions")
    flags = [True] * len(positions)
    at = positions.column_names.index("repeated")
    looping = Trace(
        trace.meta,
        {
            "sequences": trace.table("sequences"),
            "drafts": trace.table("drafts"),
            "positions": positions.set_column(at, "repeated", [flags]),
        },
    )
    row = family_report(looping, k=3, draws=DRAWS).lengths.iloc[0]
    assert row["n_rounds_unrepeated"] == 0
    assert np.isnan(row["tokens_per_round_unrepeated"])


def test_best_k_is_that_of_every_cost_model(trace: Trace, report: FamilyReport) -> None:
    assert report.best_k["cost"].tolist() == [cost.name for cost in COSTS] * 8
    assert report.best_k["content_type"].tolist()[::3] == ["code", "prose", "mixed", "all"] * 2
    for cost in COSTS:
        own = report.best_k[report.best_k["cost"] == cost.name]
        found = optimal_k(trace, cost, draws=DRAWS).table
        kept = own[own["content_type"] != "all"]
        both = kept.merge(found, on=["drafter", "content_type"], suffixes=("", "_there"))
        assert len(both) == len(found) == 6
        for name in ("k", "speedup", "low", "high", "k_low", "k_high", "provenance"):
            assert both[name].tolist() == both[f"{name}_there"].tolist()
        for row in own[own["content_type"] == "all"].to_dict("records"):
            run = replay(trace, FixedK(row["k"]), row["drafter"], draws=DRAWS)
            spent = run.seconds(cost).sum()
            assert row["speedup"] == pytest.approx(cost.speedup(run.rounds["emitted"].sum(), spent))
            assert row["n_prompts"] == 12


def test_survival_and_match_are_the_analyses(trace: Trace, report: FamilyReport) -> None:
    rounds = replay(trace, FixedK(K), "steady").rounds
    alive = report.survival[report.survival["drafter"] == "steady"].drop(columns="drafter")
    by_type = survival_by(rounds, draws=DRAWS)
    pooled = survival_by(rounds.assign(content_type="all"), draws=DRAWS)
    expected = pd.concat([by_type, pooled], ignore_index=True)
    pd.testing.assert_frame_equal(alive.reset_index(drop=True), expected)
    pd.testing.assert_frame_equal(report.depth_match, depth_match(trace, k=K, draws=DRAWS))


def test_only_timed_costs_say_what_drafting_takes(report: FamilyReport) -> None:
    assert report.drafters["drafter"].tolist() == ["steady", "fresh"]
    assert report.drafters["draft_seconds (desk)"].tolist() == [TIMED.draft["*"][K]] * 2
    assert sum(str(name).startswith("draft_seconds") for name in report.drafters) == 1
    assert report.drafters["parameters"].isna().all()
    assert not report.drafters["simulated_cost"].any()


def test_cards_say_how_large_the_shipped_drafters_are() -> None:
    trace = sv.bundled_trace("smollm2-trees")
    table = family_report(trace, draws=DRAWS).drafters.set_index("drafter")
    for name in ("lm", "eagle"):
        tensors = load_weights(data_file(f"drafters/{name}.safetensors")).tensors
        own = sum(t.numel() for part, t in tensors.items() if part != "vocabulary")
        assert table["parameters"][name] == own
        assert table["megabytes"][name] == drafter_card(name)["bytes"] / 1e6
        assert table["family"][name] == name
    assert np.isnan(table["parameters"]["ngram"])
    assert table["longest"].tolist() == [7, 7, 7]


def test_a_card_of_another_target_is_no_card() -> None:
    trace = sv.bundled_trace("smollm2-trees").select(drafter="lm")
    other = dataclasses.replace(trace.meta, target={**trace.meta.target, "name": "other"})
    tables = {name: trace.table(name) for name in ("sequences", "positions", "drafts")}
    row = family_report(Trace(other, tables), draws=DRAWS).drafters.iloc[0]
    assert np.isnan(row["megabytes"])
    assert row["family"] == ""


def test_it_reads_in_a_notebook(report: FamilyReport) -> None:
    html = report._repr_html_()
    assert html.count("<table") == 5
    for said in ("bonus counted", "resample prompts", "By hand.", "no bonus in it", "desk"):
        assert said in html
    hostile = synthetic_trace(3, drafters=("<b>x",), content_types=("<i>code",))
    bare = family_report(hostile, k=2, draws=DRAWS)
    html = bare._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html
    assert html.count("<table") == 4  # without a cost model there is no best k
    assert bare.best_k.empty
    assert bare.best_k.columns.tolist() == report.best_k.columns.tolist()


def test_what_cannot_be_reported_is_refused(trace: Trace) -> None:
    for wrong, sentence in (
        ({"costs": [TIMED, TIMED]}, "Two cost models have one name"),
        ({"costs": ["fast"]}, "not a cost model"),
        ({"costs": CostModel("x", "given", (1.0, 1.0), {"steady": (0.0,) * 16})}, "'fresh'"),
        ({"k": 0}, "at least 1"),
        ({"k": 16}, "K = 15"),
        ({"draws": 0}, "draws"),
    ):
        with pytest.raises(ValueError, match=sentence):
            family_report(trace, **wrong)
    run = Trace(dataclasses.replace(trace.meta, kind="run", exhaustive=False), {})
    with pytest.raises(ValueError, match="make a capture"):
        family_report(run)
