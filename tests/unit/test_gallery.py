"""The gallery has everything: a script per public figure and widget, each of them in its table."""

from __future__ import annotations

import ast
import importlib
import runpy
from pathlib import Path

import plotly.graph_objects as go
import pytest

from specviz import figures, widgets
from specviz.widgets import Widget

HOME = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(path for path in HOME.glob("*.py") if path.stem != "build")
WIDGETS = [
    each
    for each in (getattr(widgets, name) for name in widgets.__all__)
    if isinstance(each, type) and issubclass(each, Widget) and each is not Widget
]


def used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_every_public_figure_and_widget_has_a_script_that_uses_it() -> None:
    wanted = {name: name for name in figures.__all__}
    wanted |= {each.__module__.rpartition(".")[2]: each.__name__ for each in WIDGETS}
    found = {path.stem: used(ast.parse(path.read_text())) for path in SCRIPTS}
    assert found.keys() == wanted.keys()
    assert [stem for stem, name in wanted.items() if name not in found[stem]] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_titled_and_imports_what_exists(path: Path) -> None:
    tree = ast.parse(path.read_text())
    title, gap, line, *more = (ast.get_docstring(tree) or "").splitlines()
    assert title, "no title"
    assert line, "no line under the title"
    assert not gap + "".join(more)
    assert len(path.read_text().splitlines()) <= 22
    makes = "figure" if path.stem.startswith("plot_") else "widget"
    last = tree.body[-1]
    assert makes in {node.id for node in ast.walk(last) if isinstance(node, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert [a.name for a in node.names if not hasattr(module, a.name)] == []


def test_the_table_is_what_build_writes_and_its_pictures_exist_and_are_small() -> None:
    build = runpy.run_path(str(HOME / "build.py"), run_name="build")
    table = build["readme"]()
    assert (HOME / "README.md").read_text(encoding="utf-8") == table
    for path in SCRIPTS:
        assert f"({path.name})" in table
        assert 0 < path.with_suffix(".png").stat().st_size < build["LARGEST"]
    assert sum(path.stat().st_size for path in HOME.iterdir() if path.is_file()) < 3_000_000


@pytest.mark.parametrize("stem", ["plot_length_by_k", "claim_audit"])
def test_a_script_makes_its_picture(stem: str) -> None:
    made = runpy.run_path(str(HOME / f"{stem}.py"))
    figure = made["widget"].figure if "widget" in made else made["figure"]
    assert isinstance(figure, go.Figure)
    assert figure.layout.title.text
