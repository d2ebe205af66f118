"""The accept hazard: its table against the rounds, its model against known laws (F7.4, F7.7)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from specviz.analysis.folds import prompt_folds
from specviz.analysis.hazards.curves import auc, calibration, hazard_curve, rank_correlation
from specviz.analysis.hazards.model import hazard_model, hazard_table, residual_type_effect
from specviz.analysis.replays.replay import replay
from specviz.analysis.resampling import percentiles, resampled_sums
from specviz.analysis.survival.lengths import survival_by
from specviz.bundled import bundled_trace
from specviz.policies import DraftView, FixedK, History, Plan
from tests.synthetic import synthetic_trace, trace_of

TWO = synthetic_trace(0, drafters=("steady", "fresh"), k=6)


@dataclass(frozen=True)
class TakingTurns:
    name: str = "turns"
    replayable: ClassVar[bool] = True

    def plan(self, past: History) -> Plan:
        return Plan(4, ("steady", "fresh")[past.anchor % 2])

    def more(self, view: DraftView) -> bool:
        return True


def table_of(
    entropy_effect: float = -1.0,
    type_effect: float = 0.0,
    prompts: int = 40,
    each: int = 60,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens with a known law: prose has 1 nat more, and `type_effect` beside its entropy."""
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(prompts), each)
    prose = prompt % 2 == 1
    n = len(prompt)
    entropy = rng.gamma(2, 0.5, n) + prose
    odds = (
        1.0 + entropy_effect * entropy + type_effect * prose + rng.normal(0, 0.3, prompts)[prompt]
    )
    return pd.DataFrame(
        {
            "seq": prompt,
            "prompt_id": np.char.add("p", prompt.astype(str)),
            "content_type": np.where(prose, "prose", "code"),
            "drafter": "made",
            "anchor": np.tile(np.arange(each), prompts),
            "depth": rng.integers(1, 5, n),
            "accepted": rng.random(n) < 1 / (1 + np.exp(-odds)),
            "entropy": entropy,
            "ln_ebf_inf": entropy / 2 + rng.random(n),
            "margin": rng.exponential(1, n),
            "draft_confidence": rng.random(n),
            "draft_entropy": rng.random(n),
            "repeated": rng.random(n) < 0.1,
        }
    )


# -- the table --------------------------------------------------------------------------------


def test_a_row_is_a_token_that_a_round_decided() -> None:
    trace = synthetic_trace(0)
    table, rounds = hazard_table(trace, 7), replay(trace, FixedK(7)).rounds
    assert table["accepted"].sum() == rounds["accepted"].sum()
    assert (~table["accepted"]).sum() == (rounds["stop"] == "reject").sum()
    risk = survival_by(rounds, by=None, draws=10).set_index("depth")
    assert table["depth"].value_counts().to_dict() == risk["at_risk"].loc[:7].to_dict()
    share = table.groupby("depth")["accepted"].mean()
    assert share.to_numpy() == pytest.approx(risk["hazard_accept"].to_numpy())
    assert not table.duplicated(["seq", "t"]).any()  # a token is decided once


def test_covariates_are_of_the_position_and_of_the_draft() -> None:
    table = hazard_table(TWO, TakingTurns())
    assert set(table["drafter"]) == {"steady", "fresh"}
    positions = TWO.positions.set_index(["seq", "t"])
    drafts = TWO.drafts.set_index(["drafter", "seq", "anchor"])
    for row in table.iloc[::11].itertuples():
        here, draft = positions.loc[(row.seq, row.t)], drafts.loc[row.drafter, row.seq, row.anchor]
        assert row.t == row.anchor + row.depth
        assert row.entropy == pytest.approx(here["entropy"])
        assert row.ln_ebf_inf == pytest.approx(-np.log(here["p_max"]))
        assert row.margin == pytest.approx(here["margin"])
        assert row.repeated == here["repeated"]
        assert row.draft_confidence == draft["confidence"][row.depth - 1]
        assert row.draft_entropy == draft["entropy"][row.depth - 1]
        assert row.accepted == (draft["token"][row.depth - 1] == here["token_id"])


def test_no_policy_drafts_all_there_is() -> None:
    whole = hazard_table(TWO, drafter="fresh")
    assert whole.equals(hazard_table(TWO, FixedK(6), "fresh"))


# -- the model --------------------------------------------------------------------------------


