"""F1.1 to F1.6 with their worked numbers, and entropy by kind of text."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, softmax

from specviz.analysis import branching as b
from tests.synthetic import synthetic_trace, trace_of

P = np.array([0.5, 0.25, 0.125, 0.125])
V = 151_936
Z = np.random.default_rng(0).normal(0, 3, 1000)  # the logits of F1.4
some = settings(max_examples=60, deadline=None)
logits = arrays(float, st.integers(2, 40), elements=st.floats(-30, 30))


def test_f1_1_hill_numbers() -> None:
    orders = (0, 0.5, 1, 2, np.inf)
    found = [b.hill(P, order) for order in orders]
    assert found == pytest.approx([4, 3.6642136, 3.3635857, 2.9090909, 2], abs=1e-7)
    assert b.entropy(np.log(P)) == pytest.approx(1.2130076, abs=1e-7)
    assert b.entropy(np.log(P)) / np.log(2) == pytest.approx(1.75)
    assert b.hill(np.stack([P, P]), 2).tolist() == pytest.approx([2.9090909] * 2)


@some
@given(logits)
def test_f1_1_orders_never_increase(z: np.ndarray) -> None:
    p = softmax(z)
    numbers = [b.hill(p, order) for order in (0, 0.5, 1, 2, 5, np.inf)]
    assert all(x >= y * (1 - 1e-9) for x, y in pairwise(numbers))
    assert numbers[3] <= numbers[-1] ** 2 * (1 + 1e-9)
    assert numbers[-1] >= 1 - 1e-9
    assert numbers[0] <= len(p)


def test_f1_2_counts() -> None:
    assert b.nucleus_size(P, 0.9) == 4
    assert b.nucleus_size(P, 0.75) == 2  # an exact tie of the cumulative sum
    assert b.ratio_count(P, 0.5) == 2
    assert b.gap_count(np.log(P), 0.7) == 2
    assert b.gap_count(np.log(P), 0.69) == 1
    assert b.nucleus_size([[1.0, 0.0], [0.5, 0.5]], 1.0).tolist() == [1, 2]


@pytest.mark.parametrize(("v", "high"), [(4, 0.668181), (1000, 0.901729), (V, 0.936098)])
def test_f1_3_region(v: int, high: float) -> None:
    low, found = b.pmax_bounds(1.0, v)
    assert (low, found) == pytest.approx((0.430475, high), abs=1e-6)
    assert low > np.exp(-1)  # the crude bound is weaker
    assert b.entropy_bounds(low, v)[0] == pytest.approx(1)
    assert b.entropy_bounds(found, v)[1] == pytest.approx(1)


def test_f1_3_headline_of_section_0() -> None:
    """An EBF of 2.97 is compatible with almost any p_max."""
    assert b.pmax_bounds(1.088, V) == pytest.approx((0.367, 0.930), abs=1e-3)


@some
@given(logits)
def test_f1_3_holds_for_every_distribution(z: np.ndarray) -> None:
    h, p_max, v = b.entropy(z), float(softmax(z).max()), len(z)
    least, largest = b.entropy_bounds(p_max, v)
    assert least - 1e-7 <= h <= largest + 1e-7
    low, high = b.pmax_bounds(min(h, np.log(v)), v)
    assert low - 1e-6 <= p_max <= high + 1e-6


def test_f1_3_ends() -> None:
    assert b.pmax_bounds([0.0, np.log(4)], 4)[0] == pytest.approx([1, 0.25])
    assert b.pmax_bounds([0.0, np.log(4)], 4)[1] == pytest.approx([1, 0.25])
    assert b.entropy_bounds([1.0, 0.25], 4)[1] == pytest.approx([0, np.log(4)])


def test_f1_3_averages() -> None:
    assert b.mean_entropy_floor([0.4, 0.6]) == pytest.approx([0.554518, 0.936426], abs=1e-6)
    assert b.entropy_bounds(0.6, 100)[0] == pytest.approx(0.673012, abs=1e-6)
    # A mixture whose mean p_max is .6 goes below the pointwise bound, never below the floor.
    mixed = 0.8 * b.entropy_bounds(0.5, 100)[0] + 0.2 * b.entropy_bounds(1.0, 100)[0]
    assert b.mean_entropy_floor(0.4) - 1e-9 <= mixed < 0.673012


def test_f1_4_truncated_logits() -> None:
    lp = log_softmax(Z)
    top = np.sort(lp)[::-1][:20]
    assert b.entropy(Z) == pytest.approx(3.817268, abs=1e-6)
    assert 1 - np.exp(top).sum() == pytest.approx(0.284724, abs=1e-6)
    assert b.entropy_interval(top, 1000) == pytest.approx((3.352192, 4.312643), abs=1e-6)
    assert b.renormalised_entropy(top) == pytest.approx(2.452526, abs=1e-6)
    assert np.exp(b.renormalised_entropy(top)) == pytest.approx(11.6, abs=0.05)
    assert np.exp(b.entropy(Z)) == pytest.approx(45.5, abs=0.05)


@some
@given(logits, st.integers(1, 40))
def test_f1_4_interval_contains_the_truth(z: np.ndarray, known: int) -> None:
    top = np.sort(log_softmax(z))[::-1][:known]
    low, high = b.entropy_interval(top, len(z))
    assert low - 1e-7 <= b.entropy(z) <= high + 1e-7


def test_f1_5_half_precision() -> None:
    """A half-precision softmax turns p ln p into NaN, and an epsilon only hides it."""
    half = (4 * Z).astype(np.float16)
    assert b.entropy(half) == pytest.approx(0.1507193, abs=1e-7)
    p = softmax(half.astype(np.float32)).astype(np.float16)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert np.isnan(-(p * np.log(p)).sum())
    hidden = float(-(p * np.log(p + np.float16(1e-5))).sum())
    assert hidden == pytest.approx(0.15039, abs=5e-6)
    assert np.float16(1 / V) == pytest.approx(6.5565e-6, rel=1e-4)
    assert float(np.float16(1 / V)) * V == pytest.approx(0.99617, abs=1e-5)
    assert b.entropy(np.zeros(V, np.float16)) == pytest.approx(np.log(V))


def test_f1_5_slope() -> None:
    z = np.array([2.0, 1.0, 0.0, -1.0])
    assert b.entropy_slope(z, 1.3) == pytest.approx(-0.553451, abs=1e-6)
    step = 1e-5
    numeric = (b.entropy((1.3 + step) * z) - b.entropy((1.3 - step) * z)) / (2 * step)
    assert numeric == pytest.approx(-0.553451, abs=1e-6)
    assert b.entropy_slope([0.0, 0.0, -np.inf], 1.0) == 0


def test_f1_6_means() -> None:
    assert b.ebf_means([0, 0, 0, 4]) == pytest.approx((2.71828, 14.3995), abs=1e-4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: b.hill([0.5, 0.6], 1), "sum to 1"),
        (lambda: b.hill([1.5, -0.5], 1), "at least 0"),
        (lambda: b.hill(P, -1), "order"),
        (lambda: b.entropy([np.nan, 1.0]), "Logits must be numbers"),
        (lambda: b.entropy([-np.inf, -np.inf]), "forbids every token"),
        (lambda: b.pmax_bounds(12.0, 1000), "in bits"),
        (lambda: b.entropy_bounds(0.1, 4), "between 1 / V"),
        (lambda: b.mean_entropy_floor(1.0), "below 1"),
        (lambda: b.entropy_interval([0.0, 0.0], 10), "true log-probabilities"),
        (lambda: b.nucleus_size(P, 0.0), "share"),
        (lambda: b.ratio_count(P, 2.0), "rho"),
        (lambda: b.gap_count(P, -1.0), "delta"),
        (lambda: b.ebf_means([]), "non-empty"),
    ],
)
def test_refusals(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call()


def test_entropy_by_content_type() -> None:
    trace = synthetic_trace(0)
    table = b.entropy_by(trace).set_index("content_type")
    positions = trace.positions.merge(trace.sequences[["seq", "content_type"]], on="seq")
    code = positions[positions["content_type"] == "code"]
    row = table.loc["code"]
    assert row["entropy"] == pytest.approx(code["entropy"].astype(float).mean())
    assert row["ebf_geometric"] == pytest.approx(np.exp(row["entropy"]))
    assert row["ebf_arithmetic"] == pytest.approx(np.exp(code["entropy"].astype(float)).mean())
    assert row["p_max"] == pytest.approx(code["p_max"].astype(float).mean())
    assert row["n_positions"] == len(code)
    assert row["n_prompts"] == 4
    assert (table["ebf_inf_geometric"] <= table["ebf2_geometric"]).all()
    assert (table["ebf2_geometric"] <= table["ebf_geometric"]).all()
    assert (table["ebf_geometric"] < table["ebf_arithmetic"]).all()
    for name in ("entropy", "ebf_arithmetic", "p_max", "ebf_inf_geometric"):
        assert (table[f"{name}_low"] < table[name]).all()
        assert (table[name] < table[f"{name}_high"]).all()
    assert table.loc["code", "entropy_high"] < table.loc["prose", "entropy_low"]


def test_entropy_by_repeats_and_refusals() -> None:
    trace = synthetic_trace(0, max_new_tokens=60)
    n = [b.entropy_by(trace, repeated=r)["n_positions"].sum() for r in (None, False, True)]
    assert n[0] == n[1] + n[2]
    assert n[2] == trace.positions["repeated"].sum() > 0
    one = b.entropy_by(trace_of([[0, 0]], k=2))
    assert np.isnan(one["entropy_low"][0])
    assert len(b.entropy_by(trace, by="prompt_id")) == 12
    with pytest.raises(ValueError, match="column of `sequences`"):
        b.entropy_by(trace, by="language")
    with pytest.raises(ValueError, match="No position is left"):
        b.entropy_by(trace_of([[0, 0]], k=2), repeated=True)
