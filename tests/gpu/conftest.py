"""Tests that need a CUDA GPU: skipped with a visible reason elsewhere, reported in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from specviz.doctor_report import doctor
from specviz.exl3.checks import gpus, why_not
from tests.gpu.report import Seen

_SEEN = Seen()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-report", default=None, help="JSON file to write what was seen to.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    reason = None if gpus() else "no CUDA GPU that torch sees"
    for item in items:
        if here in item.path.parents and reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def note(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a test measured: it goes into the report."""
    return _SEEN.measured(request.node.nodeid)


@pytest.fixture(scope="session")
def folders() -> tuple[Path, str | None]:
    """The EXL3 target and its drafter, named by EXL3_TARGET and EXL3_DRAFT (a folder, or mtp)."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    target = os.environ.get("EXL3_TARGET")
    if not target:
        pytest.skip("EXL3_TARGET names no folder of an EXL3 model")
    return Path(target), os.environ.get("EXL3_DRAFT") or None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    outcome = yield
    if Path(__file__).parent in item.path.parents:
        _SEEN.add(item.nodeid, outcome.get_result())


def pytest_sessionfinish(session: pytest.Session) -> None:
    where = session.config.getoption("gpu_report", None)
    if where:
        _SEEN.write(Path(where), doctor().to_dict())
        print(f"\n{_SEEN.sentence()} Report: {where}")
