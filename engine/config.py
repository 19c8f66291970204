"""The engine's settings: read once, frozen, checked where they are built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine is set up.

    Attributes
    ----------
    model : str
        Name of a shipped model, or a folder.
    models : tuple of str
        More models beside `model`, served by the same engine.
    cache_folder : Path or None
        Where compiled schemas are stored; None keeps them in memory only.
    max_running : int
        Sequences (not requests) that one model decodes at the same time.
    max_queued : int
        Requests that may wait for a model beside those that have a slot; the next is refused.
    compile_workers : int
        Threads for schemas that are new.
    seed : int or None
        Where the seeds of requests without one come from; None takes fresh entropy.
    grace_s : float
        How long `Engine.stop` lets requests run on.
    """

    model: str = "katagami-char"
    models: tuple[str, ...] = ()
    cache_folder: Path | None = None
    max_running: int = 64
    max_queued: int = 256
    compile_workers: int = 2
    compile_timeout_s: float = 60.0
    default_max_tokens: int = 512
    seed: int | None = None
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_running", "max_queued", "compile_workers", "default_max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least 1")

    @property
    def model_names(self) -> tuple[str, ...]:
        """All models, the first one first, each once."""
        return tuple(dict.fromkeys((self.model, *self.models)))
