"""The life of a request: the mutable records between what is asked and what comes back.

In: `Request`. Out: `Result`. Between the two a `Job` follows the request and a `Sequence` each of its answers. Cost:
none of its own.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.request import (
    Choice,
    Diagnostics,
    Request,
    Result,
    SchemaUse,
    StopReason,
    Timings,
    TokenLogprobs,
)
from schemas_cache import Lookup, Matcher


@dataclass(slots=True, eq=False)
class Job:
    """A request on its way; once it is queued for decoding only the decode thread touches it.

    `future` may be cancelled from any thread at any time. Times are seconds of one monotonic clock.
    """

    request: Request
    future: Future[Result]
    seed: int
    submitted_s: float
    lookup: Lookup | None = None  # set by the compiler pool, before queueing
    ready_s: float = 0.0
    started_s: float | None = None  # its first sequence was scheduled
    prefilled_s: float | None = None  # its first token was there
    sequences: list[Sequence] = field(default_factory=list)  # set when it is queued
    unfinished: int = 0  # how many of them are under way


@dataclass(frozen=True, slots=True, eq=False)
class Healing:
    """The end of a prompt that is given back, to be drawn anew together with what follows."""

    tokens: tuple[int, ...]  # at least one
    data: bytes  # what they spell
    allowed: NDArray[np.uint32]  # uint32 (W,): the first of them, and those that begin with `data` and go on


@dataclass(slots=True, eq=False)
class Sequence:
    """One answer under way: a row of the batch while it has a slot. Belongs to the decode thread."""

    job: Job
    index: int  # prompt-major: prompt * n + choice
    matcher: Matcher | None  # None: free text
    limit: int  # most tokens it may have
    limit_reason: StopReason  # what it is called when it reaches them
    stops: tuple[bytes, ...]
    pending: list[int]  # tokens that the model has not seen: first the prompt
    attempt: int = 0  # at this answer, counted from 0
    slot: int = 0  # given by the scheduler; of meaning while it runs
    token_ids: list[int] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)  # what the tokens spell
    text_bytes: int | None = None  # how much of `data` is text, where a stop string cut it
    healing: Healing | None = None  # what of its prompt is still to be drawn anew
    stop_reason: StopReason | None = None  # set when it is over
    stop_sequence: str | None = None
    complete: bool = False
    error: Exception | None = None  # set when it failed instead
    model_calls: int = 0
    cached_tokens: int = 0  # of its prompt, those that the model had seen before
    forced_tokens: int = 0
    closes: bool = False  # it is led to its end before it reaches its limit
    closed_early: bool = False  # that changed the text
    logprobs: list[TokenLogprobs] = field(default_factory=list)  # parallel to `token_ids`, where they were asked for
    prompt_logprobs: list[TokenLogprobs | None] = field(default_factory=list)  # parallel to the prompt, likewise
    diagnostics: Diagnostics | None = None  # set when it is over, where they were asked for

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids that it answers to."""
        return self.job.request.prompts[self.index // self.job.request.n]

    @property
    def over(self) -> bool:
        """Whether it has come to an end, good or bad."""
        return self.stop_reason is not None or self.error is not None

    @property
    def stream(self) -> int:
        """Which of the request's random streams it draws from: one for each attempt at each answer."""
        request = self.job.request
        return self.index + self.attempt * len(request.prompts) * request.n

    @property
    def tokens_left(self) -> int:
        """How many more tokens it may have."""
        return self.limit - len(self.token_ids)


def room_for(prompt: tuple[int, ...], max_tokens: int, context_length: int) -> int:
    """How many tokens an answer to this prompt may have."""
    return min(max_tokens, context_length - len(prompt))


def sequences_of(job: Job, context_length: int) -> Iterator[Sequence]:
    """The sequences of a request whose schema is ready, prompt-major."""
    request = job.request
    compiled = None if job.lookup is None or request.retry is not None else job.lookup.compiled
    stops = tuple(stop.encode("utf-8") for stop in request.sampling.stop)
    for number, prompt in enumerate(request.prompts):
        limit = room_for(prompt, request.max_tokens, context_length)
        reason: StopReason = "max_tokens" if limit == request.max_tokens else "model_context_window_exceeded"
        for choice in range(request.n):
            yield Sequence(
                job=job,
                index=number * request.n + choice,
                matcher=None if compiled is None else compiled.matcher(),
                limit=limit,
                limit_reason=reason,
                stops=stops,
                pending=list(prompt),
            )


def whole_characters(data: bytes | bytearray) -> str:
    """Text of the bytes without an incomplete character at the end; U+FFFD for what is not UTF-8."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(data), final=False)


def choice_of(row: Sequence) -> Choice:
    """The answer of a sequence that stopped without an error."""
    if row.stop_reason is None:
        raise ValueError("the sequence is still under way")
    return Choice(
        index=row.index,
        text=whole_characters(row.data[: row.text_bytes]),
        token_ids=tuple(row.token_ids),
        stop_reason=row.stop_reason,
        stop_sequence=row.stop_sequence,
        complete=row.complete,
        model_calls=row.model_calls,
        forced_tokens=row.forced_tokens,
        closed_early=row.closed_early,
        logprobs=None if row.job.request.logprobs is None else tuple(row.logprobs),
        prompt_logprobs=tuple(row.prompt_logprobs) if row.job.request.prompt_logprobs else None,
        diagnostics=row.diagnostics,
    )


def schema_use_of(lookup: Lookup) -> SchemaUse:
    """What the response says about the compiled schema."""
    compiled = lookup.compiled
    return SchemaUse(
        schema_hash=compiled.schema_hash,
        cache=lookup.tier,
        compile_ms=lookup.compile_ms,
        minimum_tokens=compiled.minimum_tokens,
        warnings=compiled.warnings,
        enforced=compiled.enforced,
    )


def result_of(job: Job, choices: Iterable[Choice], now_s: float) -> Result:
    """The result of a request with these answers, done now (seconds, the job's clock)."""
    started_s = now_s if job.started_s is None else job.started_s
    prefilled_s = started_s if job.prefilled_s is None else job.prefilled_s
    choices = tuple(choices)
    return Result(
        choices=choices,
        prompt_tokens=sum(len(prompt) for prompt in job.request.prompts),
        completion_tokens=sum(len(choice.token_ids) for choice in choices),
        schema=None if job.lookup is None else schema_use_of(job.lookup),
        timings=Timings(
            queue_ms=(started_s - job.ready_s) * 1e3,
            prefill_ms=(prefilled_s - started_s) * 1e3,
            decode_ms=(now_s - prefilled_s) * 1e3,
        ),
        cached_tokens=sum(
            row.cached_tokens for row in job.sequences if row.index % job.request.n == 0 and row.attempt == 0
        ),
    )


def prewarmed(job: Job, context_length: int, now_s: float) -> Result:
    """The result of a request of no tokens, once its schema is compiled (seconds, the job's clock)."""
    rows = list(sequences_of(job, context_length))
    for row in rows:
        row.stop_reason, row.complete = "max_tokens", row.matcher is not None and row.matcher.accepting
    return result_of(job, map(choice_of, rows), now_s)
