"""F4.1 to F4.3 and the published table P1, with their worked numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.analysis.theory import speedup as f

K = 12
SURVIVAL = 0.6 ** np.arange(1, K + 1)
VERIFY = 1 + 0.02 * np.arange(K + 1)
BLOCK = np.r_[0, np.full(K, 0.25)]
some = settings(max_examples=80, deadline=None)
seconds = st.floats(0.01, 10)


@pytest.mark.parametrize(
    ("alpha", "c", "k", "gain"),
    [
        (0.5, 0.05, 3, 1.630),
        (0.6, 0.1, 3, 1.674),
        (0.8, 0.05, 8, 3.092),
        (0.8, 0.2, 4, 1.868),
        (0.9, 0.01, 24, 7.486),
        (0.5, 0.5, 0, 1.0),
    ],
)
def test_f4_1_best_k(alpha: float, c: float, k: int, gain: float) -> None:
    best, found = f.iid_best_k(alpha, c)
    assert best == k
    assert found == pytest.approx(gain, abs=5e-4)


@pytest.mark.parametrize(
    ("alpha", "k", "operations", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_p1_published_table(alpha: float, k: int, operations: float, speed: float) -> None:
    assert f.iid_operations(alpha, k, 0.0) == pytest.approx(operations, abs=5.1e-3)
    assert f.iid_speedup(alpha, k, 0.0) == pytest.approx(speed, abs=5.1e-3)


@some
@given(st.floats(0, 0.99), st.floats(0.001, 1.5))
def test_f4_1_a_gain_exists_exactly_when_alpha_exceeds_c(alpha: float, c: float) -> None:
    best, gain = f.iid_best_k(alpha, c)
    if alpha > c:
        assert gain >= (1 + alpha) / (1 + c) * (1 - 1e-12)
        assert best >= 1
    else:
        assert (best, gain) == (0, 1.0)
        assert all(f.iid_speedup(alpha, k, c) <= 1 + 1e-12 for k in range(30))


def test_f4_2_best_k() -> None:
    k, gain = f.best_k(SURVIVAL, VERIFY, BLOCK)
    assert (k, gain) == (6, pytest.approx(1.773734, abs=1e-6))
    k, gain = f.best_k(SURVIVAL, VERIFY, 0.08)
    assert (k, gain) == (3, pytest.approx(1.6738, abs=5e-5))


def test_f4_3_marginal_rule() -> None:
    gain, rate = f.marginal_gain(SURVIVAL, VERIFY, BLOCK), f.best_k(SURVIVAL, VERIFY, BLOCK)[1]
    assert rate * 0.02 == pytest.approx(0.0355, abs=5e-5)
    assert SURVIVAL[5:7] == pytest.approx([0.0467, 0.0280], abs=5e-5)
    assert (gain[1:6] >= 0).all()
    assert (gain[6:] < 0).all()
    gain = f.marginal_gain(SURVIVAL, VERIFY, 0.08)
    assert f.best_k(SURVIVAL, VERIFY, 0.08)[1] * 0.1 == pytest.approx(0.1674, abs=5e-5)
    assert (gain[:3] >= 0).all()
    assert (gain[3:] < 0).all()


def test_f4_3_dinkelbach_converges_in_two() -> None:
    for draft, best in ((BLOCK, 6), (0.08, 3)):
        k, rate, rises = f.dinkelbach(SURVIVAL, VERIFY, draft)
        assert (k, rises) == (best, 2)
        assert rate == pytest.approx(f.rates(SURVIVAL, VERIFY, draft).max())


def test_a_fixed_charge_is_compared_with_not_drafting_at_all() -> None:
    """Each further token is worth its time, yet the block's charge is not: k = 0."""
    assert f.best_k([0.3, 0.1], [1, 1.01, 1.02], [0, 0.9, 0.9]) == (0, 1.0)


@some
@given(st.data(), st.integers(1, 10))
def test_best_k_is_the_best_and_dinkelbach_finds_it(data: st.DataObject, k: int) -> None:
    chance = data.draw(st.lists(st.floats(0, 1), min_size=k, max_size=k))
    verify = data.draw(st.lists(seconds, min_size=k + 1, max_size=k + 1))
    draft = [0.0, *data.draw(st.lists(seconds, min_size=k, max_size=k))]
    alive = np.cumprod(chance)
    best, gain = f.best_k(alive, verify, draft)
    every = [(1 + alive[:j].sum()) / (verify[j] + draft[j]) for j in range(k + 1)]
    assert gain == pytest.approx(max(every) / every[0])
    assert every[best] == pytest.approx(max(every))
    assert f.dinkelbach(alive, verify, draft)[1] == pytest.approx(max(every))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: f.iid_speedup(1.2, 3, 0.1), "alpha is a probability"),
        (lambda: f.iid_speedup(0.5, -1, 0.1), "k must be a whole number"),
        (lambda: f.iid_speedup(0.5, 1, -0.1), "c must be 0 or more"),
        (lambda: f.iid_best_k(0.9, 0.0), "without end"),
        (lambda: f.best_k([0.5], [1, 1, 1], [0, 1]), "K \\+ 1 entries"),
        (lambda: f.best_k([0.5, 0.6], [1, 1, 1], 0.1), "not increase with depth"),
        (lambda: f.best_k([0.5], [1, 0], [0, 0]), "more than 0 seconds"),
    ],
)
def test_refusals(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call()
