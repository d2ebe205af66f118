"""Confidence against what matched, and policies fitted to a capture."""

from __future__ import annotations

import numpy as np
import pytest

from specviz.analysis.replays.calibration import calibrate, fit_cost_optimal, reliability
from specviz.analysis.replays.oracle import regret
from specviz.analysis.replays.replay import replay
from specviz.campaign import capture
from specviz.cost import CostModel
from specviz.drafters.markov import MarkovDrafter
from specviz.policies import CostOptimal, FixedK
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.trace import Trace

K = 6
COST = CostModel.from_array([1 + 0.05 * n for n in range(K + 2)], [0.12 * k for k in range(K + 1)])
LETTERS = "abcdefgh"


def captured(first: int, share: float = 0.6) -> Trace:
    target = MarkovModel.random(8, order=3, sharpness=1.0, seed=5)
    drafter = MarkovDrafter(target.mixed_with(MarkovModel.random(8, order=3, seed=6), share))
    prompts = [LETTERS[i % 8] + LETTERS[(3 * i + 1) % 8] + "ab" for i in range(first, first + 8)]
    prompts = list(dict.fromkeys(prompts))
    return capture(prompts, ToyTarget(target), drafter, k=K, max_new_tokens=60, progress=False)


def test_reliability_counts_what_a_stopping_rule_is_asked_about() -> None:
    trace = captured(0)
    table = reliability(trace, bins=4)
    asked = hits = 0
    for seq, group in trace.drafts.groupby("seq"):
        n = int(trace.sequences.set_index("seq").n_output[seq])
        for row in group.itertuples():
            last = n - 2 - row.anchor  # deeper tokens are the target's own, or past the end
            most = min(row.drafted, last)
            matched = min(row.matched, most)
            asked += min(most, matched + 1)
            hits += matched
    assert table.n.sum() == asked
    assert (table.match * table.n).sum() == pytest.approx(hits)
    assert (np.diff(table.confidence) > 0).all()
    assert ((table.low <= table.match) & (table.match <= table.high)).all()


def test_a_calibration_rises_and_a_perfect_drafter_is_certain() -> None:
    pairs = calibrate(captured(0))
    scores, chances = zip(*pairs, strict=True)
    assert list(scores) == sorted(set(scores))
    assert list(chances) == sorted(chances)
    assert 0 <= min(chances) < max(chances) <= 1
    assert {chance for _, chance in calibrate(captured(0, share=0.0))} == {1.0}


def test_fitted_policies_on_other_prompts() -> None:
    train, judged = captured(0), captured(8)
    dynamic, fixed = fit_cost_optimal(train, COST), fit_cost_optimal(train, COST, dynamic=False)
    assert isinstance(dynamic, CostOptimal)
    assert dynamic.calibration is not None
    # The survival is that of rounds, so its tokens per round are the replay's own.
    rounds = replay(train, FixedK(K)).rounds
    inside = rounds[rounds.stop.isin(["full", "reject"])]
    assert 1 + sum(fixed.survival) == pytest.approx(1 + inside.accepted.mean(), abs=0.25)
    table = regret(judged, [dynamic, fixed], COST).query("content_type == 'all'")
    assert (table.regret >= -1e-9).all()
    # Where it was fitted, the fixed one is near the best single k in hindsight.
    own = regret(train, [fixed], COST).query("content_type == 'all'").set_index("policy")
    assert own.over_fixed["cost-optimal-fixed"] < 0.1


def test_bad_input() -> None:
    trace = captured(0)
    with pytest.raises(ValueError, match="bins must be"):
        reliability(trace, bins=0)
    with pytest.raises(ValueError, match="No drafter 'oak'"):
        calibrate(trace, "oak")
    with pytest.raises(ValueError, match="not a cost model"):
        fit_cost_optimal(trace, 3)  # type: ignore[arg-type]
