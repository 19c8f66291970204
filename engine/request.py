"""What is asked of the engine, and what comes back: all of it frozen.

In: `Request`, built by a front end. Out: `Result`, with one `Choice` for each answer; in a stream `Ready`, then each
`Delta` and `Choice`, at last the `Result`. Cost: none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from schemas_cache import Finding, Source

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
