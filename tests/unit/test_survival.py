"""Survival, hazard and tokens per round: F2.1 to F2.5, F7.3 and F7.4 with worked numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.replays.replay import replay
from specviz.analysis.survival import lengths as s
from specviz.policies import FixedK
from tests.synthetic import synthetic_trace

some = settings(max_examples=60, deadline=None)
chances = st.lists(st.floats(0, 1), min_size=1, max_size=15)


def test_f2_1_survival_form() -> None:
    assert s.tau([0.9, 0.8, 0.5]) == pytest.approx(2.98)
    assert np.cumprod([0.9, 0.8, 0.5]) == pytest.approx([0.9, 0.72, 0.36])


@pytest.mark.parametrize(
    ("tokens", "alpha"),
    [(7.4, 0.977595), (2.5, 0.607412), (2.45, 0.598562), (2.62, 0.627495), (3.5, 0.739968)],
)
def test_f2_2_inversion_at_7(tokens: float, alpha: float) -> None:
    assert s.invert_tau(tokens, 7) == pytest.approx(alpha, abs=1e-6)
    assert s.tau_iid(alpha, 7) == pytest.approx((1 - alpha**8) / (1 - alpha))


@some
@given(st.floats(0, 1), st.integers(1, 20))
def test_f2_2_round_trip(alpha: float, k: int) -> None:
    tokens = s.tau_iid(alpha, k)
    assert 1 <= tokens <= k + 1
    assert s.tau_iid(s.invert_tau(tokens, k), k) == pytest.approx(tokens)


def test_f2_3_mixtures_beat_independence() -> None:
    """Half the text at .95, half at .25: the alpha that independence implies drifts up."""
    mixed = {k: (s.tau_iid(0.95, k) + s.tau_iid(0.25, k)) / 2 for k in (1, 2, 3, 5, 7)}
    assert mixed[7] == pytest.approx(4.032, abs=5e-4)
    assert s.tau_iid(0.6, 7) == pytest.approx(2.458, abs=5e-4)
    drift = [s.invert_tau(tokens, k) for k, tokens in mixed.items()]
    assert drift == pytest.approx([0.600, 0.654, 0.696, 0.754, 0.789], abs=5e-4)


def test_f2_4_value_of_a_position() -> None:
    assert s.position_value([0.9, 0.8, 0.5]) == pytest.approx([2.20, 1.35, 0.72])
    assert s.position_value([0.5, 0.0, 0.5]).tolist() == pytest.approx([1.0, 0.75, 0.0])


@some
@given(chances)
def test_f2_4_is_the_derivative(alphas: list[float]) -> None:
    found, step = s.position_value(alphas), 1e-6
    for i, alpha in enumerate(alphas):
        moved = list(alphas)
        moved[i] = alpha + step if alpha < 0.5 else alpha - step
        numeric = (s.tau(moved) - s.tau(alphas)) / (moved[i] - alpha)
        assert found[i] == pytest.approx(numeric, abs=1e-6)


def test_f2_5_llama_cpp_log() -> None:
    """87 drafts, 259 tokens drafted, 167 accepted; 70, 55 and 42 rounds reached depth 1..3."""
    a = np.repeat([0, 1, 2, 3], [17, 15, 13, 42])
    assert (len(a), a.sum()) == (87, 167)
    assert s.tokens_per_round(a) == pytest.approx(2.9195, abs=1e-4)
    shares = s.survival_shares(a, 3)
    assert shares == pytest.approx([0.805, 0.632, 0.483], abs=5e-4)
    assert 1 + shares.sum() == pytest.approx(s.tokens_per_round(a))
    assert pytest.approx(0.6448, abs=5e-5) == 167 / 259


def test_f2_5_sglang_histogram() -> None:
    a, k = np.repeat(np.arange(6), [11, 14, 11, 4, 0, 3]), 5
    assert (len(a), a.sum()) == (43, 63)
    assert s.tokens_per_round(a) == pytest.approx(2.46512, abs=1e-5)
    yielded = s.draft_yield(a, np.full(43, k))
    assert yielded == pytest.approx(0.293023, abs=1e-6)
    assert s.tokens_per_round(a) == pytest.approx(1 + k * yielded)
    shares = s.survival_shares(a, k)
    assert shares == pytest.approx([0.744, 0.419, 0.163, 0.0698, 0.0698], abs=5e-4)
    hazard = shares / np.r_[1, shares[:-1]]
    assert hazard == pytest.approx([0.744, 0.5625, 0.3889, 0.4286, 1], abs=5e-4)
    assert s.tau(hazard) == pytest.approx(106 / 43)
    # An older denominator counted the bonus on both sides: too high by (k - m) / (k (k + 1)).
    older, m = (63 + 43) / (43 * 6), 63 / 43
    assert older - yielded == pytest.approx((k - m) / (k * (k + 1)))


@some
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60))
def test_f2_5_identities(rounds: list[tuple[int, int]]) -> None:
    d = np.array([max(pair) for pair in rounds])
    a = np.array([min(pair) for pair in rounds])
    shares = s.survival_shares(a, 9)
    assert (np.diff(shares) <= 0).all()
    assert 1 + shares.sum() == pytest.approx(s.tokens_per_round(a))
    assert 1 <= s.tokens_per_round(a) <= d.max() + 1
    if d.sum():
        assert 0 <= s.draft_yield(a, d) <= 1
    # Nothing censored: the product-limit curve is the plain share.
    assert s.kaplan_meier(a, np.ones(len(a), bool), 9) == pytest.approx(shares)
    # With the draft's end as censoring it is never lower.
    assert (s.kaplan_meier(a, a < d, 9) >= shares - 1e-12).all()


def test_draft_yield_of_nothing() -> None:
    assert np.isnan(s.draft_yield([0, 0], [0, 0]))


def test_f7_3_kaplan_meier() -> None:
    a = np.array([0, 2, 1, 4, 3, 2, 0, 4])
    k = np.array([2, 2, 4, 4, 4, 2, 4, 4])
    curve = s.kaplan_meier(a, a < k, 4)
    assert curve == pytest.approx([0.75, 0.625, 0.625, 0.41667], abs=1e-5)
    assert 1 + curve.sum() == pytest.approx(3.41667, abs=1e-5)
    assert s.tokens_per_round(a) == 3.0


def test_f7_4_a_policy_that_knows_makes_censoring_informative() -> None:
    """Long drafts on easy text, short ones on hard text: Kaplan-Meier is too high.

    Half easy (.95, k = 8), half hard (.4, k = 2). Beyond depth 2 only easy rounds are at
    risk, so in the limit the curve is S_2 * .95^(j - 2): 4.880 tokens per round. The truth is
    4.531; the sheet's 4.54 is its simulation's.
    """
    rng = np.random.default_rng(0)
    easy = np.arange(100_000) % 2 == 0
    match = rng.geometric(np.where(easy, 0.05, 0.6)) - 1
    k = np.where(easy, 8, 2)
    curve = s.kaplan_meier(np.minimum(match, k), match < k, 8)
    limit = np.r_[0.675, 0.53125 * 0.95 ** np.arange(7)]
    assert 1 + limit.sum() == pytest.approx(4.880, abs=5e-4)
    assert curve == pytest.approx(limit, abs=0.01)
    truth = (s.tau_iid(0.95, 8) + s.tau_iid(0.4, 8)) / 2
    assert truth == pytest.approx(4.531, abs=5e-4)
    assert 1 + curve.sum() > truth + 0.25


def test_survival_by_is_the_curve_of_the_rounds() -> None:
    rounds = replay(synthetic_trace(0), FixedK(7)).rounds
    table = s.survival_by(rounds, draws=1000)
    for content_type, part in table.groupby("content_type"):
        mine = rounds[rounds["content_type"] == content_type]
        rejected = mine["stop"] == "reject"
        a = mine["accepted"].to_numpy()
        part = part.set_index("depth")
        for depth in part.index:
            tried = (a + rejected >= depth).sum()
            assert part["at_risk"][depth] == tried
            assert part["rejected"][depth] == (rejected & (a == depth - 1)).sum()
            if tried:
                assert part["hazard_accept"][depth] == pytest.approx((a >= depth).sum() / tried)
        seen = part[part["at_risk"] > 0]
        assert seen["survival"].tolist() == pytest.approx(np.cumprod(seen["hazard_accept"]))
        assert (seen["survival"] >= seen["survival_share"] - 1e-12).all()
        assert part["survival_share"][1] == pytest.approx((a >= 1).mean())
        assert (seen["low"] <= seen["survival"] + 1e-12).all()
        assert (seen["high"] >= seen["survival"] - 1e-12).all()
        assert part["n_prompts"][1] == 4
    easy, hard = (table[table["content_type"] == c].iloc[0] for c in ("code", "prose"))
    # Four prompts each: either interval leaves the other estimate out, and they overlap.
    assert easy["hazard_low"] > hard["hazard_accept"]
    assert easy["hazard_accept"] > hard["hazard_high"]


def test_survival_where_nothing_was_tried_is_missing() -> None:
    rounds = pd.DataFrame(
        {"prompt_id": "a", "drafted": [3, 3], "accepted": [0, 0], "stop": ["reject", "reject"]}
    )
    table = s.survival_by(rounds, by=None)
    assert "_all" not in table.columns
    assert table["survival"][0] == 0
    assert np.isnan(table["survival"][1])
    assert np.isnan(table["low"][0])  # one prompt


def test_accepted_lengths() -> None:
    rounds = replay(synthetic_trace(0), FixedK(4)).rounds
    table = s.accepted_lengths(rounds)
    assert table["n_rounds"].sum() == len(rounds)
    assert table.groupby("content_type")["share"].sum().tolist() == pytest.approx([1, 1, 1])
    mean = (table["accepted"] * table["n_rounds"]).sum() / len(rounds)
    assert mean == pytest.approx(rounds["accepted"].mean())
    assert table["censored"].sum() == (rounds["stop"] != "reject").sum()
    whole = s.accepted_lengths(rounds, by=None)
    assert whole["n_rounds"].tolist() == np.bincount(rounds["accepted"]).tolist()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: s.tau([0.5, 1.2]), "between 0 and 1"),
        (lambda: s.tau_iid(0.5, -1), "k must be a whole number"),
        (lambda: s.invert_tau(8.5, 7), "between 1 and k"),
        (lambda: s.tokens_per_round([]), "non-empty"),
        (lambda: s.tokens_per_round([0.5]), "whole numbers"),
        (lambda: s.draft_yield([2], [1]), "at least its accepted"),
        (lambda: s.kaplan_meier([1, 2], [True], 3), "as many flags"),
        (lambda: s.survival_by(pd.DataFrame({"accepted": [1]})), "lack the column 'prompt_id'"),
        (
            lambda: s.accepted_lengths(pd.DataFrame({"accepted": [], "stop": []}), by=None),
            "no rounds",
        ),
    ],
)
def test_refusals(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call()
