"""The body of `POST /v1/completions`, and the engine's `Request` made of it.

In: a JSON object. Out: `Asked`, what to run, on which model, and how the answer is written. Cost: linear in the body,
encoding the prompts included; runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, StrictStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from app.errors import RequestError
from app.protocol.fields import Integer, all_of, parse, refused, type_error, value_error, without_hints
from app.protocol.generation import (
    MAX_CHOICES,
    Asked,
    Defaults,
    GenerationBody,
    TokenCount,
    TopLogprobs,
    Wanted,
    model_of,
    source_of,
    to_asked,
)
from app.protocol.tokens import checked_ids, text_ids
from engine import LoadedModel
from schemas_cache import Source

Prompt = str | list[int]
PROMPT_FORMS = "a string, a list of strings, a list of token ids, or a list of such lists"


def _prompts(value: object) -> list[Prompt]:
    """One prompt or several, each as text or as token ids, to a list of them."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise type_error(PROMPT_FORMS)
    if not value:
        raise value_error("must not be an empty list")
    if isinstance(value[0], str):
        return list(all_of(str, value, "a string, as the first one is"))
    if isinstance(value[0], list):
        return [_token_ids(item) for item in all_of(list, value, "a list of token ids, as the first one is")]
    return [_token_ids(value)]


def _token_ids(value: list[Any]) -> list[int]:
    """The ids in a list of them, 3.0 being one."""
    if not value:
        raise value_error("must not hold an empty list of token ids")
    ids = [int(item) if isinstance(item, float) and item.is_integer() else item for item in value]
    return all_of(int, ids, "a token id")


class CompletionBody(GenerationBody):
    """The fields of the route, with their types and bounds."""

    prompt: Annotated[list[Prompt], BeforeValidator(_prompts)]
    max_tokens: TokenCount | None = None
    best_of: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: TopLogprobs | None = None
    echo: StrictBool = False
    suffix: Annotated[StrictStr, refused("text after the completion is not supported")] | None = None

    @field_validator("best_of")
    @classmethod
    def _best_of_equals_n(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value != info.data.get("n", value):
            raise PydanticCustomError("unsupported_parameter", "is supported only where it equals n")
        return value


def parse_completion(data: dict[str, Any], models: Mapping[str, LoadedModel], defaults: Defaults) -> Asked:
    """Check a body and build the engine's request; raises `RequestError`, `SchemaError` or `UnknownModelError`."""
    data = without_hints(data)
    if "prompt" in data and data["prompt"] is None:
        data["prompt"] = ""  # the one field where null has a meaning of its own
    body = parse(CompletionBody, data)
    model = model_of(body, models)
    _check_number_of_choices(body)
    source = source_of(body, defaults)
    _check_combinations(body, source)
    prompts = tuple(_encode(prompt, model) for prompt in body.prompt)
    echo = tuple(_text(prompt, model) for prompt in body.prompt) if body.echo else ()
    is_text = any(isinstance(prompt, str) for prompt in body.prompt)
    return to_asked(body, model, source, Wanted(prompts, body.max_tokens, body.logprobs, echo, is_text), defaults)


def _check_number_of_choices(body: CompletionBody) -> None:
    if len(body.prompt) > MAX_CHOICES:
        reason = f"{len(body.prompt)} prompts are more than {MAX_CHOICES}; send them in several requests"
        raise RequestError("invalid_value", f"prompt: {reason}", "prompt")
    if len(body.prompt) * body.n > MAX_CHOICES:
        count = f"{len(body.prompt)} prompts x n = {body.n}"
        raise RequestError("invalid_value", f"n: {count} is more than {MAX_CHOICES} choices", "n")


def _check_combinations(body: CompletionBody, source: Source | None) -> None:
    """With a format the text is the document and nothing else, and the prompt is as it was given."""
    if body.echo and source is not None:
        reason = "cannot be combined with a response_format: the text would be no document"
        raise RequestError("unsupported_parameter", f"echo: {reason}", "echo")
    if body.structured_options.schema_in_prompt:
        path = "structured_options.schema_in_prompt"
        reason = "is for chat-like routes; where the model is to see the schema, write it into the prompt"
        raise RequestError("unsupported_parameter", f"{path}: {reason}", path)


def _encode(prompt: Prompt, model: LoadedModel) -> tuple[int, ...]:
    return text_ids(prompt, model) if isinstance(prompt, str) else checked_ids(prompt, model, "prompt")


def _text(prompt: Prompt, model: LoadedModel) -> str:
    return prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt)
