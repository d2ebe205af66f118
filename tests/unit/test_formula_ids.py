"""Every formula id that the code cites has an entry in docs/formulas.md, and no other does."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ID = r"[FT]\d\.\d+(?:'(?!\w))?"
PAGE = (ROOT / "docs" / "formulas.md").read_text(encoding="utf-8")
#: id -> the text under its heading, up to the next heading.
ENTRIES = dict(re.findall(rf"^### ({ID}) [^\n]*\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))


def _exists(path: str) -> bool:
    """Whether an import path is a module of specviz or a name at the top of one (not imported)."""
    parts = path.split(".")
    if (ROOT.joinpath(*parts) / "__init__.py").exists():
        return True
    if ROOT.joinpath(*parts).with_suffix(".py").exists():
        return True
    module = ROOT.joinpath(*parts[:-1]).with_suffix(".py")
    if not module.exists():
        return False
    body = ast.parse(module.read_text(encoding="utf-8")).body
    return parts[-1] in {n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def test_the_ids_of_the_page_are_those_the_code_cites() -> None:
    files = (ROOT / "specviz").rglob("*.py")
    cited = {found for f in files for found in re.findall(rf"\b{ID}", f.read_text("utf-8"))}
    assert cited
    assert set(ENTRIES) == cited


def test_no_id_has_two_entries() -> None:
    headings = re.findall(rf"^### ({ID})", PAGE, re.M)
    assert sorted(headings) == sorted(ENTRIES)


@pytest.mark.parametrize("formula", ENTRIES)
def test_an_entry_names_code_that_exists(formula: str) -> None:
    paths = re.findall(r"`(specviz\.[\w.]+)`", ENTRIES[formula])
    assert paths
    assert [path for path in paths if not _exists(path)] == []


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert _exists("specviz.trace")
    assert _exists("specviz.analysis.theory.tau.tau")
    assert not _exists("specviz.analysis.theory.tau.nothing")
    assert not _exists("specviz.nothing.tau")
