"""The traces that come with specviz are whole, small, and open without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import specviz as sv
from specviz.bundled import BUNDLED

FOLDER = Path(__file__).parents[2] / "data" / "traces"


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_trace_is_valid(name: str) -> None:
    trace = sv.bundled_trace(name).validate()
    assert trace.meta.complete
    assert trace.meta.greedy == (name not in ("smollm2-sampled", "smollm2-self-quant"))
    assert trace.meta.target["name"] == "smollm2-135m"
    if trace.meta.greedy:
        assert sv.replay(trace, sv.FixedK(7), "lm").tokens_per_round > 1.8


def test_families_are_in_both_large_captures_and_the_shipped_ones() -> None:
    for name in ("smollm2-greedy", "smollm2-sampled"):
        trace = sv.bundled_trace(name)
        assert set(trace.drafters) == {"ngram", "bigram", "lm", "eagle", "block", "mtp"}
        assert trace.sequences["content_type"].nunique() == 8
        assert (
            trace.sequences["content_type"].value_counts()[["code", "prose"]].tolist() == [18] * 2
        )
    trees = sv.bundled_trace("smollm2-greedy").meta.trees
    assert set(trees) == {"ngram", "lm", "eagle", "block", "mtp"}


def test_samples_carry_p_and_q() -> None:
    trace = sv.bundled_trace("smollm2-sampled")
    assert trace.meta.sampling["temperature"] == 1
    logp = trace.positions["logp_sampled"]
    np.testing.assert_allclose(logp, trace.positions["logp"], atol=1e-4)  # nothing is cut off
    for name in ("lm", "eagle", "block", "mtp"):
        first = trace.matrix("overlap", name)[:, 0].astype(float)
        logq = trace.matrix("path_logq", name)[:, 0].astype(float)
        kept = np.exp(np.minimum(0, logq - _next(trace, name)))
        assert 0.3 < first.mean() < 0.9
        # E over x ~ p of min(1, q / p) is sum min(p, q): both estimate what rejection keeps.
        assert kept.mean() == pytest.approx(first.mean(), abs=4 * kept.std() / len(kept) ** 0.5)


def _next(trace: sv.Trace, drafter: str) -> np.ndarray:
    """ln p of the token behind each of a drafter's anchors, in the order of its rows."""
    rows = trace.draft_table(drafter).select(["seq", "anchor"]).to_pandas()
    after = trace.positions.set_index(["seq", "t"])["logp_sampled"]
    return after.loc[list(zip(rows["seq"], rows["anchor"] + 1, strict=True))].to_numpy()


def test_every_folder_has_a_name_and_all_are_small() -> None:
    assert {folder.name for folder in FOLDER.iterdir() if folder.is_dir()} == set(BUNDLED)
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 30e6


def test_trees_and_costs_come_with_it() -> None:
    trace = sv.bundled_trace("smollm2-trees")
    cost = sv.CostModel.from_dict(trace.meta.cost_models[0])
    tree = sv.replay(trace, sv.FixedTree(sv.BestFirst(16, depth=7)), "lm")
    assert tree.tokens_per_round > sv.replay(trace, sv.FixedK(7), "lm").tokens_per_round
    assert (tree.seconds(cost) >= cost.plain_seconds).all()


def test_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="smollm2-trees"):
        sv.bundled_trace("nothing")


def test_no_torch_is_needed() -> None:
    code = (
        "import sys, specviz as sv; sv.bundled_trace('smollm2-greedy').summary(); "
        "print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
