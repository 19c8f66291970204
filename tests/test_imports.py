"""Imports point down: app, engine, schemas_cache, libraries; and inside a package, to earlier stages only."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("schemas_cache", "engine", "app")  # each may import itself and what stands before it

Sources = dict[str, str]  # module name to source text


def read_sources() -> Sources:
    """All modules of the three packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {module_name(path.relative_to(ROOT)): path.read_text("utf-8") for path in paths}


def module_name(path: Path) -> str:
    """`a/b.py` is `a.b`, `a/__init__.py` is `a`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(name: str, sources: Sources) -> list[tuple[str, int]]:
    """Modules that a module imports, wherever in it, with line numbers; a submodule counts as itself."""
    found = []
    for node in ast.walk(ast.parse(sources[name])):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            inner = [(f"{base}.{alias.name}", node.lineno) for alias in node.names]
            found += [pair if pair[0] in sources else (base, node.lineno) for pair in inner]
    return found


def upward(sources: Sources) -> list[str]:
    """Imports from a package that stands above."""
    faults = []
    for name in sources:
        above = PACKAGES[PACKAGES.index(name.split(".")[0]) + 1 :]
        found = [pair for pair in imports(name, sources) if pair[0].split(".")[0] in above]
        faults += [f"{name}, line {line}: imports {target}" for target, line in found]
    return faults


def hidden(sources: Sources) -> list[str]:
    """Imports anywhere but at the top of a module, and relative ones, which the other checks would not see."""
    faults = []
    for name, text in sources.items():
        tree = ast.parse(text)
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        inside = [node for node in nodes if node not in tree.body]
        relative = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level]
        faults += [f"{name}, line {node.lineno}" for node in {*inside, *relative}]
    return sorted(faults)


def cycle(sources: Sources) -> list[str]:
    """One cycle among the modules, if there is any."""
    graph = {name: {target for target, _ in imports(name, sources) if target in sources} for name in sources}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_import_points_up() -> None:
    """`schemas_cache` knows no `engine`, and `engine` no `app`."""
    assert upward(read_sources()) == []


def test_no_import_is_hidden() -> None:
    """All imports stand at the top of their module, by full name."""
    assert hidden(read_sources()) == []


def test_no_modules_import_each_other() -> None:
    """The modules have an order in which each imports earlier ones only."""
    assert cycle(read_sources()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("schemas_cache.nfa", "import engine.step"),
        ("schemas_cache.nfa", "from app import main"),
        ("engine.step", "if True:\n    from app.main import create_app"),
    ],
)
def test_an_import_that_points_up_is_found(name: str, text: str) -> None:
    """The check itself: an upward import in any form is named with its line."""
    assert upward({name: text, "app.main": ""})[0].startswith(f"{name}, line ")


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import json",
        "class C:\n    import json",
        "try:\n    import json\nfinally: pass",
        "from . import x",
    ],
)
def test_a_hidden_import_is_found(text: str) -> None:
    """The check itself: imports in functions, classes and blocks, and relative ones, are named."""
    assert len(hidden({"engine.step": text})) == 1


def test_a_cycle_is_found() -> None:
    """The check itself: a cycle is named, through a package's own file too."""
    sources = {
        "engine": "from engine import step",
        "engine.step": "from engine.kv import Slot",
        "engine.kv": "import engine",
    }
    assert sorted(set(cycle(sources))) == ["engine", "engine.kv", "engine.step"]
