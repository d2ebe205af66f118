"""Statistics of rows against the long way, and the numerics of F1.5."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.observe import concatenate, pair_stats, row_stats, token_stats


def brute_pair(p: torch.Tensor, q: torch.Tensor) -> tuple[float, float]:
    """sum min(p, q) and KL(p || q) of two probability vectors, the long way."""
    overlap = sum(min(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
    kl = sum(a * np.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True) if a > 0)
    return overlap, kl


def test_pair_stats_against_the_long_way() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(5, 9, generator=generator, dtype=torch.float64) for _ in range(2))
    stats = pair_stats(p, q, torch.tensor([0, 1, 2, 3, 4]))
    for row in range(5):
        overlap, kl = brute_pair(p[row].softmax(-1), q[row].softmax(-1))
        assert stats.overlap[row] == pytest.approx(overlap, abs=1e-6)
        assert stats.kl[row] == pytest.approx(kl, abs=1e-5)


def test_row_stats_of_the_worked_example() -> None:
    """F1.1 and F1.2: p = (1/2, 1/4, 1/8, 1/8)."""
    stats = row_stats(torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64).log())
    assert stats.entropy[0] == pytest.approx(1.2130076, abs=1e-7)
    assert stats.ebf[0] == pytest.approx(3.3635857, abs=1e-7)
    assert stats.ebf2[0] == pytest.approx(2.9090909, abs=1e-7)
    assert stats.p_max[0] == pytest.approx(0.5)
    assert stats.n90[0] == 4
    assert stats.margin[0] == pytest.approx(np.log(2))
    assert stats.top_ids[0].tolist()[:2] == [0, 1]
    assert stats.top_ids[0, 4] == -1  # only four tokens exist


def test_masked_tokens_do_not_make_nan() -> None:
    stats = row_stats(torch.tensor([[0.0, 0.0, -torch.inf]]))
    assert stats.entropy[0] == pytest.approx(np.log(2))
    assert stats.log2_moment[0] == pytest.approx(np.log(2) ** 2)


def test_half_precision_logits_are_widened_first() -> None:
    """F1.5: in fp16, p ln p of these logits is NaN; the reference value is .1507193."""
    logits = 4 * np.random.default_rng(0).normal(0, 3, 1000)
    half = torch.from_numpy(logits).half()[None]
    naive = half.softmax(-1)
    assert torch.isnan(-(naive * naive.log()).sum())
    assert row_stats(half).entropy[0] == pytest.approx(0.1507193, abs=1e-7)
    assert row_stats(half.double()).entropy[0] == pytest.approx(0.1507193, abs=1e-7)


def test_a_tie_is_flagged_in_the_logits_own_precision() -> None:
    gap = 2.0**-8  # one unit in the last place of bf16 at 1, far from one of fp32
    logits = torch.tensor([[1.0 + gap, 1.0, -5.0]])
    assert not row_stats(logits).tie[0]
    assert row_stats(logits.bfloat16()).tie[0]


def test_n90_of_a_flat_row_needs_the_whole_sort() -> None:
    assert row_stats(torch.zeros(1, 1000)).n90[0] == 900


def test_token_stats_give_the_argmax_rank_0_even_in_a_tie() -> None:
    logits = torch.tensor([[2.0, 2.0, 0.0]])
    for token in (0, 1):
        logp, rank = token_stats(logits, torch.tensor([token]))
        assert rank[0] == 0
        assert logp[0] == pytest.approx(2 - np.log(2 * np.e**2 + 1))
    assert token_stats(logits, torch.tensor([2]))[1][0] == 2


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-30, 30), min_size=2, max_size=40), st.integers(1, 3))
def test_hill_numbers_do_not_increase_with_their_order(values: list[float], rows: int) -> None:
    logits = torch.tensor([values] * rows, dtype=torch.float64)
    stats = row_stats(logits)
    assert (1 / stats.p_max <= stats.ebf2 * (1 + 1e-9)).all()
    assert (stats.ebf2 <= stats.ebf * (1 + 1e-9)).all()
    assert (stats.ebf <= len(values) * (1 + 1e-9)).all()
    assert ((stats.n90 >= 1) & (stats.n90 <= len(values))).all()
    assert len(stats) == rows


def test_take_and_concatenate_are_inverse() -> None:
    logits = torch.randn(6, 11, generator=torch.Generator().manual_seed(1))
    whole = row_stats(logits)
    halves = concatenate([whole.take(range(3)), whole.take(range(3, 6))])
    np.testing.assert_array_equal(whole.entropy, halves.entropy)
    np.testing.assert_array_equal(whole.top_ids, halves.top_ids)
