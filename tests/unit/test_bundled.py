"""The traces that come with specviz are whole, small, and open without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import specviz as sv
from specviz.bundled import BUNDLED

FOLDER = Path(__file__).parents[2] / "data" / "traces"


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_trace_is_valid(name: str) -> None:
    trace = sv.bundled_trace(name).validate()
    assert trace.meta.complete
    assert trace.meta.greedy
    assert trace.meta.target["name"] == "smollm2-135m"
    assert sv.replay(trace, sv.FixedK(7), "lm").tokens_per_round > 1.8


def test_every_folder_has_a_name_and_all_are_small() -> None:
    assert {folder.name for folder in FOLDER.iterdir()} == set(BUNDLED)
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
        "import sys, specviz as sv; sv.bundled_trace('smollm2-trees').summary(); "
        "print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
