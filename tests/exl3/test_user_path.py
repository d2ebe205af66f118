"""The notebook's own lines on exllamav3's Python code with CPU operator stand-ins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import specviz as sv
from specviz.engine.tree_shapes import BestFirst
from specviz.exl3.load import assemble
from tests.exl3.conftest import PROMPT, Workshop

pytestmark = pytest.mark.exl3


@pytest.mark.parametrize(
    ("name", "draft"), [("hybrid", "mtp"), ("llama", "dflash2"), ("llama", "smaller")]
)
def test_measure_capture_and_report(
    workshop: Workshop, name: str, draft: str, tmp_path: Path
) -> None:
    target, drafter = workshop.load(name, draft)
    cost = sv.measure_cost(target, drafter, repeats=2)
    trace = sv.capture(
        [PROMPT, "a cat sat on a mat"],
        target,
        [drafter, "ngram"],
        max_new_tokens=16,
        cost_models=[cost],
        out=tmp_path / "capture",
        progress=False,
    )
    trace.validate()
    assert set(trace.drafts.drafter) == {drafter.name, "ngram"}
    assert (trace.drafts.matched > 0).any()
    assert sv.optimal_k(trace, cost, drafter=drafter.name).sentences
    page = sv.report(trace, tmp_path / "report.html")
    assert "exllamav3" in Path(page).read_text()
    assert np.isfinite(trace.positions.entropy).all()


def test_costs_are_measured_as_far_as_a_hybrid_was_loaded_for(workshop: Workshop) -> None:
    target, drafter = assemble(
        workshop.library,
        workshop.path("hybrid"),
        "mtp",
        placing={"device": "cpu"},
        max_draft=5,
        draft_tokens=4,
        reader="python",
    )
    cost = sv.measure_cost(target, drafter, repeats=1, context=20, progress=False)
    assert len(cost.verify) == 6
    dense, block = workshop.load("llama", "dflash2")
    with pytest.raises(ValueError, match="as a batch of its paths"):
        sv.measure_cost(dense, block, trees=[BestFirst(6, 3)], progress=False)
