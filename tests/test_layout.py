"""The repository's listing is its table of contents: nothing lies about, and what must be there is."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {
    *("app", "engine", "schemas_cache", "tests", "docs"),
    *("README.md", "LICENSE", "CHANGELOG.md", "Makefile", "pyproject.toml"),
    *("Dockerfile", "docker-compose.yml", ".dockerignore", ".ci", ".gitignore"),
}
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
    assert packages == ["app", "engine", "schemas_cache"]
    assert all((ROOT / package / "py.typed").is_file() for package in packages)


def test_ci_runs_what_people_run() -> None:
    """`.ci/run` can be executed and calls `make test`."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text("utf-8").rstrip().endswith("make test")


def test_the_changelog_knows_the_version() -> None:
    """The version in `pyproject.toml` has a section in the changelog."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
