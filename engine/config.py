"""The engine's settings, read once, frozen, checked where they are built; and the cache that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from schemas_cache import CompiledSchema, SchemaCache, compile_source
from schemas_cache.disk import SIZE_LIMIT_BYTES
from schemas_cache.limits import DEFAULT_LIMITS, Limits
from schemas_cache.memory import MEMORY_BYTES
from schemas_cache.store import CompileFunction

KV_CACHE_BYTES = 3 * 2**29  # 34,952 tokens of SmolLM2: 32 sequences of 1,024, in 2.3 GB with its weights


@dataclass(frozen=True, slots=True)
class FastPath:
    """What is left out of the work, each of it a switch: what it brings can be measured, the texts stay the same.

    They matter to models with a KV cache and a large vocabulary only.

    Attributes
    ----------
    few_logits : bool
        A row whose mask allows few tokens gets the logits of those alone.
    prefix_reuse : bool
        A sequence begins with what the cache holds of its tokens. Off where `batch_invariant`, since a token's keys and
        values are then not those that the sequence would compute alone, down to the last bit.
    prefill_chunk_tokens : int or None
        Most tokens of prompts in a step in which others decode; None feeds prompts whole. From 64 on a prompt's token
        costs no more than in larger parts (SmolLM2: 2.5 ms beside one row, 2.2 beside eight); a step of eight rows
        takes 192 ms with it instead of 51, and would take 683 with 256.
    """

    few_logits: bool = True
    prefix_reuse: bool = True
    prefill_chunk_tokens: int | None = 64

    def __post_init__(self) -> None:
        if self.prefill_chunk_tokens is not None and self.prefill_chunk_tokens < 1:
            raise ValueError(f"prefill_chunk_tokens is {self.prefill_chunk_tokens}; it has to be at least 1")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine is set up.

    Attributes
    ----------
    model : str
        Name of a model, or the path of a file or folder, as for `load_model`.
    models : tuple of str
        More models beside `model`, served by the same engine.
    home : Path or None
        Where the models folder is, and prepared copies of weights; None for the platform's.
    kv_cache_bytes : int
        Most memory for the KV cache of each model that has one.
    cache_folder : Path or None
        Where compiled schemas are stored; None keeps them in memory only.
    max_running : int
        Sequences (not requests) that one model decodes at the same time.
    max_queued : int
        Requests that may wait for a model beside those that have a slot; the next is refused.
    compile_workers : int
        Processes for schemas that are new; one is started with the engine, the others when there is work for them.
    compile_timeout_s : float
        Most seconds for one schema.
    cache_size_limit_bytes, cache_memory_limit_bytes : int
        Bounds of compiled schemas on disk and in memory; those used longest ago go first.
    max_states, max_frames, max_table_bytes, max_compile_work, max_state_work : int
        Bounds for each schema, as in `schemas_cache.Limits`.
    seed : int or None
        Where the seeds of requests without one come from; None takes fresh entropy.
    grace_s : float
        How long `Engine.stop` lets requests run on.
    batch_invariant : bool
        Whether the logits of a sequence are bit for bit the same whatever else runs, so that greedy text is too. Costs
        a part of the speed: matrix products are taken in small tiles of fixed shape (`models.tiles`).
    fast_path : FastPath
        Switches for measurements.
    """

    model: str = "katagami-char"
    models: tuple[str, ...] = ()
    home: Path | None = None
    kv_cache_bytes: int = KV_CACHE_BYTES
    cache_folder: Path | None = None
    cache_size_limit_bytes: int = SIZE_LIMIT_BYTES
    cache_memory_limit_bytes: int = MEMORY_BYTES
    max_running: int = 64
    max_queued: int = 256
    compile_workers: int = 2
    compile_timeout_s: float = 60.0
    max_states: int = DEFAULT_LIMITS.max_states
    max_frames: int = DEFAULT_LIMITS.max_frames
    max_table_bytes: int = DEFAULT_LIMITS.max_memory_bytes
    max_compile_work: int = DEFAULT_LIMITS.max_work
    max_state_work: int = DEFAULT_LIMITS.max_expansion_work
    seed: int | None = None
    grace_s: float = 30.0
    batch_invariant: bool = False
    fast_path: FastPath = FastPath()

    def __post_init__(self) -> None:
        for name in ("max_running", "max_queued", "compile_workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least 1")

    @property
    def limits(self) -> Limits:
        """Bounds of each schema."""
        return Limits(
            max_states=self.max_states,
            max_frames=self.max_frames,
            max_memory_bytes=self.max_table_bytes,
            max_work=self.max_compile_work,
            max_expansion_work=self.max_state_work,
            compile_timeout_s=self.compile_timeout_s,
        )

    @property
    def model_names(self) -> tuple[str, ...]:
        """All models, the first one first, each once."""
        return tuple(dict.fromkeys((self.model, *self.models)))


def compiling_cache(config: EngineConfig, compile_function: CompileFunction = compile_source) -> SchemaCache:
    """Compiled schemas, with the engine's limits for compiles and for what is learnt afterwards."""
    limits = config.limits
    return SchemaCache(
        config.cache_folder,
        limits=limits,
        memory_bytes=config.cache_memory_limit_bytes,
        size_limit_bytes=config.cache_size_limit_bytes,
        compile_function=compile_function,
        load_function=partial(CompiledSchema.load, limits=limits),
    )
