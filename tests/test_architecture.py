"""The import graph of the sources, held to the list of rooms in docs/architecture.md.

Imports inside functions count, and so does `importlib.import_module` with a constant name. Imports for type
checkers only do not.
"""

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import novidgp

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "src"
PAGE = REPOSITORY / "docs" / "architecture.md"
LAZY = novidgp._HOMES | novidgp._MODULES
"""Where the names are that `novidgp` exports lazily."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in (SOURCES / "novidgp").rglob("*.py")}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, except what only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield other
                yield from statements(other)
        else:
            yield node
            yield from statements(node)


def imported_names(source: str, module: str, *, package: bool) -> set[str]:
    """Everything of novidgp that a module imports, by its full dotted name."""
    names = set()
    for node in statements(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=base, names=aliases, level=level):
                if level:
                    parents = module.split(".")
                    above = parents[: len(parents) - level + package]
                    base = ".".join([*above, *([base] if base else [])])
                names |= {f"{base}.{alias.name}" for alias in aliases}
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                if ast.unparse(function).endswith("import_module"):
                    names.add(name)
    return {name for name in names if name.split(".")[0] == "novidgp"}


def owner(name: str) -> str:
    """The module that a dotted name is in."""
    root, _, rest = name.partition(".")
    if rest in LAZY and name not in MODULES:
        return LAZY[rest]
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name or root


@functools.cache
def graph() -> dict[str, set[str]]:
    """Modules, and the modules that they import."""
    edges = {}
    for module, path in MODULES.items():
        names = imported_names(path.read_text(), module, package=path.stem == "__init__")
        edges[module] = {owner(name) for name in names} - {module}
    return edges


def rooms(page: str) -> list[str]:
    """The names in the page's block `text rooms`, from the lowest to the highest."""
    block = re.search(r"^```text rooms\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert block is not None, "the page has no block ```text rooms"
    lines = block.group(1).splitlines()
    assert all(re.fullmatch(r"\w+: \S.*", line) for line in lines), lines
    return [line.split(":")[0] for line in lines]


def room(module: str) -> str:
    """The package or module directly below novidgp that a module is in."""
    return module.split(".")[1]


ROOMS = rooms(PAGE.read_text())
OUTSIDE = {"novidgp", "novidgp.__main__"}
"""The lazy exports, and `python -m novidgp`."""


def test_every_package_and_module_is_a_room_of_the_page():
    assert sorted(ROOMS) == sorted({room(module) for module in MODULES.keys() - OUTSIDE})


@pytest.mark.parametrize("name", ROOMS)
def test_nothing_imports_from_a_higher_room(name):
    rank = {room: index for index, room in enumerate(ROOMS)}
    wrong = [
        f"{module} imports {other}"
        for module, others in graph().items()
        if module not in OUTSIDE and room(module) == name
        for other in others - {"novidgp"}
        if other in OUTSIDE or rank[room(other)] > rank[name]
    ]
    assert not wrong


def test_no_module_imports_itself_through_others():
    """`CycleError` names the modules of a cycle."""
    order = list(graphlib.TopologicalSorter(graph()).static_order())
    assert set(order) == set(MODULES)


def test_the_package_itself_imports_nothing_and_is_imported_for_its_version_only():
    """`import novidgp` alone stays quick."""
    importers = {module for module, others in graph().items() if "novidgp" in others}
    for module in importers:
        names = imported_names(
            MODULES[module].read_text(), module, package=MODULES[module].stem == "__init__"
        )
        own = {name for name in names if owner(name) == "novidgp"}
        assert own <= {"novidgp", "novidgp.__version__"}, module
    assert not graph()["novidgp"]


# --- the reader of imports itself -------------------------------------------------------------------


def test_imports_are_found_wherever_they_are():
    source = """
import novidgp.storage
from novidgp.model import dgp
from . import run
from ..messages import unknown
import numpy
if TYPE_CHECKING:
    from novidgp import cli
else:
    from novidgp import checks
def function():
    from novidgp.inference import NOVI
    importlib.import_module("novidgp.tables.read")
    print("novidgp.bench")
"""
    found = imported_names(source, "novidgp.training.loop", package=False)
    assert found == {
        "novidgp.storage",
        "novidgp.model.dgp",
        "novidgp.training.run",
        "novidgp.messages.unknown",
        "novidgp.checks",
        "novidgp.inference.NOVI",
        "novidgp.tables.read",
    }
    assert imported_names("from . import a", "novidgp.x", package=True) == {"novidgp.x.a"}
    assert owner("novidgp.inference.NOVI") == "novidgp.inference"
    assert owner("novidgp.DGPRegressor") == "novidgp.estimators"


def test_the_list_of_rooms_is_read_from_the_page():
    assert rooms("x\n```text rooms\na: b\nc: d: e\n```\ny\n```text\nf: g\n```\n") == ["a", "c"]
