"""Tests that need a CUDA GPU: skipped with a visible reason elsewhere, reported in one file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from specviz.doctor_report import doctor
from specviz.exl3.checks import gpus, why_not

_SEEN: dict[str, dict[str, Any]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-report", default=None, help="JSON file to write what was seen to.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    reason = None if gpus() else "no CUDA GPU that torch sees: what runs on a GPU is not verified"
    for item in items:
        if here in item.path.parents and reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def note(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a test measured: it goes into the report."""
    return _SEEN.setdefault(request.node.nodeid, {"measured": {}})["measured"]


@pytest.fixture(scope="session")
def folders() -> tuple[Path, str | None]:
    """The EXL3 target and its drafter, named by EXL3_TARGET and EXL3_DRAFT (a folder, or mtp)."""
    if why_not() is not None:
        pytest.skip(str(why_not()))
    target = os.environ.get("EXL3_TARGET")
    if not target:
        pytest.skip("EXL3_TARGET names no folder of an EXL3 model")
    return Path(target), os.environ.get("EXL3_DRAFT")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" or report.outcome == "skipped":
        entry = _SEEN.setdefault(item.nodeid, {"measured": {}})
        entry["outcome"], entry["seconds"] = report.outcome, round(report.duration, 2)
        if report.outcome != "passed":
            entry["said"] = str(report.longrepr)[-2000:]


def pytest_sessionfinish(session: pytest.Session) -> None:
    where = session.config.getoption("gpu_report", None)
    if where:
        file = Path(where)
        file.parent.mkdir(parents=True, exist_ok=True)
        written = {"machine": doctor().to_dict(), "tests": _SEEN}
        file.write_text(json.dumps(written, indent=2, default=str) + "\n", encoding="utf-8")
        print(f"\ngpu report: {file} (attach it to an issue)")
