"""The watched generator when it samples: tokens, rounds and probabilities of the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from specviz.engine.observe import row_stats, sampled_logp, token_stats
from specviz.engine.protocols import FINAL
from specviz.engine.sampling import Sampling
from specviz.exl3.observe import observe_exl3
from tests.exl3.conftest import PROMPT, Workshop

pytestmark = pytest.mark.exl3

NEW = 40
PAIRS = [("llama", "smaller"), ("llama", "dflash2"), ("hybrid", "mtp")]
SHAPES = [Sampling(1.0), Sampling(0.7), Sampling(0.9, top_k=20, top_p=0.95)]


def watch(target: Any, drafter: Any, shape: Sampling, seed: int = 3, **options: Any) -> Any:
    trace = observe_exl3(
        target, PROMPT, drafter, sampling=shape, max_new_tokens=NEW, seed=seed, **options
    )
    trace.validate()
    return trace


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("name", "draft"), PAIRS)
def test_drafts_do_not_change_what_is_sampled(
    workshop: Workshop, name: str, draft: str, shape: Sampling
) -> None:
    """The library draws one number per position, whatever was drafted for it."""
    target, drafter = workshop.load(name, draft)
    plain, drafted = watch(target, None, shape), watch(target, drafter, shape, draft_tokens=5)
    assert drafted.positions.token_id.tolist() == plain.positions.token_id.tolist()
    assert drafted.meta.acceptance == "sample-match"
    assert set(plain.rounds.drafted) == {0}
    rounds = drafted.rounds
    assert rounds.emitted.sum() == len(drafted.positions)
    assert (rounds.accepted == rounds.emitted - 1).all()
    assert (rounds.anchor == np.r_[0, np.cumsum(rounds.emitted)[:-1]] - 1).all()
    assert rounds.accepted.min() == 0
    assert rounds.accepted.max() >= 1
    full = rounds.stop == "full"
    assert (rounds.accepted[full] == rounds.drafted[full]).all()
    assert (rounds.accepted[rounds.stop == "reject"] < 5).all()


@pytest.mark.parametrize(("name", "draft"), PAIRS)
def test_every_position_has_the_probability_it_was_drawn_with(
    workshop: Workshop, name: str, draft: str
) -> None:
    """Against one forward pass over the text: a row of the wrong place would be far off."""
    target, drafter = workshop.load(name, draft)
    shape = SHAPES[-1]
    trace = watch(target, drafter, shape, draft_tokens=5)
    ids, tokens = list(target.codec.encode(PROMPT)), trace.positions.token_id.tolist()
    text = ids + tokens
    states = target.prefill(text, (FINAL,)).taps[FINAL][len(ids) - 1 : -1]
    rows, said = target.unembed(states), torch.tensor(tokens)
    logp, rank = token_stats(rows, said)
    np.testing.assert_allclose(trace.positions.logp, logp, atol=0.06)
    np.testing.assert_allclose(trace.positions.entropy, row_stats(rows).entropy, atol=0.05)
    sampled = np.asarray(sampled_logp(rows, said, shape))
    both = np.isfinite(sampled) & np.isfinite(trace.positions.logp_sampled)
    assert both.mean() > 0.95  # rounding may decide at the nucleus's edge
    np.testing.assert_allclose(trace.positions.logp_sampled[both], sampled[both], atol=0.1)
    assert (np.asarray(rank) > 0).any()  # not greedy
    assert (trace.positions["rank"] == rank).mean() > 0.9


def test_the_seed_decides(workshop: Workshop) -> None:
    target, drafter = workshop.load("llama", "smaller")
    first, again = (watch(target, drafter, SHAPES[0]) for _ in range(2))
    other = watch(target, drafter, SHAPES[0], seed=4)
    assert first.positions.token_id.tolist() == again.positions.token_id.tolist()
    assert first.positions.token_id.tolist() != other.positions.token_id.tolist()
