"""The life of a request: what is asked (frozen), what comes back (frozen), and the mutable records between.

In: `Request`, built by a front end. Out: `Result`, with one `Choice` for each sequence. Between the two a `Job` follows
the request and a `Sequence` each of its answers. Cost: none of its own.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from schemas_cache import Finding, Lookup, Matcher, Source

StopReason = Literal[
    "end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded", "refusal", "max_attempts"
]
OnLimit = Literal["close", "truncate", "error"]
"""What the token limit does to a text that a schema binds. close: it is led to its end in time, where the limit leaves
room for any document at all. error: the same, and a request whose limit does not is refused. truncate: it is cut."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one token is drawn; the mask comes before all of it."""

    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0  # 0 < x <= 1
    top_k: int = 0  # 0: off
    min_p: float = 0.0  # 0: off
    seed: int | None = None  # None: fresh entropy
    stop: tuple[str, ...] = ()  # applied to the text, also inside JSON strings; not part of the result
    presence_penalty: float = 0.0  # taken off the logit of each token that the text has
    frequency_penalty: float = 0.0  # the same, for each time that it has it
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, what is added to its logit); before the mask


@dataclass(frozen=True, slots=True)
class Retry:
    """Text is drawn freely, and again until one is what the source asks for."""

    max_attempts: int  # at each answer
    is_valid: Callable[[str], bool | None]  # an independent validator; None: it cannot say


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: some prompts, how many answers to each, and what the answers must be."""

    prompts: tuple[tuple[int, ...], ...]  # token ids; an empty prompt starts a text
    max_tokens: int
    n: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    source: Source | None = None  # None: free text
    compile_timeout_s: float | None = None  # None: the engine's own
    jump_forward: bool = True
    heal_prompt: bool = False  # the prompts were text, and may end inside a token; see `healing`
    on_limit: OnLimit = "close"
    logprobs: int | None = None  # alternatives at each position, 0 to 20; None: no log-probabilities at all
    logprobs_from: Literal["raw", "masked"] = "raw"  # which distribution they come from
    prompt_logprobs: bool = False  # those of the prompt's tokens too
    diagnostics: bool = False  # what the mask bent
    deadline_s: float | None = None  # from its submission on, queueing and compiling included; None: no deadline
    retry: Retry | None = None  # instead of a mask; needs a source


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms of probabilities at one position; finite, -9999.0 at the least."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...]  # (token, logprob), the best first


@dataclass(frozen=True, slots=True)
class Worst:
    """The position at which the mask kept the least of what the model wanted."""

    token_index: int
    pointer: str
    wanted_id: int  # the model's best token
    got_id: int
    allowed_mass: float


@dataclass(frozen=True, slots=True)
class FieldMass:
    """What the mask kept in one place of the schema."""

    pointer: str
    mean_mass: float
    min_mass: float
    intervened: int  # positions whose best token was forbidden
    ended_by_limit: bool  # a length or a count was what ended the value


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """How far one answer was bent: shares of the model's own probability that lie on allowed tokens."""

    total: int  # tokens
    forced: int
    intervened: int
    mean_mass: float
    min_mass: float
    worst: Worst | None  # None: there are no tokens
    fields: tuple[FieldMass, ...]


@dataclass(frozen=True, slots=True)
class Attempts:
    """How one answer was come by, drawn freely and judged."""

    made: int  # up to the one that was taken, this one included; all of them where none was
    judged: int  # those that ran to their end: some of those after it too, where they were under way
    accepted: int  # of these
    tokens: int  # of all attempts
    model_calls: int  # of all attempts

    @property
    def acceptance_rate(self) -> float:
        """Share of the judged ones that were accepted, 0 to 1."""
        return self.accepted / self.judged


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer.

    Attributes
    ----------
    text : str
        Whole characters: of one that the token limit cut in the middle nothing is left, and bytes of free text that are
        no UTF-8 become U+FFFD. Ends before the stop string, if there was one.
    token_ids : tuple of int
        Without the end token; forced ones and those of a stop string included. Where the prompt was healed, the first
        may begin with its end, which is no part of the text.
    complete : bool
        The text is a whole document of the source; for free text, whether it ended by itself or at a stop string.
    model_calls : int
        Forward passes in which this sequence had a row, the prompt's included.
    forced_tokens : int
        How many of `token_ids` were forced.
    closed_early : bool
        The text is another one than without a token limit: it was led to its end.
    logprobs : tuple of TokenLogprobs or None
        Parallel to `token_ids`; None where they were not asked for.
    prompt_logprobs : tuple of (TokenLogprobs or None) or None
        Parallel to the prompt, of whose first token nothing is known.
    diagnostics : Diagnostics or None
        None where they were not asked for.
    attempts : Attempts or None
        None where the text was not drawn by `retry`.
    """

    index: int  # prompt-major: prompt * n + choice
    text: str
    token_ids: tuple[int, ...]
    stop_reason: StopReason
    stop_sequence: str | None
    complete: bool
    model_calls: int
    forced_tokens: int
    closed_early: bool = False
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    diagnostics: Diagnostics | None = None
    attempts: Attempts | None = None


@dataclass(frozen=True, slots=True)
class SchemaUse:
    """How the request's schema was come by."""

    schema_hash: str
    cache: Literal["memory", "disk", "miss"]
    compile_ms: float
    minimum_tokens: int
    warnings: tuple[Finding, ...]
    enforced: Literal["full", "partial"]


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time went, in milliseconds."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float


@dataclass(frozen=True, slots=True)
class Result:
    """What comes back."""

    choices: tuple[Choice, ...]
    prompt_tokens: int
    completion_tokens: int  # all choices together, without end tokens
    schema: SchemaUse | None
    timings: Timings
    cached_tokens: int = 0  # of `prompt_tokens`, those that the model had seen before these prompts came


@dataclass(frozen=True, slots=True)
class Ready:
    """First event of a stream: the schema is compiled, and the request waits for a slot or has one."""

    schema: SchemaUse | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added to one answer.

    `text` is whole characters, none of which can still become part of a stop string; it may be empty where the step's
    tokens end inside a character. `token_ids` are the tokens of the step, whatever is shown of them; `logprobs` are
    parallel to them. `prompt_logprobs` stand on a choice's first delta, where they were asked for.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None


StreamEvent = Ready | Delta | Choice | Result


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
        cached_tokens=sum(row.cached_tokens for row in job.sequences if row.index % job.request.n == 0),
    )


def prewarmed(job: Job, context_length: int, now_s: float) -> Result:
    """The result of a request of no tokens, once its schema is compiled (seconds, the job's clock)."""
    rows = list(sequences_of(job, context_length))
    for row in rows:
        row.stop_reason, row.complete = "max_tokens", row.matcher is not None and row.matcher.accepting
    return result_of(job, map(choice_of, rows), now_s)
