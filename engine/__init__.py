"""Tokens in, tokens out: batched decoding under masks. Knows nothing of HTTP, never looks inside a schema.

The life of a request, one file a stage:

    config            how the engine is set up
    tokenizer         text <-> tokens, and the vocabulary that masks are decided over
    models/           new tokens in, logits out; the shipped models in embedded/, how they came about in training/
    request           what is asked, and what comes back
    sequence          the records between
    compile_worker, compile_process, compile_processes     compiling in processes of their own
    compiler_pool     the request's schema, compiled off all other threads
    budget            what a token limit leaves room for: documents that are ended in time
    forcing           text that a schema leaves no choice about, as tokens
    healing           prompts that end inside a token
    constraint        what binds one sequence: these two, stop strings, ways to end
    penalties, sampling                 logits and masks -> one token per row
    outputs, few_tokens, drawing        the same, with no more logits than the masks ask for
    logprobs          scores -> log-probabilities of single tokens
    places, diagnostics                 what the mask bent, field by field
    recorder          both for every token of an answer, forced ones too
    slots             who gets which memory of the model, and what it holds already
    scheduler         who is in the next batch
    feeding           which tokens of whom; long prompts in parts
    expander          states that nobody has visited yet, worked out beside the steps
    step              schedule, forward, mask, sample, advance
    retry             texts drawn freely and judged, instead of a mask
    delivery          what of an answer under way may be shown, and its events
    checks, admission what a model has room for; who is taken, who is late, when to come again
    in_flight         requests on their way, each taken and ended once
    judging           the trials that `retry` makes of them, judged on a thread beside
    decode_thread     the thread that takes the steps
    runner            the engine: requests in and results out, from any thread

`errors` and `stats`, what can go wrong and the counters, are free to all.

A minimal use::

    engine = Engine(EngineConfig())
    engine.start()
    request = Request(prompts=((),), max_tokens=200, source=schema_source({"type": "integer"}))
    print(engine.generate_blocking("katagami-char", request).choices[0].text)
    engine.stop()

Threads: `Engine` may be called from any. Sequences, decoders and models belong to the decode thread; beside it are
those of the compiler pool, of the expanders and of judging. Text depends on the request and its seed, not on what else
runs, up to near-ties: floating-point sums change with the size of the batch, unless it is `batch_invariant`.
"""

from engine.config import EngineConfig, compiling_cache
from engine.errors import (
    BudgetBelowMinimumError,
    CacheTooSmallError,
    ContextLengthError,
    DeadlineExceededError,
    EngineFailedError,
    QueueFullError,
    RowDeadError,
    ShuttingDownError,
    UnknownModelError,
)
from engine.models.registry import LoadedModel, load_model
from engine.request import (
    Attempts,
    Choice,
    Delta,
    Diagnostics,
    FieldMass,
    OnLimit,
    Ready,
    Request,
    Result,
    Retry,
    Sampling,
    SchemaUse,
    StopReason,
    StreamEvent,
    Timings,
    TokenLogprobs,
    Worst,
)
from engine.runner import Engine
from engine.stats import EngineStats, StepCounters

__all__ = [
    "Attempts",
    "BudgetBelowMinimumError",
    "CacheTooSmallError",
    "Choice",
    "ContextLengthError",
    "DeadlineExceededError",
    "Delta",
    "Diagnostics",
    "Engine",
    "EngineConfig",
    "EngineFailedError",
    "EngineStats",
    "FieldMass",
    "LoadedModel",
    "OnLimit",
    "QueueFullError",
    "Ready",
    "Request",
    "Result",
    "Retry",
    "RowDeadError",
    "Sampling",
    "SchemaUse",
    "ShuttingDownError",
    "StepCounters",
    "StopReason",
    "StreamEvent",
    "Timings",
    "TokenLogprobs",
    "UnknownModelError",
    "Worst",
    "compiling_cache",
    "load_model",
]
