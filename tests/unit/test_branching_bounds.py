"""F1.1 to F1.6 from partial knowledge: truncated logs, averages, and extreme orders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, softmax

from specviz.analysis import branching as b
from specviz.analysis import branching_bounds as f
from specviz.bundled import bundled_trace

V = 151_936
Z = np.random.default_rng(0).normal(0, 3, 1000)  # the logits of F1.4
some = settings(max_examples=30, deadline=None)
logits = arrays(float, st.integers(2, 40), elements=st.floats(-30, 30))
orders = st.sampled_from([0, 0.5, 0.9, 1, 1.5, 2, 7, np.inf])


def top(z: np.ndarray, known: int) -> np.ndarray:
    return np.sort(log_softmax(z, axis=-1), axis=-1)[..., ::-1][..., :known]


# ---- Hill numbers at the edges ----------------------------------------------------------


def test_f1_1_near_order_one_and_at_high_orders() -> None:
    p = np.array([0.5, 0.25, 0.125, 0.125])
    for step in (1e-6, 1e-9, 1e-12, 1e-15):
        for order in (1 - step, 1 + step):
            assert b.hill(p, order) == pytest.approx(b.hill(p, 1), abs=2 * step)
    assert b.hill(np.full(V, 1 / V), 1 + 1e-11) == pytest.approx(V)
    # 0.5 ** 5000 underflows; the number itself is 2 ** (5000 / 4999).
    assert b.hill(p, 5000) == pytest.approx(2 ** (5000 / 4999))
    assert b.hill([1.0, 0.0], 0.5) == b.hill([1.0, 0.0], 3) == pytest.approx(1.0)


def test_f1_1_no_step_where_the_formula_changes() -> None:
    p = softmax(Z)
    for edge in (0.9, 1.1):
        below, above = (b.hill(p, edge + d) for d in (-1e-9, 1e-9))
        assert below == pytest.approx(above, rel=1e-7)
    rounded = p * 1.0005  # what fp16 or a printed log may sum to
    assert b.hill(rounded, 1.0999) == pytest.approx(b.hill(rounded, 1.1001), rel=1e-3)


# ---- the top K --------------------------------------------------------------------------


def test_f1_4_other_orders_from_the_same_twenty() -> None:
    known = top(Z, 20)
    for order in (0.5, 1, 2, np.inf):
        low, high = f.hill_interval(known, 1000, order)
        assert low * (1 - 1e-12) <= b.hill(softmax(Z), order) <= high * (1 + 1e-12)
    assert f.hill_interval(known, 1000, 1) == pytest.approx(np.exp([3.352192, 4.312643]), rel=1e-5)
    assert f.hill_interval(known, 1000, np.inf)[0] == pytest.approx(1 / softmax(Z).max())
    wide = np.subtract(*f.hill_interval(known, 1000, 0.5)[::-1])
    narrow = np.subtract(*f.hill_interval(known, 1000, 2)[::-1])
    assert narrow < 1 < 100 < wide  # the tail hardly moves order 2


@some
@given(logits, st.integers(1, 40), orders)
def test_f1_4_the_interval_contains_the_truth(z: np.ndarray, known: int, order: float) -> None:
    p, seen = softmax(z), top(z, known)
    low, high = f.hill_interval(seen, len(z), order)
    truth = b.hill(p, order)
    assert low * (1 - 1e-6) <= truth <= high * (1 + 1e-6)
    for share in (0.5, 0.9, 1.0):
        fewest, most = f.nucleus_interval(seen, len(z), share)
        assert fewest <= b.nucleus_size(p, share) <= most


def test_f1_4_the_ends_are_reached() -> None:
    known = np.log([0.5, 0.25])
    for order in (0.5, 1, 2, 3):
        low, high = f.hill_interval(known, 4, order)
        assert low == pytest.approx(b.hill([0.5, 0.25, 0.25], order))
        assert high == pytest.approx(b.hill([0.5, 0.25, 0.125, 0.125], order))
    assert f.nucleus_interval(known, 4, 0.9) == (3, 4)
    assert b.nucleus_size([0.5, 0.25, 0.25], 0.9) == 3
    assert b.nucleus_size([0.5, 0.25, 0.125, 0.125], 0.9) == 4


def test_f1_4_all_tokens_known_leaves_no_doubt() -> None:
    p = np.array([0.6, 0.3, 0.1])
    for order in (0, 0.5, 1, 2, np.inf):
        low, high = f.hill_interval(np.log(p), 3, order)
        assert (low, high) == pytest.approx((b.hill(p, order),) * 2, rel=1e-6)
    assert f.nucleus_interval(np.log(p), 3, 0.95) == (3, 3)


def test_f1_4_a_table_of_positions() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(0, rng.uniform(0.5, 6, (200, 1)), (200, 1000))
    table = f.truncated_branching(top(z, 20), 1000)
    p = softmax(z, axis=-1)
    truths = {"entropy": b.entropy(z), "ebf": b.hill(p, 1), "ebf2": b.hill(p, 2)}
    for name, truth in {**truths, "n90": b.nucleus_size(p)}.items():
        assert (table[f"{name}_low"] <= truth * (1 + 1e-9)).all()
        assert (table[f"{name}_high"] >= truth * (1 - 1e-9)).all()
    assert table["p_max"].to_numpy() == pytest.approx(p.max(-1))
    second = np.sort(p, -1)[:, -2]
    assert table["margin"].to_numpy() == pytest.approx(np.log(p.max(-1) / second))
    assert np.isnan(f.truncated_branching(top(z, 1), 1000)["margin"]).all()


def test_f1_4_on_the_bundled_trace() -> None:
    """Its five likeliest tokens, kept in half precision, against the entropy it recorded."""
    positions = bundled_trace("smollm2-trees").positions
    table = f.truncated_branching(np.stack(positions["top_logp"]).astype(float), 49_152)
    h = positions["entropy"].to_numpy()
    assert (table["entropy_low"] <= h + 0.01).all()
    assert (h <= table["entropy_high"] + 0.01).all()
    means = f.ebf_means_interval(table["entropy_low"], table["entropy_high"])
    geometric, arithmetic = b.ebf_means(h)
    assert means.geometric_low < geometric < means.geometric_high
    assert means.arithmetic_low < arithmetic < means.arithmetic_high
    assert means.n_positions == len(h)
    # What is left without the normaliser is far below even the lower end.
    cut = np.exp(b.renormalised_entropy(np.stack(positions["top_logp"]).astype(float)).mean())
    assert cut < means.geometric_low


# ---- averages ---------------------------------------------------------------------------


def test_f1_6_the_two_means_are_never_confused() -> None:
    means = f.ebf_means_interval([0, 0, 0, 4], [0, 0, 0, 4])
    assert means.geometric_low == means.geometric_high == pytest.approx(2.71828, abs=1e-5)
    assert means.arithmetic_low == means.arithmetic_high == pytest.approx(14.3995, abs=1e-4)


def test_f1_3_averages_the_other_way_round() -> None:
    for error, h in ((0.4, 0.554518), (0.6, 0.936426)):
        assert f.mean_pmax_bounds(h, V)[0] == pytest.approx(1 - error, abs=1e-6)
    assert f.mean_pmax_bounds([0.0, np.log(4)], 4)[0] == pytest.approx([1, 0.25])
    # Lower than the bound of single distributions, which no average need keep.
    assert f.mean_pmax_bounds(0.554518, V)[0] < b.pmax_bounds(0.554518, V)[0]


@some
@given(st.floats(0, np.log(50)))
def test_f1_3_averages_invert_the_floor(h: float) -> None:
    low, high = f.mean_pmax_bounds(h, 50)
    assert b.mean_entropy_floor(1 - low) == pytest.approx(h, abs=1e-6)
    assert low <= high + 1e-9


def test_f1_3_averages_of_simulated_positions() -> None:
    rng = np.random.default_rng(2)
    flat = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]  # m tokens alike, m = 1..6
    two = rng.integers(0, 6, (300, 1, 2))
    p = flat[np.take_along_axis(two, rng.integers(0, 2, (300, 8, 1)), 2)[..., 0]]
    h, p_max = np.log(b.hill(p, 1)).mean(-1), p.max(-1).mean(-1)
    low, high = f.mean_pmax_bounds(h, 6)
    assert (low - 1e-9 <= p_max).all()
    assert (p_max <= high + 1e-9).all()
    # The bound of single distributions is none for averages.
    assert (p_max < b.pmax_bounds(h, 6)[0] - 1e-9).sum() > 20


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: f.hill_interval(np.log([0.5, 0.2]), 10, -1), "order"),
        (lambda: f.hill_interval(np.log([0.9, 0.2]), 10, 2), "sum to 1.1"),
        (lambda: b.entropy_interval(np.log([0.5, 0.01]), 10), "none is likelier than the last"),
        (lambda: b.entropy_interval([np.nan, -1.0], 10), "must hold log-probabilities"),
        (lambda: b.entropy_interval(np.float64(-1.0), 10), "must hold log-probabilities"),
        (lambda: f.nucleus_interval(np.log([0.5, 0.2]), 10, 0.0), "share"),
        (lambda: f.truncated_branching(np.log([0.5, 0.2]), 10), r"\[positions, K\]"),
        (lambda: f.ebf_means_interval([1.0], [0.5]), "low never above high"),
        (lambda: f.ebf_means_interval([1.0], [2.0, 3.0]), "one entry per position"),
        (lambda: f.mean_pmax_bounds(12.0, 1000), "in bits"),
    ],
)
def test_refusals(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call()