def test_one_kind_against_another_is_the_ratio_of_their_odds() -> None:
    """Closed form, and the sandwich by hand: sum over prompts of score score'."""
    pytest.importorskip("statsmodels")
    table = table_of(type_effect=0.5)
    model = hazard_model(table, ["content_type"], draws=20)
    share = table.groupby("content_type")["accepted"].mean()
    logit = np.log(share / (1 - share))
    found = model.coefficients.set_index("term")
    assert model.reference == "code"
    assert found["coefficient"]["intercept"] == pytest.approx(logit["code"])
    effect = logit["prose"] - logit["code"]
    assert found["coefficient"]["content_type[prose]"] == pytest.approx(effect)
    assert found["odds_ratio"]["content_type[prose]"] == pytest.approx(np.exp(effect))
    x = np.column_stack([np.ones(len(table)), table["content_type"] == "prose"])
    p = share.loc[table["content_type"]].to_numpy()
    bread = np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    score = x * (table["accepted"].to_numpy() - p)[:, None]
    per_prompt = np.add.reduceat(score, np.arange(0, len(table), 60))
    n, g = len(table), len(per_prompt)
    sandwich = bread @ per_prompt.T @ per_prompt @ bread * g / (g - 1) * (n - 1) / (n - 2)
    from scipy.stats import t

    spread = t.ppf(0.975, g - 1) * np.sqrt(sandwich[1, 1])
    assert found["low"]["content_type[prose]"] == pytest.approx(effect - spread)
    assert found["high"]["content_type[prose]"] == pytest.approx(effect + spread)


def test_a_known_law_is_found_again() -> None:
    pytest.importorskip("statsmodels")
    model = hazard_model(table_of(), draws=300)
    found = model.coefficients.set_index("term")
    for term, truth in {"entropy": -1.0, "depth": 0.0, "margin": 0.0, "repeated": 0.0}.items():
        assert found["low"][term] < truth < found["high"][term], term
    assert found["high"]["entropy"] < -0.7
    assert 0.65 < model.auc.low < model.auc.estimate <= model.auc_within + 0.01 < 0.85
    bins = model.calibration
    assert bins["predicted"].is_monotonic_increasing
    assert ((bins["low"] < bins["predicted"]) & (bins["predicted"] < bins["high"])).sum() >= 6
    assert bins["n_tokens"].sum() == model.n_tokens == 2400
    assert (model.n_rounds, model.n_prompts) == (2400, 40)
    assert "out-of-prompt AUC" in model._repr_html_()


def test_what_only_tells_prompts_apart_does_not_help_on_others() -> None:
    pytest.importorskip("statsmodels")
    table = table_of(entropy_effect=0.0, prompts=12, seed=3)
    rng = np.random.default_rng(0)
    prompt = table["seq"].to_numpy()
    table["draft_entropy"] = rng.normal(size=12)[prompt]
    table["accepted"] = rng.random(len(table)) < rng.beta(2, 2, 12)[prompt]
    model = hazard_model(table, ["draft_entropy"], folds=12, draws=20)
    assert model.auc.estimate < 0.5 < model.auc_within


@pytest.mark.filterwarnings("error")
def test_what_no_other_prompt_shows_is_left_out_of_the_prediction() -> None:
    """Repeats in two prompts, held out together: no coefficient, and no singular design."""
    pytest.importorskip("statsmodels")
    table = table_of(prompts=6)
    fold = prompt_folds(np.array(["code", "prose"] * 3), 2, 0)
    two = table["seq"].isin(np.flatnonzero(fold == 1)[:2])
    table["repeated"] = two & (table["anchor"] % 2 == 0)
    both = hazard_model(table, ["entropy", "repeated"], folds=2, draws=20)
    assert both.auc.estimate == pytest.approx(
        hazard_model(table, ["entropy"], folds=2, draws=20).auc.estimate, abs=0.05
    )


def test_the_type_is_nothing_beside_the_entropy_or_something() -> None:
    pytest.importorskip("statsmodels")
    conditions = [(), ("entropy",)]
    explained = residual_type_effect(table_of(), conditions).set_index("given")
    assert explained["high"]["nothing"] < -0.5
    assert explained["low"]["entropy"] < 0 < explained["high"]["entropy"]
    left = residual_type_effect(table_of(type_effect=1.0), conditions).set_index("given")
    assert left["low"]["nothing"] < 0 < left["high"]["nothing"] + 0.2  # the gap has closed
    assert left["low"]["entropy"] < 1 < left["high"]["entropy"]
    assert left["low"]["entropy"] > 0.4
    assert left["difference_low"]["entropy"] > 0.1
    assert left["contrast"].unique() == ["prose against code"]


