"""The body of `POST /v1/completions`, and the engine's `Request` made of it.

In: a JSON object. Out: `Completion`, what to run and on which model. Cost: linear in the body, encoding the prompts
included; runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from app.errors import RequestError
from app.protocol.fields import IGNORED, Fields, Integer, Number, only, parse, refused, type_error, value_error
from app.protocol.structured import ResponseFormat, StructuredOptions, compile_timeout_s, to_source
from engine import LoadedModel, Request, Sampling, UnknownModelError
from schemas_cache import Source

MAX_CHOICES = 128  # prompts x n
MAX_STOPS = 16
Prompt = str | list[int]


def _prompts(value: object) -> list[Prompt]:
    """One prompt or several, each as text or as token ids, to a list of them."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise type_error("a string, a list of strings, a list of token ids, or a list of such lists")
    if not value:
        raise value_error("must not be an empty list")
    if all(isinstance(item, str) for item in value):
        return list(value)
    if all(isinstance(item, list) for item in value):
        return [_token_ids(item) for item in value]
    return [_token_ids(value)]


def _token_ids(value: list[Any]) -> list[int]:
    if not value:
        raise value_error("must not hold an empty list of token ids")
    ids = [int(item) if isinstance(item, float) and item.is_integer() else item for item in value]
    if any(isinstance(item, bool) or not isinstance(item, int) for item in ids):
        raise type_error("a string, a list of strings, a list of token ids, or a list of such lists")
    return ids


def _stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise type_error("a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise value_error(f"must be at most {MAX_STOPS} strings")
    if "" in stops:
        raise value_error("must not hold an empty string")
    return tuple(stops)


class StreamOptions(Fields):
    """`stream_options`."""

    include_usage: StrictBool = False
    include_obfuscation: StrictBool = False


Penalty = Annotated[Number, Field(ge=-2, le=2), only(0.0)]


class CompletionBody(Fields):
    """The fields of the route, with their types and bounds."""

    model: StrictStr
    prompt: Annotated[list[Prompt], BeforeValidator(_prompts)]
    max_tokens: Annotated[Integer, Field(ge=0)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[Integer, Field(ge=0)] = 0
    min_p: Annotated[Number, Field(ge=0, le=1)] = 0.0
    n: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] = 1
    best_of: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = None
    seed: Annotated[Integer, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_stops)] = ()
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: Annotated[dict[str, Number], only({})] | None = None
    logprobs: Annotated[Integer, Field(ge=0, le=20), refused("log-probabilities are not available yet")] | None = None
    echo: Annotated[StrictBool, only(False)] = False
    suffix: Annotated[StrictStr, refused("text after the completion is not supported")] | None = None
    stream: Annotated[StrictBool, only(False)] = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_options: StructuredOptions = StructuredOptions()

    @field_validator("best_of")
    @classmethod
    def _best_of_equals_n(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value != info.data.get("n", value):
            raise PydanticCustomError("unsupported_parameter", "is supported only where it equals n")
        return value

    @field_validator("stream_options")
    @classmethod
    def _only_with_stream(cls, value: StreamOptions | None) -> StreamOptions | None:
        if value is not None:
            raise value_error("is for streams: it needs stream: true")
        return value


@dataclass(frozen=True, slots=True)
class Completion:
    """A checked request: what to run, where, and what the answer needs to know of it."""

    model: LoadedModel
    request: Request


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server adds to a request."""

    max_tokens: int
    compile_timeout_cap_s: float


def parse_completion(data: dict[str, Any], models: Mapping[str, LoadedModel], defaults: Defaults) -> Completion:
    """Check a body and build the engine's request; raises `RequestError`, `SchemaError` or `UnknownModelError`."""
    data = {key: value for key, value in data.items() if key not in IGNORED}
    if "prompt" in data and data["prompt"] is None:
        data["prompt"] = ""  # the one field where null has a meaning of its own
    body = parse(CompletionBody, data)
    model = models.get(body.model)
    if model is None:
        raise UnknownModelError(body.model, tuple(models))
    if len(body.prompt) > MAX_CHOICES:
        reason = f"{len(body.prompt)} prompts are more than {MAX_CHOICES}; send them in several requests"
        raise RequestError("invalid_value", f"prompt: {reason}", "prompt")
    if len(body.prompt) * body.n > MAX_CHOICES:
        count = f"{len(body.prompt)} prompts x n = {body.n}"
        raise RequestError("invalid_value", f"n: {count} is more than {MAX_CHOICES} choices", "n")
    return Completion(model, _to_request(body, model, defaults))


def _to_request(body: CompletionBody, model: LoadedModel, defaults: Defaults) -> Request:
    max_tokens = defaults.max_tokens if body.max_tokens is None else body.max_tokens
    return Request(
        prompts=tuple(_encode(prompt, model) for prompt in body.prompt),
        max_tokens=min(max_tokens, model.model.context_length),
        n=body.n,
        sampling=_to_sampling(body),
        source=_hashed(to_source(body.response_format, body.structured_options)),
        compile_timeout_s=compile_timeout_s(body.structured_options, defaults.compile_timeout_cap_s),
    )


def _hashed(source: Source | None) -> Source | None:
    """The same source, its digest computed here: a schema beyond the limits is refused before it is queued."""
    if source is not None:
        _ = source.digest  # kept by the source; raises `SchemaError`
    return source


def _to_sampling(body: CompletionBody) -> Sampling:
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=None if body.seed is None else body.seed % 2**64,  # generators take no negative seeds
        stop=body.stop,
    )


def _encode(prompt: Prompt, model: LoadedModel) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return tuple(model.tokenizer.encode(prompt))
    size = len(model.tokenizer.vocabulary)
    outside = next((token for token in prompt if not 0 <= token < size), None)
    if outside is not None:
        reason = f"token id {outside} is outside the vocabulary of {size}"
        raise RequestError("invalid_value", f"prompt: {reason}", "prompt")
    return tuple(prompt)
