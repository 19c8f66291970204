"""What the bodies of all generating routes share, and the engine's `Request` made of it.

In: a checked body, its prompts as token ids. Out: `Asked`, what to run, on which model, and how the answer is written.
Cost: linear in the body; runs in a worker thread, since a schema's digest is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, ValidationInfo, field_validator

from app.errors import RequestError
from app.protocol.fields import Fields, Integer, Number, all_of, type_error, value_error
from app.protocol.structured import ResponseFormat, StructuredOptions, compile_timeout_s, to_retry, to_source
from app.words import clip
from engine import LoadedModel, Request, Sampling, UnknownModelError
from schemas_cache import Source

MAX_CHOICES = 128  # prompts x n
MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20
MAX_BIAS = 100


def _stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise type_error("a string or a list of strings")
    stops = all_of(str, stops, "a string")
    if len(stops) > MAX_STOPS:
        raise value_error(f"must be at most {MAX_STOPS} strings")
    if "" in stops:
        raise value_error("must not hold an empty string")
    return tuple(stops)


class StreamOptions(Fields):
    """`stream_options`; obfuscation is a hint."""

    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


Penalty = Annotated[Number, Field(ge=-2, le=2)]
TokenCount = Annotated[Integer, Field(ge=0)]
Bias = Annotated[Number, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
TopLogprobs = Annotated[Integer, Field(ge=0, le=MAX_TOP_LOGPROBS)]


class GenerationBody(Fields):
    """The fields that all generating routes have, with their types and bounds."""

    model: StrictStr
    temperature: Annotated[Number, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[Integer, Field(ge=0)] = 0
    min_p: Annotated[Number, Field(ge=0, le=1)] = 0.0
    n: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] = 1
    seed: Annotated[Integer, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops)] = ()
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: dict[StrictStr, Bias] | None = None
    stream: StrictBool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_options: StructuredOptions = StructuredOptions()

    @field_validator("stream_options")
    @classmethod
    def _only_with_stream(cls, value: StreamOptions | None, info: ValidationInfo) -> StreamOptions | None:
        if value is not None and not info.data.get("stream"):
            raise value_error("is for streams: it needs stream: true")
        return value


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server adds to a request, and what it allows."""

    max_tokens: int
    compile_timeout_cap_s: float
    deadline_s: float | None = None
    structured_output: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request: what to run, where, and what the answer needs to know of it.

    Attributes
    ----------
    stream, include_usage : bool
        Whether the answer comes in pieces, and whether the last one tells the tokens used.
    report_closed_as : str
        `finish_reason` of a document that was closed to fit the budget.
    echo : tuple of str
        The prompts, where they are to be repeated before the text; else empty.
    """

    model: LoadedModel
    request: Request
    stream: bool = False
    include_usage: bool = False
    report_closed_as: Literal["length", "stop"] = "length"
    echo: tuple[str, ...] = ()

    @property
    def choices(self) -> int:
        """How many answers there will be."""
        return len(self.request.prompts) * self.request.n


@dataclass(frozen=True, slots=True)
class Wanted:
    """What each route says in its own way: the prompts, the budget and the log-probabilities."""

    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int | None
    logprobs: int | None
    echo: tuple[str, ...] = ()
    heal_prompt: bool = False  # the prompts are text that may end inside a token


def model_of(body: GenerationBody, models: Mapping[str, LoadedModel]) -> LoadedModel:
    """The model that the body names; raises `UnknownModelError`."""
    model = models.get(body.model)
    if model is None:
        raise UnknownModelError(body.model, tuple(models))
    return model


def source_of(body: GenerationBody, defaults: Defaults) -> Source | None:
    """What to enforce, its digest computed here: a schema beyond the limits is refused before it is queued."""
    source = to_source(body.response_format, body.structured_options)
    if source is None:
        return None
    if not defaults.structured_output:
        why = "response_format: structured output is switched off on this server; leave the field out"
        raise RequestError("unsupported_parameter", why, "response_format")
    _ = source.digest  # kept by the source; raises `SchemaError`
    return source


def to_asked(
    body: GenerationBody, model: LoadedModel, source: Source | None, wanted: Wanted, defaults: Defaults
) -> Asked:
    """The engine's request, and how its answer is written; raises `RequestError`."""
    options = body.structured_options
    max_tokens = defaults.max_tokens if wanted.max_tokens is None else wanted.max_tokens
    request = Request(
        prompts=wanted.prompts,
        max_tokens=min(max_tokens, model.model.context_length),
        n=body.n,
        sampling=to_sampling(body, model),
        source=source,
        compile_timeout_s=compile_timeout_s(options, defaults.compile_timeout_cap_s),
        heal_prompt=wanted.heal_prompt,
        on_limit=options.on_limit,
        logprobs=wanted.logprobs,
        logprobs_from=options.logprobs,
        prompt_logprobs=bool(wanted.echo) and wanted.logprobs is not None,
        diagnostics=options.diagnostics,
        deadline_s=defaults.deadline_s,
        retry=to_retry(source, options),
    )
    include_usage = body.stream_options is not None and body.stream_options.include_usage
    return Asked(model, request, body.stream, include_usage, options.report_closed_as, wanted.echo)


def to_sampling(body: GenerationBody, model: LoadedModel) -> Sampling:
    """How tokens are drawn."""
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=min(body.top_k, len(model.tokenizer.vocabulary)),
        min_p=body.min_p,
        seed=None if body.seed is None else body.seed % 2**64,  # generators take no negative seeds
        stop=body.stop,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=_logit_bias(body.logit_bias or {}, len(model.tokenizer.vocabulary)),
    )


def _logit_bias(given: Mapping[str, float], vocabulary_size: int) -> tuple[tuple[int, float], ...]:
    """Ids are keys of an object, hence strings; two spellings of one id would be two wishes for it."""
    for key in given:
        plain = key.isascii() and key.isdecimal() and (key == "0" or key[0] != "0")
        if not plain or len(key) > len(str(vocabulary_size)) or int(key) >= vocabulary_size:
            reason = f"{clip(key, 40)!r} is no token id of the vocabulary of {vocabulary_size}"
            raise RequestError("invalid_value", f"logit_bias: {reason}", "logit_bias")
    return tuple((int(key), bias) for key, bias in given.items())