def test_given_nothing_the_difference_is_that_of_the_shares() -> None:
    pytest.importorskip("statsmodels")
    table = table_of()
    row = residual_type_effect(table, [()]).iloc[0]
    share = table.groupby("content_type")["accepted"].mean()
    assert row["difference"] == pytest.approx(share["prose"] - share["code"])
    # The delta method, against resampling of prompts.
    sums = table.assign(one=1.0).groupby(["content_type", "prompt_id"])[["accepted", "one"]].sum()
    drawn = [resampled_sums(sums.loc[kind].to_numpy(), 4000, 1) for kind in ("prose", "code")]
    gaps = np.subtract(*(d[:, 0] / d[:, 1] for d in drawn))
    low, high = percentiles(gaps, 0.95, len(sums))  # the model's t counts the prompts of both
    assert row["difference_low"] == pytest.approx(low, abs=0.015)
    assert row["difference_high"] == pytest.approx(high, abs=0.015)


def test_without_statsmodels_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "statsmodels.api", None)
    with pytest.raises(ImportError, match=r"specviz-decoding\[stats\]"):
        hazard_model(table_of(prompts=6))


# -- predictions and curves -------------------------------------------------------------------


def pairs(score: np.ndarray, y: np.ndarray) -> float:
    gaps = score[y][:, None] - score[~y][None]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def test_auc_counts_pairs_and_resamples_prompts() -> None:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 6, 80)
    score = rng.integers(0, 9, 80) / 8
    y = rng.random(80) < score
    found = auc(score, y, prompt, draws=60, seed=4)
    assert found.estimate == pytest.approx(pairs(score, y))
    codes, names = pd.factorize(prompt)
    counts = resampled_sums(np.eye(len(names)), 60, 4).astype(int)
    rows = [np.repeat(np.arange(80), count[codes]) for count in counts]
    assert (found.low, found.high) == pytest.approx(
        percentiles(np.array([pairs(score[each], y[each]) for each in rows]), 0.95, 6)
    )
    assert np.isnan(auc(score, y, np.zeros(80), draws=5).low)


def test_every_prompt_has_one_fold_and_every_kind_is_spread() -> None:
    kinds = np.repeat(["code", "prose", "other"], [7, 6, 5])
    fold = prompt_folds(kinds, 3, seed=1)
    assert np.bincount(fold).tolist() == [6, 6, 6]
    for kind in set(kinds):
        assert np.ptp(np.bincount(fold[kinds == kind], minlength=3)) <= 1
    assert sorted(prompt_folds(kinds, 18).tolist()) == list(range(18))
    assert fold.tolist() != prompt_folds(kinds, 3, seed=2).tolist()


def test_bins_are_shares() -> None:
    table = table_of()
    curve = hazard_curve(table, "entropy", by="content_type", bins=5, draws=300)
    for kind, part in curve.groupby("content_type"):
        mine = table[table["content_type"] == kind]
        assert part["n_tokens"].tolist() == [240] * 5
        for row in part.itertuples():
            inside = mine[mine["entropy"].between(row.x_low, row.x_high)]
            assert row.accepted == pytest.approx(inside["accepted"].mean())
            assert row.x_mean == pytest.approx(inside["entropy"].mean())
            assert row.low < row.accepted < row.high
            assert row.n_prompts == 20


def test_the_isotonic_curve_only_falls_and_keeps_the_mean() -> None:
    table = table_of()
    curve = hazard_curve(table, "entropy", shape="isotonic", draws=100)
    assert set(curve["direction"]) == {"falling"}
    assert curve["accepted"].is_monotonic_decreasing
    mean = np.average(curve["accepted"], weights=curve["n_tokens"])
    assert mean == pytest.approx(table["accepted"].mean())
    # The truth lies in the pointwise band nearly everywhere.
    truth = 1 / (1 + np.exp(curve["x_mean"] - 1))
    inside = (curve["low"] - 0.02 < truth) & (truth < curve["high"] + 0.02)
    assert inside.mean() > 0.85
    rising = hazard_curve(table.assign(gap=-table["entropy"]), "gap", shape="isotonic", draws=5)
    assert set(rising["direction"]) == {"rising"}


def test_a_covariate_of_one_value_is_one_bin() -> None:
    curve = hazard_curve(table_of(prompts=4).assign(flat=2.0), "flat", draws=20)
    assert (len(curve), curve["n_tokens"][0], curve["x_low"][0]) == (1, 240, 2.0)


