"""Counters and timings of the engine, and snapshots of them.

In: what happened, counted where it happens. Out: `EngineStats`, frozen. Cost: a few additions per step. Counters that
the decode thread alone writes need no lock; the others have one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(slots=True)
class StepCounters:
    """What one model's steps came to; written by the decode thread alone, only ever growing."""

    steps: int = 0
    rows: int = 0  # rows of all forward passes
    prompt_tokens: int = 0  # held ones too
    sampled_tokens: int = 0
    forced_tokens: int = 0
    interventions: int = 0  # draws from whole rows of logits whose best token the schema's mask forbade
    forward_s: float = 0.0
    mask_s: float = 0.0
    sample_s: float = 0.0
    advance_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine at one moment.

    Attributes
    ----------
    queued : int
        Requests taken of which no sequence has begun.
    running : int
        Sequences that have a slot now.
    submitted, completed, failed, cancelled, refused : int
        Requests since the start; `refused` are those for which there was no place in the queue.
    steps : mapping of model name to StepCounters
    """

    queued: int
    running: int
    submitted: int
    completed: int
    failed: int
    cancelled: int
    refused: int
    steps: Mapping[str, StepCounters]


class RequestCounters:
    """How many requests came to what; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("submitted", "completed", "failed", "cancelled", "refused"), 0)

    def add(self, name: str) -> None:
        """Count one."""
        with self._lock:
            self._counts[name] += 1

    def snapshot(self) -> dict[str, int]:
        """Return a copy of all counts."""
        with self._lock:
            return dict(self._counts)


def copy_of(counters: StepCounters) -> StepCounters:
    """Return a copy that stands still."""
    return StepCounters(**{entry.name: getattr(counters, entry.name) for entry in fields(counters)})
