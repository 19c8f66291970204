"""The article's own figures, for ours to stand beside.

In: published.toml. Out: `beside`, which makes a `Figure` of one of ours. Cost: the file is read once.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from app.bench.article.report import Figure, Unit


def beside(key: str, ours: float) -> Figure:
    """Our number beside the article's; `key` is section and name, `retry.longest` for example."""
    section, name = key.split(".")
    entry = _sections()[section][name]
    return Figure(key, entry["label"], entry["unit"], ours, entry["value"], _sections()[section]["where"])


def alone(key: str, label: str, unit: Unit, ours: float) -> Figure:
    """Our number where the article has none."""
    return Figure(key, label, unit, ours)


def published(key: str) -> float:
    """The article's number."""
    section, name = key.split(".")
    return float(_sections()[section][name]["value"])


def published_rows(section: str) -> dict[int, list[float]]:
    """The article's table of a series, by what is varied."""
    return {int(key): row for key, row in _sections()[section].items() if key != "where"}


@cache
def _sections() -> dict[str, dict[str, Any]]:
    return tomllib.loads((resources.files(__package__) / "published.toml").read_text("utf-8"))
