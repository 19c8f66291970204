"""Tokens in, tokens out: batched decoding under masks. Knows nothing of HTTP, never looks inside a schema.

The life of a request, one file a stage:

    config            how the engine is set up
    tokenizer         text <-> tokens, and the vocabulary that masks are decided over
    models/           new tokens in, logits out; the shipped models in embedded/, how they came about in training/
    sequence          what is asked, what comes back, and the records between
    compiler_pool     the request's schema, compiled off all other threads
    constraint        what binds one sequence: forced tokens, stop strings, ways to end
    sampling          logits and masks -> one token per row
    scheduler         who is in the next batch
    step              schedule, forward, mask, sample, advance
    runner            the thread that takes the steps; requests in and results out from any other
    stats, errors     counters; what can go wrong

A minimal use::

    engine = Engine(EngineConfig())
    engine.start()
    request = Request(prompts=((),), max_tokens=200, source=schema_source({"type": "integer"}))
    print(engine.generate_blocking("katagami-char", request).choices[0].text)
    engine.stop()

Threads: `Engine` may be called from any; all else belongs to the decode thread. Text depends on the request and its
seed, not on what else runs, up to near-ties: floating-point sums change with the size of the batch.
"""

from engine.config import EngineConfig
from engine.errors import (
    ContextLengthError,
    EngineFailedError,
    QueueFullError,
    RowDeadError,
    ShuttingDownError,
    UnknownModelError,
)
from engine.models.registry import LoadedModel, load_model
from engine.runner import Engine
from engine.sequence import Choice, Request, Result, Sampling, SchemaUse, StopReason, Timings
from engine.stats import EngineStats, StepCounters

__all__ = [
    "Choice",
    "ContextLengthError",
    "Engine",
    "EngineConfig",
    "EngineFailedError",
    "EngineStats",
    "LoadedModel",
    "QueueFullError",
    "Request",
    "Result",
    "RowDeadError",
    "Sampling",
    "SchemaUse",
    "ShuttingDownError",
    "StepCounters",
    "StopReason",
    "Timings",
    "UnknownModelError",
    "load_model",
]
