"""Fixtures of the widgets' tests: the cells of the module that asks, run in one JupyterLab."""

from __future__ import annotations

import pytest

from tests.browser import lab as labs


@pytest.fixture(scope="module")
def lab(request, tmp_path_factory):
    cells = list(request.module.CELLS.values())
    with labs.opened(tmp_path_factory.mktemp("lab"), cells) as opened:
        yield opened


@pytest.fixture
def quiet(lab):
    """No console error, no exception, no request that leaves this machine."""
    yield
    assert lab.complaints == []
