"""The rules of the house, held by the import graph and not by good will."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "specviz"
MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
}
ENGINE_LIBRARIES = {"torch", "transformers", "exllamav3", "accelerate", "safetensors", "gguf"}
ENGINE_WING = ("specviz.engine", "specviz.targets", "specviz.drafters", "specviz.training")
#: What ties names to both wings, and so may import from either when called.
ENTRANCES = (
    "specviz",
    "specviz.cli",
    "specviz.campaign",
    "specviz.trials",
    "specviz.zoo",
    "specviz.embedded",
    "specviz.doctor_report",
    "specviz.doctor_target",
    "specviz.exl3",
    "specviz.exl3.checks",
    "specviz.exl3.folders",
    "specviz.exl3.images",
    "specviz.exl3.load",
    "specviz.exl3.observe",
    "specviz.exl3.pairs",
    "specviz.exl3.placing",
    "specviz.exl3.recorder",
)
#: Reading rooms from the street inwards: a room imports from its own or a later one only.
ROOMS = [
    "specviz.course",
    "specviz.reporting",
    "specviz.widgets",
    "specviz.figures",
    "specviz.analysis",
    "specviz.trace",
]
READING = tuple(
    name for name in MODULES if not name.startswith(ENGINE_WING) and name not in ENTRANCES
)


def imports(name: str) -> set[str]:
    """Modules that a module imports, names of `from` imports included."""
    found: set[str] = set()
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} uses a relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def room(name: str) -> str | None:
    return next((r for r in ROOMS if name == r or name.startswith(r + ".")), None)


@pytest.mark.parametrize("name", READING)
def test_the_reading_wing_never_imports_an_engine_library(name: str) -> None:
    heads = {module.split(".")[0] for module in imports(name)}
    assert not heads & ENGINE_LIBRARIES
    assert not [module for module in imports(name) if module.startswith(ENGINE_WING)]


@pytest.mark.parametrize("name", [n for n in MODULES if room(n)])
def test_arrows_point_one_way(name: str) -> None:
    place = ROOMS.index(room(name) or "")
    for module in imports(name):
        other = room(module)
        assert other is None or ROOMS.index(other) >= place, f"{name} imports {module}"


@pytest.mark.parametrize("name", [n for n in MODULES if n.startswith(ENGINE_WING)])
def test_the_engine_knows_no_plot(name: str) -> None:
    heads = {module.split(".")[0] for module in imports(name)}
    assert not heads & {"plotly", "ipywidgets", "anywidget"}
    for module in imports(name):
        assert room(module) in (None, "specviz.trace"), f"{name} imports {module}"


def test_the_engine_wing_has_its_own_order() -> None:
    """Entrances above exl3 above drafters above targets above engine."""
    order = ["specviz.engine", "specviz.targets", "specviz.drafters", "specviz.exl3"]
    above = (
        "specviz.zoo",
        "specviz.campaign",
        "specviz.trials",
        "specviz.cli",
        "specviz.doctor_report",
        "specviz.doctor_target",
    )
    for name in MODULES:
        place = next((i for i, wing in enumerate(order) if name.startswith(wing)), None)
        if place is None:
            continue
        for module in imports(name):
            assert not module.startswith((*order[place + 1 :], *above)), f"{name}: {module}"


def test_targets_know_no_drafter_and_drafters_no_policy() -> None:
    for name in MODULES:
        if name.startswith("specviz.targets"):
            assert not [m for m in imports(name) if m.startswith("specviz.drafters")], name
        if name.startswith("specviz.drafters"):
            policies = {m for m in imports(name) if m.startswith("specviz.policies.")}
            assert policies <= {"specviz.policies.Plan", "specviz.policies.DraftView"}, name


def test_no_circle_among_modules() -> None:
    graph = {name: {m for m in imports(name) if m in MODULES and m != name} for name in MODULES}
    graph["specviz"] = set()  # the facade names everything, and imports it when asked
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != 1, f"circle: {' -> '.join((*trail, name))}"
        if state.get(name) == 2:
            return
        state[name] = 1
        for module in graph[name]:
            visit(module, (*trail, name))
        state[name] = 2

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("name", MODULES)
def test_no_file_has_two_jobs(name: str) -> None:
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= 400


def test_the_facade_is_light() -> None:
    code = (
        "import sys, time; t = time.perf_counter(); import specviz; "
        "print(time.perf_counter() - t, [m for m in ('torch', 'pandas', 'plotly', 'transformers')"
        " if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split(maxsplit=1)
    assert float(out[0]) < 0.5
    assert out[1].strip() == "[]"


def test_every_name_of_the_facade_is_there() -> None:
    import specviz

    for name in specviz.__all__:
        assert callable(getattr(specviz, name)), name
    assert set(specviz.__all__) <= set(dir(specviz))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = specviz.nothing_here


def test_the_reading_wing_works_without_torch() -> None:
    code = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "import specviz as sv; sv.replay, sv.optimal_k, sv.report, sv.load_trace, sv.CostModel"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_bare_words_acceptance_rate_appear_nowhere() -> None:
    words = "acceptance" + " rate"
    places = [*PACKAGE.rglob("*.py"), *(ROOT / "notebooks").rglob("*.ipynb")]
    assert not [p for p in places if words in p.read_text(encoding="utf-8").lower()]
