"""Costs fitted to rounds, what a draft must give to pay, and costs that were misjudged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from specviz.analysis import break_even_tokens, cost_sensitivity, fit_cost, optimal_k
from specviz.analysis.serving.sensitivity import PARTS, scaled
from specviz.analysis.theory.tau import tau_iid
from specviz.cost import CostModel
from specviz.presets import free_drafts, preset
from specviz.trace import Trace, TraceMeta
from specviz.trace.schema import table_schemas
from tests.synthetic import synthetic_trace

COST = CostModel.from_array(
    0.03 + 0.002 * np.arange(1, 17), {"steady": 0.004 * np.arange(16)}, overhead=0.001
)


def run_of(rounds: pd.DataFrame, drafters: tuple[str, ...] = ("a", "b")) -> Trace:
    """A live run with these rounds (seq, drafter, drafted, three kinds of seconds)."""
    schemas = table_schemas(7)
    many = int(rounds["seq"].max()) + 1
    rounds = rounds.assign(round=0, anchor=0, policy="p", accepted=0, emitted=1, stop="reject")
    rounds["nodes"] = rounds.get("nodes", rounds["drafted"])
    made: dict[str, Any] = {f.name: [None] * many for f in schemas["sequences"]}
    made |= {"seq": range(many), "prompt_id": [f"p{i}" for i in range(many)]}
    sequences = [pa.array(made[f.name], f.type) for f in schemas["sequences"]]
    meta = TraceMeta("run", False, {"name": "toy"}, {name: {"k": 7} for name in drafters}, 7, 99, 0)
    return Trace(
        meta,
        {
            "sequences": pa.table(sequences, schema=schemas["sequences"]),
            "rounds": pa.table(
                [pa.array(rounds[f.name], f.type) for f in schemas["rounds"]],
                schema=schemas["rounds"],
            ),
        },
    )


def rounds_of(noise: float, prompts: int = 6, seed: int = 0) -> pd.DataFrame:
    """a: 2 ms a token. b: 5 ms whatever it drafts. Verifying: 30 ms and 3 a row. Else 1 ms."""
    rng = np.random.default_rng(seed)
    n = 40 * prompts
    drafter = np.array(["a", "b"], dtype=object)[rng.integers(0, 2, n)]
    drafted = rng.integers(0, 8, n)
    draft = np.where(drafter == "a", 0.002 * drafted, 0.005) * (drafted > 0)
    slow = rng.normal(0, noise, prompts).repeat(40)  # a prompt's rounds are alike
    return pd.DataFrame(
        {
            "seq": np.repeat(np.arange(prompts), 40),
            "drafter": drafter,
            "drafted": drafted,
            "draft_seconds": draft,
            "verify_seconds": 0.030 + 0.003 * (drafted + 1) + slow + rng.normal(0, noise / 4, n),
            "other_seconds": 0.001,
        }
    )


def test_what_was_planted_is_found() -> None:
    found = fit_cost(run_of(rounds_of(0.0)), draws=100)
    table = found.table.set_index("part")
    assert table["fixed"]["verify"] == pytest.approx(0.030)
    assert table["slope"]["verify"] == pytest.approx(0.003)
    assert table["slope"]["draft a"] == pytest.approx(0.002)
    assert table["fixed"]["draft b"] == pytest.approx(0.005)
    assert table["slope"]["draft b"] == pytest.approx(0, abs=1e-9)
    assert table["fixed"]["overhead"] == pytest.approx(0.001)
    assert table["r2"]["verify"] == pytest.approx(1)
    assert table["n_rounds"]["verify"] == 240
    assert table["n_prompts"]["overhead"] == 6
    for drafter, k, seconds in (("a", 7, 0.014), ("b", 3, 0.005)):
        expected = seconds + 0.030 + 0.003 * (k + 1) + 0.001
        assert found.cost.round_seconds(drafter, k) == pytest.approx(expected)
    assert found.cost.draft_seconds("b", 0) == 0


def test_it_is_least_squares_and_prompts_are_resampled() -> None:
    rounds = rounds_of(0.004)
    row = fit_cost(run_of(rounds), draws=400).table.set_index("part").loc["verify"]
    slope, fixed = np.polyfit(rounds["drafted"] + 1, rounds["verify_seconds"], 1)
    assert (row["slope"], row["fixed"]) == pytest.approx((slope, fixed))
    r = np.corrcoef(rounds["drafted"], rounds["verify_seconds"])[0, 1]
    assert row["r2"] == pytest.approx(r**2)
    assert row["slope_low"] < row["slope"] < row["slope_high"]
    # The prompts differ by 4 ms: taken as independent, 240 rounds would say 0.5 ms.
    assert row["fixed_high"] - row["fixed_low"] > 0.004


def test_one_length_is_priced_in_proportion_and_one_number_of_rows_not_at_all() -> None:
    rounds = rounds_of(0.0)
    rounds = rounds[(rounds["drafter"] == "b") | (rounds["drafted"] == 4)]
    row = fit_cost(run_of(rounds), draws=20).table.set_index("part").loc["draft a"]
    assert (row["fixed"], row["slope"]) == pytest.approx((0, 0.002))
    assert np.isnan(row["r2"])
    with pytest.raises(ValueError, match="verified 5 rows"):
        fit_cost(run_of(rounds[rounds["drafted"] == 4]))


def test_trees_tell_of_verification_only_and_untimed_rounds_of_nothing() -> None:
    rounds = rounds_of(0.0)
    trees = rounds.assign(nodes=rounds["drafted"] * 3, draft_seconds=1.0)
    trees["verify_seconds"] = 0.030 + 0.003 * (trees["nodes"] + 1)
    trees = trees[trees["drafted"] > 0]
    both = pd.concat([rounds.assign(nodes=rounds["drafted"]), trees])
    table = fit_cost(run_of(both), draws=20).table.set_index("part")
    assert table["slope"]["draft a"] == pytest.approx(0.002)
    assert table["slope"]["verify"] == pytest.approx(0.003)
    lost = pd.concat([rounds, rounds.assign(verify_seconds=np.nan, other_seconds=9.0)])
    again = fit_cost(run_of(lost), draws=20).table.set_index("part")
    assert again["fixed"]["overhead"] == pytest.approx(0.001)
    with pytest.raises(ValueError, match="was timed"):
        fit_cost(run_of(rounds.assign(verify_seconds=np.nan)))


def test_one_prompt_has_no_interval_and_nothing_becomes_negative() -> None:
    rounds = rounds_of(0.0, prompts=1).assign(other_seconds=0.0)
    rounds["draft_seconds"] = np.where(rounds["drafted"] > 1, 0.001 * rounds["drafted"] - 0.001, 0)
    found = fit_cost(run_of(rounds), draws=20)
    assert found.table["slope_low"].isna().all()
    assert (found.table.set_index("part")["fixed"][["draft a"]] < 0).all()
    assert min(found.cost.draft["a"]) == 0


def test_names_are_escaped() -> None:
    rounds = rounds_of(0.001).replace({"drafter": {"a": "<script>"}})
    page = fit_cost(run_of(rounds, ("<script>", "b")), draws=20)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


# -- to pay -----------------------------------------------------------------------------------


def test_at_the_break_even_a_round_is_worth_its_seconds() -> None:
    for row in break_even_tokens(COST, "steady", range(1, 16)).itertuples():
        seconds = COST.round_seconds("steady", row.k)
        assert COST.speedup(row.tokens_per_round, seconds) == pytest.approx(1)
        assert tau_iid(row.alpha_iid, row.k) == pytest.approx(row.tokens_per_round)


def test_where_any_draft_pays_and_where_none_can() -> None:
    free = break_even_tokens(free_drafts(), "any", 3).iloc[0]
    assert (free["tokens_per_round"], free["alpha_iid"]) == (1, 0)
    assert break_even_tokens(preset("t4-code"), "any", 7)["alpha_iid"][0] == 0
    dear = CostModel.from_array([1.0, 2.0, 4.0], [0.0, 0.5, 1.0])
    lost = break_even_tokens(dear, "any", [1, 2])
    assert lost["tokens_per_round"].tolist() == [2.5, 5.0]
    assert not lost["possible"].any()
    assert lost["alpha_iid"].isna().all()
    with pytest.raises(ValueError, match="k must be"):
        break_even_tokens(COST, "steady", 0)


# -- misjudged --------------------------------------------------------------------------------


def test_a_dearer_part_never_asks_for_a_longer_draft() -> None:
    trace = synthetic_trace(1)
    found = cost_sensitivity(trace, COST, factors=(0.25, 4.0), draws=60)
    assert found["part"].unique().tolist() == ["as given", *PARTS]
    for (part, _), group in found.groupby(["part", "content_type"]):
        if part in ("draft", "verify slope"):
            cheap, dear = group.sort_values("factor")[["k", "speedup"]].to_numpy()
            assert cheap[0] >= dear[0]
            assert cheap[1] >= dear[1]


def test_its_rows_are_those_of_optimal_k() -> None:
    trace = synthetic_trace(1)
    found = cost_sensitivity(trace, COST, factors=(2.0,), draws=60)
    given, dear = found[found["part"] == "as given"], found[found["part"] == "draft"]
    assert given["k"].tolist() == optimal_k(trace, COST, draws=60).table["k"].tolist()
    model = scaled(COST, "draft", 2.0)
    again = optimal_k(trace, model, draws=60)
    assert dear["k"].tolist() == again.table["k"].tolist()
    assert dear["kept_k"].tolist() == given["k"].tolist()
    for row in dear.itertuples():
        curve = again.curve[again.curve["content_type"] == row.content_type]
        at = curve.set_index("k")["speedup"][row.kept_k]
        assert row.kept_speedup == pytest.approx(at)
    assert dear["cost"].unique().tolist() == ["given, draft x2"]


def test_only_the_named_part_is_scaled() -> None:
    assert scaled(COST, "overhead", 3.0).overhead == pytest.approx(0.003)
    assert scaled(COST, "overhead", 3.0).verify == COST.verify
    slow = scaled(COST, "verify slope", 2.0)
    assert slow.verify_seconds(1) == COST.verify_seconds(1)
    assert slow.verify_seconds(5) - slow.verify_seconds(1) == pytest.approx(0.016)
    assert slow.draft == COST.draft
    assert min(scaled(preset("t4-code"), "verify slope", 50.0).verify) == 0
    with pytest.raises(ValueError, match="part must be"):
        scaled(COST, "luck", 2.0)
    with pytest.raises(ValueError, match="factor must be"):
        cost_sensitivity(synthetic_trace(1), COST, factors=(-1.0,))
