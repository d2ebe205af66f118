"""Counted rounds say what the table of rounds says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import specviz as sv
from specviz.analysis import survival_by
from specviz.analysis.levers.drafters import length_of, survival_of
from specviz.analysis.replays.oracle import oracle, seconds_by_prompt
from specviz.policies import FixedK

FEW = 100


@pytest.fixture(scope="module")
def trace():
    return sv.bundled_trace("smollm2-trees")


@pytest.mark.parametrize("kind", [None, "code"])
@pytest.mark.parametrize("k", [0, 1, 7])
def test_survival_and_length_are_those_of_the_rounds(trace, kind, k):
    run = sv.replay(trace, FixedK(k), "lm")
    rounds = run.rounds if kind is None else run.rounds[run.rounds["content_type"] == kind]
    pd.testing.assert_frame_equal(survival_of(run, kind, FEW), survival_by(rounds, None, draws=FEW))
    found, many = length_of(run, kind, FEW)
    assert many == len(rounds)
    assert found.estimate == pytest.approx(rounds["emitted"].mean())
    assert found.n_prompts == rounds["prompt_id"].nunique()


def test_a_kind_without_rounds_is_none(trace):
    run = sv.replay(trace, FixedK(2), "lm")
    assert survival_of(run, "no such", FEW) is None
    assert length_of(run, "no such", FEW) is None


def test_seconds_by_prompt_are_those_of_the_rounds(trace):
    cost = sv.t4_like()
    for run in (sv.replay(trace, FixedK(4), "lm"), oracle(trace, cost)):
        found = seconds_by_prompt(run, cost)
        table = run.rounds.assign(seconds=run.seconds(cost))
        same = table.groupby(["content_type", "prompt_id"], sort=False)
        np.testing.assert_allclose(found["seconds"], same["seconds"].sum())
        assert found["tokens"].tolist() == same["emitted"].sum().tolist()
        assert found["rounds"].tolist() == same.size().tolist()
        assert found.index.tolist() == list(same.groups)
