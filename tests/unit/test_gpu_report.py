"""The report of the GPU tests says what happened, a model that does not load included."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.gpu.report import Seen


def phase(when: str, outcome: str, said: Any = None) -> Any:
    return SimpleNamespace(when=when, outcome=outcome, duration=1.234, longrepr=said)


def test_a_model_that_does_not_load_is_in_the_report(tmp_path: Path) -> None:
    seen = Seen()
    seen.measured("rewind")["gap"] = 0.1
    for when in ("setup", "call", "teardown"):
        seen.add("rewind", phase(when, "passed"))
    seen.add("split", phase("setup", "failed", "CUDA out of memory"))
    seen.add("split", phase("teardown", "failed", "something after it"))
    seen.add("drafter", phase("setup", "skipped", ("f.py", 3, "Skipped: EXL3_DRAFT is not set")))
    seen.write(tmp_path / "out" / "report.json", {"python": "3.11"})
    read = json.loads((tmp_path / "out" / "report.json").read_text())
    assert read["verdict"] == "GPU tests: 1 failed, 1 passed, 1 skipped."
    tests = read["tests"]
    assert tests["rewind"] == {
        "measured": {"gap": 0.1},
        "outcome": "passed",
        "phase": "call",
        "seconds": 1.23,
    }
    assert (tests["split"]["phase"], tests["split"]["said"]) == ("setup", "CUDA out of memory")
    assert tests["drafter"]["said"] == "EXL3_DRAFT is not set"  # no path of this machine


def test_a_report_of_nothing_says_so() -> None:
    seen = Seen()
    assert seen.sentence() == "Nothing was verified on a GPU: no test was run."
    seen.add("rewind", phase("setup", "skipped", ("f.py", 3, "Skipped: no CUDA GPU")))
    assert seen.sentence() == "Nothing was verified on a GPU: no CUDA GPU."