def test_calibration_of_the_truth() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(4000)
    found = calibration(p, rng.random(4000) < p, np.arange(4000) // 100, bins=5, draws=300)
    assert (found["accepted"] - found["predicted"]).abs().max() < 0.05
    assert (found["low"] < found["predicted"]).sum() >= 4


def test_rank_correlation() -> None:
    found = rank_correlation(table_of(), draws=60).set_index("content_type")
    assert found.loc["all", "n_tokens"] == 2400
    assert (found["high"] < -0.15).all()
    assert (found["low"] < found["rho"]).all()
    perfect = pd.DataFrame({"prompt_id": "a", "content_type": "x", "accepted": [1, 0], "h": [1, 2]})
    row = rank_correlation(perfect, "h").iloc[0]
    assert (row["rho"], row["n_prompts"]) == (pytest.approx(-1.0), 1)
    assert np.isnan(row["low"])


# -- a real trace -----------------------------------------------------------------------------


def test_on_the_bundled_trace_the_drafter_knows_more_than_the_target() -> None:
    """SmolLM2 with the small lm: the draft's own confidence, known before verification, orders
    tokens better than the target's entropy, p_max and margin, known after it; and at like
    entropy prose is accepted more often than code, not less."""
    pytest.importorskip("statsmodels")
    table = hazard_table(bundled_trace("smollm2-trees"), 7, "lm")
    assert (len(table), table["prompt_id"].nunique()) == (2163, 36)
    target = hazard_model(table, ["depth", "entropy", "ln_ebf_inf", "margin"], draws=500).auc
    draft = hazard_model(table, ["draft_confidence"], draws=500).auc
    assert 0.65 < target.estimate < 0.75
    assert draft.low > target.high
    effect = residual_type_effect(table).set_index("given")
    assert effect["low"]["nothing"] < 0 < effect["high"]["nothing"]
    assert effect["low"]["depth, entropy, ln_ebf_inf, margin"] > 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t: hazard_table(TWO, 3), "Say which drafter"),
        (lambda t: hazard_table(TWO, FixedK(3)), "Say which drafter"),
        (lambda t: hazard_table(TWO, 9, "fresh"), "at most K = 6"),
        (lambda t: hazard_table(TWO, True, "fresh"), "whole number"),
        (lambda t: hazard_table(trace_of([[1, 0, 0]]), 0), "let the policy draft"),
        (lambda t: hazard_model(t, ["entrop"]), "No term 'entrop'"),
        (lambda t: hazard_model(t, "entropy"), "terms must be a list"),
        (lambda t: hazard_model(t.assign(depth=1), ["depth"]), "does not vary"),
        (lambda t: hazard_model(t.drop(columns="margin")), "no column 'margin'"),
        (lambda t: hazard_model(t, folds=7), "7 folds need as many prompts"),
        (lambda t: hazard_model(t, folds=1), "at least 2"),
        (
            lambda t: hazard_model(t.assign(repeated=t["accepted"]), ["repeated"]),
            "only for tokens of one fate",
        ),
        (
            lambda t: hazard_model(
                t.assign(content_type=t["content_type"].where(t["prompt_id"] != "p0", "rare")),
                ["content_type"],
            ),
            "is rare only in one prompt",
        ),
        (lambda t: hazard_model(t.assign(accepted=True), ["entropy"], folds=2), "one fate"),
        (
            lambda t: hazard_model(t.assign(entropy=2.0 * t["accepted"]), ["entropy"], folds=2),
            "separate accepted from rejected",
        ),
        (
            lambda t: hazard_model(t.assign(margin=t["margin"].where(t["depth"] > 1))),
            "missing in some rows",
        ),
        (
            lambda t: residual_type_effect(t[t["content_type"] == "code"]),
            "One content type has nothing",
        ),
        (lambda t: hazard_curve(t, "nothing"), "no column 'nothing'"),
        (lambda t: hazard_curve(t, "content_type"), "must be a number"),
        (lambda t: hazard_curve(t, shape="cubic"), "binned"),
        (lambda t: hazard_curve(t.iloc[:0]), "no row"),
        (lambda t: auc([0.5], [True], ["a"]), "one fate"),
        (lambda t: auc([0.5], [True, False], ["a"]), "one prediction"),
    ],
)
def test_refusals(call: Callable[[pd.DataFrame], Any], sentence: str) -> None:
    table = table_of(prompts=6, each=20)
    if "let the policy" not in sentence and "model" in call.__code__.co_names:
        pytest.importorskip("statsmodels")
    with pytest.raises(ValueError, match=sentence):
        call(table)
