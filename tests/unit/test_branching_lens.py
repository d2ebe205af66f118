"""The lens's tables against sums over its own rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from specviz.analysis.branching_lens import BranchingLens
from tests.synthetic import synthetic_trace

EDGES = (1.5, 4.0, 10.0)


@pytest.fixture(scope="module")
def lens() -> BranchingLens:
    return BranchingLens(synthetic_trace(1), "steady", EDGES, draws=200)


@pytest.mark.parametrize("k", [1, 4, 15])
def test_the_curve_is_the_mean_of_its_step(lens: BranchingLens, k: int) -> None:
    table = lens.table(k)
    table["step"] = np.searchsorted(EDGES, table["ebf"], side="right")
    by_step = table.groupby(["content_type", "step"], sort=False)
    wanted = by_step.agg(
        accepted=("accepted", "mean"), n=("accepted", "size"), prompts=("prompt_id", "nunique")
    )
    logs = by_step["ebf"].apply(lambda ebf: np.exp(np.log(ebf).mean()))
    curve = lens.curve(k)
    assert len(curve) == len(wanted)
    for (kind, _), row in wanted.sort_index().iterrows():
        mine = curve[(curve["content_type"] == kind) & np.isclose(curve["accepted"], row.accepted)]
        assert row.n in mine["n_anchors"].tolist()
        assert row.prompts in mine["n_prompts"].tolist()
    assert np.allclose(sorted(curve["ebf"]), sorted(logs))
    ends = curve.dropna(subset=["low"])
    assert ((ends["low"] <= ends["accepted"]) & (ends["accepted"] <= ends["high"])).all()


def test_one_text_and_one_kind_are_parts_of_the_whole(lens: BranchingLens) -> None:
    table, curve = lens.table(5), lens.curve(5)
    for seq in table["seq"].unique():
        mine = table[table["seq"] == seq].reset_index(drop=True)
        pd.testing.assert_frame_equal(lens.of_text(int(seq), 5), mine)
    assert lens.of_text(10_000, 5).empty
    prose = curve[curve["content_type"] == "prose"].reset_index(drop=True)
    pd.testing.assert_frame_equal(lens.curve(5, "prose"), prose)
