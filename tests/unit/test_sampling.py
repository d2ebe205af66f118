"""Logits to probabilities, and probabilities to tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.engine.sampling import Dice, Sampling, next_noise, race, shared_noise

LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64).log()


def probs(logits: torch.Tensor = LOGITS, **settings: float) -> list[float]:
    return Sampling(**settings).probs(logits)[0].tolist()  # type: ignore[arg-type]


def test_raw_is_the_softmax_in_fp32_or_float64() -> None:
    assert probs() == pytest.approx([0.5, 0.3, 0.15, 0.05])
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    for dtype, wanted in [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ]:
        p = Sampling(0.8, 20, 0.9).probs(logits.to(dtype))
        assert p.dtype == wanted
        torch.testing.assert_close(p.sum(-1), torch.ones(3, dtype=wanted))


def test_temperature() -> None:
    squared = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
    assert probs(temperature=0.5) == pytest.approx(squared / squared.sum())
    assert probs(temperature=0) == [1, 0, 0, 0]
    assert probs(temperature=1e-30) == [1, 0, 0, 0]
    assert probs(LOGITS.float() + 1e4, temperature=1e-30) == [1, 0, 0, 0]


def test_ties_go_to_the_smallest_id() -> None:
    tied = torch.tensor([[1.0, 2.0, 2.0, 2.0]])
    assert probs(tied, temperature=0) == [0, 1, 0, 0]
    assert probs(tied, top_k=2) == pytest.approx([0, 0.5, 0.5, 0])
    assert probs(tied, top_p=0.4) == pytest.approx([0, 0.5, 0.5, 0])
    assert probs(torch.full((1, 300), 2.0), top_k=7)[:8] == pytest.approx([1 / 7] * 7 + [0])


def test_top_p_keeps_the_token_that_crosses() -> None:
    assert probs(top_p=0.49) == [1, 0, 0, 0]
    assert probs(top_p=0.5) == [1, 0, 0, 0]  # reached exactly: no more is needed
    assert probs(top_p=0.51) == pytest.approx([0.625, 0.375, 0, 0])
    assert probs(top_p=0.8) == pytest.approx([0.625, 0.375, 0, 0])
    assert probs(LOGITS.float(), top_p=0.8) == pytest.approx([0.625, 0.375, 0, 0])
    assert probs(top_p=1e-9) == [1, 0, 0, 0]


def test_top_p_is_taken_of_what_top_k_left() -> None:
    # Of (.5, .3) the first alone holds .625.
    assert probs(top_k=2, top_p=0.6) == [1, 0, 0, 0]
    assert probs(top_k=3, top_p=0.6) == pytest.approx([0.625, 0.375, 0, 0])
    assert probs(top_k=99) == pytest.approx([0.5, 0.3, 0.15, 0.05])


def test_a_ruled_out_token_stays_out() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0]])
    assert probs(logits) == [0.5, 0, 0.5]
    assert probs(logits, temperature=0.1, top_k=3, top_p=0.99) == [0.5, 0, 0.5]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=8),
    st.floats(0.2, 3),
    st.integers(0, 9),
    st.floats(0.05, 1),
)
def test_probs_equal_a_walk_down_the_tokens(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    p = np.exp(np.array(logits) / temperature)
    p /= p.sum()
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    if top_k:
        order = order[:top_k]
    total, held, kept = sum(p[i] for i in order), 0.0, []
    for i in order:
        if held >= top_p * (1 - 1e-6) and top_p < 1:
            break
        kept.append(i)
        held += p[i] / total
    wanted = np.array([p[i] if i in kept else 0.0 for i in range(len(p))])
    row = torch.tensor([logits], dtype=torch.float64)
    got = Sampling(temperature, top_k, top_p).probs(row)[0].numpy()
    if abs(got - wanted / wanted.sum()).max() > 1e-9:  # only where a sum meets top_p exactly
        gaps = np.abs(np.cumsum([p[i] / total for i in order]) - top_p * (1 - 1e-6))
        assert gaps.min() < 1e-9


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": -1}, "temperature must be 0"),
        ({"temperature": float("nan")}, "temperature must be 0"),
        ({"temperature": float("inf")}, "temperature must be 0"),
        ({"top_k": -1}, "top_k .* whole number"),
        ({"top_k": 2.5}, "top_k .* whole number"),
        ({"top_p": 0}, "top_p must be above 0"),
        ({"top_p": 1.1}, "top_p must be above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sampling(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("logits", [torch.zeros(4), torch.zeros(2, 4, dtype=torch.long)])
def test_other_logits_are_refused(logits: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="floating-point matrix"):
        Sampling().probs(logits)


def test_draws_follow_the_weights() -> None:
    dice = Dice(torch.Generator().manual_seed(5))
    weights = torch.tensor([0.0, 3.0, 0.0, 1.0, 2.0, 0.0])
    n = 3000
    counts = np.bincount([dice.draw(weights) for _ in range(n)], minlength=6)
    assert counts[[0, 2, 5]].tolist() == [0, 0, 0]
    share = weights.numpy() / 6
    assert np.all(np.abs(counts - n * share) <= 4 * np.sqrt(n * share * (1 - share)))
    heads = sum(dice.coin(0.3) for _ in range(n))
    assert abs(heads - 0.3 * n) <= 4 * np.sqrt(n * 0.3 * 0.7)


@pytest.mark.parametrize("mark", [0.0, 0.5, 1 - 2**-53])
def test_no_draw_lands_on_a_token_without_weight(
    mark: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Dice(torch.Generator())
    monkeypatch.setattr(dice, "_uniform", lambda: mark)
    assert dice.draw(torch.tensor([0.0, 1e-8, 0.0], dtype=torch.float32)) == 1
    assert dice.draw(torch.tensor([0.0, 0.1, 0.7, 0.0])) in (1, 2)
    assert dice.coin(1.0)
    assert not dice.coin(0.0)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_weights_that_hold_nothing_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="Nothing can be drawn"):
        Dice(torch.Generator()).draw(torch.tensor(weights))


def test_noise_is_keyed_by_seed_and_position() -> None:
    keys = torch.Generator().manual_seed(3)
    stream = [next_noise(keys, 6) for _ in range(5)]
    for position, noise in enumerate(stream):
        assert torch.equal(noise, shared_noise(3, position, 6))
        assert (noise > 0).all()
    assert not torch.equal(stream[0], stream[1])
    assert not torch.equal(stream[0], shared_noise(4, 0, 6))
    with pytest.raises(ValueError, match="position"):
        shared_noise(0, -1, 4)


def test_the_chance_that_two_racers_agree() -> None:
    """F3.3: 1 / sum_y max(p_y / p_x, q_y / q_x), summed over x; .630769 for this pair."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    exact = sum(1 / np.maximum(p / p[x], q / q[x]).sum() for x in range(3))
    assert exact == pytest.approx(0.630769, abs=1e-6)
    floor = (1 - 0.3) / (1 + 0.3)
    assert floor == pytest.approx(0.538462, abs=1e-6)
    assert exact >= floor
    keys, n, same = torch.Generator().manual_seed(0), 4000, 0
    for _ in range(n):
        noise = next_noise(keys, 3)
        same += race(torch.from_numpy(p), noise) == race(torch.from_numpy(q), noise)
    assert abs(same - n * exact) <= 4 * np.sqrt(n * exact * (1 - exact))
