"""Objectives beside cross-entropy: worked by hand, and by drawing drafts."""

from __future__ import annotations

import math

import pytest
import torch

from specviz.training.objectives import CANDIDATES, MARGIN, expected_length, recall_loss

F64 = torch.float64


def logits(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=F64).log()


def test_expected_length_of_two_anchors_by_hand() -> None:
    # Anchor 0 drafts two tokens, right with .5 and then .4; anchor 1 has only one, right with .2.
    taught = [torch.tensor([[True, True]]), torch.tensor([[True, False]])]
    rows = [logits([0.5, 0.5], [0.8, 0.2]), logits([0.6, 0.4])]
    right = [torch.tensor([0, 1]), torch.tensor([1])]
    found = expected_length(rows, right, taught)
    assert float(found) == pytest.approx((0.5 + 0.5 * 0.4 + 0.2) / 2)


def test_expected_length_is_what_drawn_drafts_reach() -> None:
    rng = torch.Generator().manual_seed(1)
    depths, anchors, m = 3, 4, 5
    rows = [torch.randn(anchors, m, generator=rng, dtype=F64) for _ in range(depths)]
    right = [torch.randint(m, (anchors,), generator=rng) for _ in range(depths)]
    everywhere = [torch.ones(1, anchors, dtype=torch.bool)] * depths
    drawn = torch.stack(
        [torch.multinomial(row.softmax(-1), 40_000, True, generator=rng) for row in rows]
    )
    accepted = (drawn == torch.stack(right)[..., None]).long().cumprod(0).sum(0)
    assert float(expected_length(rows, right, everywhere)) == pytest.approx(
        float(accepted.double().mean()), abs=4 * float(accepted.double().std()) / 400
    )


def test_a_deeper_token_counts_only_behind_a_likely_one() -> None:
    def pull(first: float) -> float:
        deep = torch.zeros(1, 2, dtype=F64, requires_grad=True)
        rows = [logits([first, 1 - first]), deep]
        where = [torch.ones(1, 1, dtype=torch.bool)] * 2
        expected_length(rows, [torch.tensor([0])] * 2, where).backward()
        assert deep.grad is not None
        return float(deep.grad[0, 0])

    assert pull(0.9) == pytest.approx(0.9 * 0.25)
    assert pull(0.1) == pytest.approx(0.1 * 0.25)


def test_recall_is_content_with_a_safe_place_among_the_first() -> None:
    row = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]])
    places = torch.arange(6)[:, None]
    losses = [float(recall_loss(row, place)) for place in places]
    # The token has to be MARGIN ahead of the best one it pushes out of the first four.
    assert (CANDIDATES, MARGIN) == (4, 1.0)
    assert losses == pytest.approx([0, 0, 0, 0, 2, 3])


def test_recall_in_a_vocabulary_as_small_as_the_list() -> None:
    assert math.isfinite(float(recall_loss(torch.zeros(1, 3), torch.tensor([0]))))
