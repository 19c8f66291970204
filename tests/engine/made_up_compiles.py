"""Compile functions for worker processes, which import them by name: well-behaved ones, and others."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from schemas_cache import CompiledSchema, Finding, Limits, SchemaError, Source, Vocabulary, compile_source
from schemas_cache.work import spend


def by_constant(source: Source, vocabulary: Vocabulary, *, limits: Limits) -> CompiledSchema:
    """Do what the schema's constant says, then compile it as it is."""
    deed = source.content.get("const")
    DEEDS.get(deed, lambda: None)()
    return compile_source(source, vocabulary, limits=limits)


def sleep() -> None:
    """Sleep, and look at nothing."""
    time.sleep(600)


def count() -> None:
    """Work, and look at limits now and then."""
    while True:
        spend(1)


def count_slowly() -> None:
    """Work little, but for long: the clock ends it, not the counter."""
    while True:
        spend(5_000)
        time.sleep(0.01)


def die() -> None:
    """Be killed by the system."""
    os.kill(os.getpid(), signal.SIGKILL)


def hoard() -> None:
    """Take memory without end."""
    kept: list[Any] = []
    while True:
        kept.append(np.ones(1 << 20))


def refuse() -> None:
    """Refuse, for two reasons."""
    raise SchemaError([Finding("#/a", "if", "no", "yes"), Finding("#", "", "", is_note=True)])


def fail() -> None:
    """Have a bug."""
    raise KeyError("x")


DEEDS = {action.__name__: action for action in (sleep, count, count_slowly, die, hoard, refuse, fail)}
