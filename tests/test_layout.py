"""The repository's listing is its table of contents: nothing lies about, and what must be there is."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {
    *("app", "engine", "schemas_cache", "tests", "docs"),
    *("README.md", "LICENSE", "CHANGELOG.md", "Makefile", "pyproject.toml"),
    *("Dockerfile", "docker-compose.yml", ".dockerignore", ".ci", ".gitignore"),
}
PACKAGES = ("app", "engine", "schemas_cache")
NAMED_AS_THEIR_TASK = {"app.cli", "app.routes"}  # a file a command, a file a group of routes
COMES_WITH = {"pydantic_core": "pydantic"}  # which pins it
LARGEST_FILE_BYTES = 1_000_000
EMBEDDED_LIMIT_BYTES = 3_000_000


def repository_files() -> list[Path]:
    """Files of the repository, committed or about to be; skips where this is no git checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in listing.split("\0") if name and (ROOT / name).exists()]


def test_the_top_level_is_what_is_listed_here() -> None:
    """No entry but the known ones, and all of them."""
    assert {path.parts[0] for path in repository_files()} == TOP_LEVEL


def test_no_file_is_large() -> None:
    """Models apart, a repository is text."""
    assert [str(path) for path in repository_files() if (ROOT / path).stat().st_size > LARGEST_FILE_BYTES] == []


def test_the_shipped_models_are_small() -> None:
    """Everything in `engine/embedded` together stays below 3 MB."""
    sizes = [path.stat().st_size for path in (ROOT / "engine" / "embedded").rglob("*") if path.is_file()]
    assert 0 < sum(sizes) < EMBEDDED_LIMIT_BYTES


def test_the_packages_say_that_they_are_typed() -> None:
    """Each package that is installed has a `py.typed`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == list(PACKAGES)
    assert all((ROOT / package / "py.typed").is_file() for package in packages)


def modules_untold() -> list[str]:
    """Files and packages that the docstring of the package around them does not name."""
    untold = []
    for init in [path for package in PACKAGES for path in sorted((ROOT / package).rglob("__init__.py"))]:
        package = ".".join(init.parent.relative_to(ROOT).parts)
        told = re.findall(r"\w+", ast.get_docstring(ast.parse(init.read_text("utf-8"))) or "")
        files = [path.stem for path in init.parent.glob("*.py") if path != init]
        packages = [path.parent.name for path in init.parent.glob("*/__init__.py")]
        if package not in NAMED_AS_THEIR_TASK:
            untold += [f"{package}.{name}" for name in sorted(files + packages) if name not in told]
    return untold


def imported_distributions() -> set[str]:
    """Distributions that the three packages import, by their names on the index."""
    trees = [ast.parse(path.read_text("utf-8")) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    foreign = {name.split(".")[0] for name in names} - {*PACKAGES, *sys.stdlib_module_names}
    known = packages_distributions()
    return {known[COMES_WITH.get(name, name)][0].lower().replace("_", "-") for name in foreign}


def test_each_package_tells_of_all_its_files() -> None:
    """A package's docstring names every file in it, so that the order of the work can be read there."""
    assert modules_untold() == []


def test_the_dependencies_are_what_is_imported() -> None:
    """No import of another's dependency, and no dependency that nothing imports."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = {re.split(r"[<>=;\[ ]", requirement)[0] for requirement in project["dependencies"]}
    assert declared == imported_distributions()


def test_ci_runs_what_people_run() -> None:
    """`.ci/run` can be executed and calls `make test`."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text("utf-8").rstrip().endswith("make test")


def test_the_changelog_knows_the_version() -> None:
    """The version in `pyproject.toml` has a section in the changelog."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
