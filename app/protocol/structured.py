"""`response_format` and `structured_options`: what the text must be.

In: the two fields. Out: a `Source` for the compiler, or None for free text. Fail closed: whatever was asked for and is
not understood, misplaced, or not available is refused with the path of the field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from app.errors import RequestError
from app.proof import judge
from app.protocol.fields import Fields, Integer, Number, only, type_error, without_nulls
from engine import Retry
from schemas_cache import SchemaOptions, Source, choice_source, json_object_source, regex_source, schema_source

DEFAULT_ATTEMPTS = 8
MAX_ATTEMPTS = 64  # free draws at one answer; where 7 % are accepted, so many fail once in a hundred times


def schema_value(value: object) -> object:
    """A schema is an object or a boolean."""
    if not isinstance(value, dict | bool):
        raise type_error("an object or a boolean")
    return value


class NamedSchema(Fields):
    """`json_schema` inside the format."""

    name: Annotated[StrictStr, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    content: Annotated[Any, BeforeValidator(schema_value), Field(alias="schema")]
    strict: StrictBool = True
    description: StrictStr | None = None


class TextFormat(Fields):
    """Free text."""

    type: Literal["text"]


class JsonObjectFormat(Fields):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(Fields):
    """A document that satisfies a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class RegexFormat(Fields):
    """Text that a regular expression matches as a whole."""

    type: Literal["regex"]
    regex: StrictStr


class ChoiceFormat(Fields):
    """One of these texts."""

    type: Literal["choice"]
    choice: Annotated[list[StrictStr], Field(min_length=1)]


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | ChoiceFormat,
    Field(discriminator="type"),
    BeforeValidator(without_nulls),
]


class StructuredOptions(Fields):
    """How the text is constrained."""

    whitespace: Literal["spaced", "compact", "flexible", "pretty"] = "spaced"
    on_limit: Literal["close", "truncate", "error"] = "close"
    additional_properties: Literal["closed", "open"] = "closed"
    key_order: Literal["declared", "any"] = "declared"
    method: Annotated[Literal["mask", "retry", "asap", "smc"], only("mask", "retry")] = "mask"
    max_attempts: Annotated[Integer, Field(ge=1, le=MAX_ATTEMPTS)] | None = None  # None: DEFAULT_ATTEMPTS
    diagnostics: StrictBool = False
    logprobs: Literal["raw", "masked"] = "raw"
    schema_in_prompt: StrictBool | None = None  # None: as the route has it
    report_closed_as: Literal["length", "stop"] = "length"
    allow_refusal: Annotated[StrictBool, only(False)] = False
    compile_timeout: Annotated[Number, Field(gt=0)] | None = None


def to_source(response_format: ResponseFormat | None, options: StructuredOptions) -> Source | None:
    """What to enforce; raises `RequestError` for options without anything to enforce."""
    if isinstance(response_format, JsonSchemaFormat):
        named = response_format.json_schema
        return schema_source(named.content, _schema_options(options, strict=named.strict))
    if isinstance(response_format, JsonObjectFormat):
        return json_object_source(_schema_options(options, strict=True))
    if isinstance(response_format, RegexFormat):
        return regex_source(response_format.regex)
    if isinstance(response_format, ChoiceFormat):
        return choice_source(response_format.choice)
    for field in sorted(options.model_fields_set - {"logprobs"}):
        path = f"structured_options.{field}"
        raise RequestError("invalid_value", f"{path}: means nothing without a response_format to enforce", path)
    return None


def to_retry(source: Source | None, options: StructuredOptions) -> Retry | None:
    """Whether text is drawn freely and judged, and how often; raises `RequestError` for options that mean nothing."""
    if options.method == "retry" and source is not None:
        if options.diagnostics:
            path = "structured_options.diagnostics"
            raise RequestError("invalid_value", f"{path}: tells what a mask bent, and method retry has no mask", path)
        return Retry(options.max_attempts or DEFAULT_ATTEMPTS, judge(source))
    if options.max_attempts is not None:
        path = "structured_options.max_attempts"
        raise RequestError("invalid_value", f"{path}: is for method retry", path)
    return None


def compile_timeout_s(options: StructuredOptions, cap_s: float) -> float | None:
    """The request's own time limit for compiling; raises `RequestError` above the server's."""
    if options.compile_timeout is not None and options.compile_timeout > cap_s:
        path = "structured_options.compile_timeout"
        raise RequestError("invalid_value", f"{path}: must be at most the server's {cap_s:g} s", path)
    return options.compile_timeout


def _schema_options(options: StructuredOptions, *, strict: bool) -> SchemaOptions:
    return SchemaOptions(
        strict=strict,
        whitespace=options.whitespace,
        additional_properties=options.additional_properties,
        key_order=options.key_order,
    )
