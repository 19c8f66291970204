"""How fields are checked, and how a fault is told.

In: a JSON object and a pydantic model. Out: the model's instance, or `RequestError` with the contract's code, the
dotted path of the field, and a hint where another server's field was meant. Of several faults the first is told, but a
misplaced or foreign field goes first, since it is most often the cause of the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from app.errors import RequestError
from app.words import clip, found, reason_of

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# Accepted on every route, without effect: vendors' fields that change nothing here.
IGNORED = frozenset({
    "cache_control", "diagnostics", "include", "inference_geo", "metadata", "prediction", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning", "reasoning_effort", "safety_identifier",
    "service_tier", "speed", "store", "truncation", "user", "user_profile_id", "verbosity", "workspace_id",
})  # fmt: skip

_FORM = '"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {…}}}'
_SCHEMA = f"use {_FORM}"
_TYPES = f"it is text, json_object, json_schema, regex or choice; for a schema: {_FORM}"
_DEEPER = f"a schema belongs at response_format.json_schema.schema: {_FORM}"
_ONE_TOO_FEW = f"a schema goes one level deeper, beside its name: {_FORM}"
_NAME = f"a name is 1 to 64 letters, digits, _ or -: {_FORM}"
_REGEX = 'use "response_format": {"type": "regex", "regex": "…"}'
_CHOICE = 'use "response_format": {"type": "choice", "choice": ["…", "…"]}'
_GRAMMAR = f"grammars are not read here; write it as a schema ({_FORM}) or as a regular expression ({_REGEX})"
_TOP_LEVEL = "put its members at the top level of the body, such as temperature and max_tokens"
_SCHEMA_KEYWORDS = (
    "type",
    "properties",
    "$ref",
    "anyOf",
    "allOf",
    "oneOf",
    "enum",
    "const",
    "items",
    "$schema",
    "$defs",
)

# What another server calls it, or where it does not belong -> how it is written here.
HINTS: dict[str, str] = {
    **dict.fromkeys((f"response_format.{key}" for key in ("schema", "name", "strict", "value")), _DEEPER),
    **dict.fromkeys(("response_format.json_schema", "response_format.json_schema.schema"), _DEEPER),
    "response_format.type": _TYPES,
    "response_format.json_schema.name": _NAME,
    **dict.fromkeys((f"response_format.json_schema.{key}" for key in _SCHEMA_KEYWORDS), _ONE_TOO_FEW),
    **dict.fromkeys(("guided_json", "json_schema", "schema", "format", "output_format", "response_model"), _SCHEMA),
    **dict.fromkeys(("structured_outputs", "output_config", "text"), _SCHEMA),
    **dict.fromkeys(("guided_regex", "regex"), _REGEX),
    **dict.fromkeys(("guided_choice", "choice"), _CHOICE),
    **dict.fromkeys(("guided_grammar", "grammar", "ebnf", "lark"), _GRAMMAR),
    **dict.fromkeys(("extra_body", "sampling_params", "options", "parameters"), _TOP_LEVEL),
    **dict.fromkeys(("n_predict", "max_new_tokens", "max_length", "max_completion_tokens"), 'use "max_tokens"'),
    **dict.fromkeys(("guided_whitespace_pattern", "whitespace"), 'use "structured_options": {"whitespace": "spaced"}'),
    "max_output_tokens": 'use "max_tokens"',
    "guided_decoding_backend": "there is one way of decoding here; leave it out",
    "messages": 'POST /v1/completions takes "prompt"; for messages there is POST /v1/chat/completions',
    "prompt": 'POST /v1/chat/completions takes "messages"; for a prompt there is POST /v1/completions',
    "inputs": 'use "prompt"',
    "stop_sequences": 'use "stop"',
}

_CODES = {
    "missing": "missing_required_parameter",
    "union_tag_not_found": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
}
_OWN_CODES = frozenset({"invalid_type", "invalid_value", "unsupported_parameter", "missing_required_parameter"})


def without_nulls(data: object) -> object:
    """The object without its null members; other values as they are."""
    if not isinstance(data, dict):
        return data
    return {key: value for key, value in data.items() if value is not None}


def without_hints(data: Mapping[str, Any]) -> dict[str, Any]:
    """A body without the fields that have no effect."""
    return {key: value for key, value in data.items() if key not in IGNORED}


class Fields(BaseModel):
    """Base of all bodies: null is the same as absent, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_absent(cls, data: object) -> object:
        return without_nulls(data)


def parse(model: type[M], data: object, place: str = "") -> M:
    """Check a body, or what stands in it at `place`; raises `RequestError`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _request_error(error.errors(include_url=False, include_context=True), place) from None


def _request_error(faults: Sequence[ErrorDetails], place: str) -> RequestError:
    fault = next((f for f in faults if f["type"] == "extra_forbidden" and _path(f) in HINTS), faults[0])
    path, code = _path(fault), _code(fault["type"])
    known_here = "." not in path and fault["type"] != "extra_forbidden"  # what is foreign on one route
    hint = None if known_here or place else HINTS.get(path)
    full_path = ".".join(filter(None, (place, path)))
    message = f"{full_path or 'body'}: {reason_of(fault)}" + (f"; {hint}" if hint else "")
    return RequestError(code, message, full_path or None)


def _code(kind: str) -> str:
    """The contract's code for pydantic's kind of fault; this module's own kinds are codes already."""
    if kind in _OWN_CODES:
        return kind
    return _CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")


def _path(fault: ErrorDetails) -> str:
    """Dotted path of the field, list positions in brackets; without the tag by which a format was told apart."""
    place = [part for i, part in enumerate(fault["loc"]) if not (i == 1 and fault["loc"][0] == "response_format")]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    tag_at_fault = fault["type"] in ("union_tag_not_found", "union_tag_invalid")
    return clip(f"{path}.type" if tag_at_fault else path, 120)


def type_error(expected: str) -> PydanticCustomError:
    """The fault of a value of the wrong JSON type."""
    return PydanticCustomError("invalid_type", "must be {expected}", {"expected": expected})


def value_error(reason: str) -> PydanticCustomError:
    """The fault of a value outside its range."""
    return PydanticCustomError("invalid_value", "{reason}", {"reason": reason})


def all_of(kind: type[T], items: Sequence[object], expected: str) -> list[T]:
    """The items, all of this type; raises the fault of the first that is not. Booleans are no integers."""
    for number, item in enumerate(items):
        if not isinstance(item, kind) or (kind is int and isinstance(item, bool)):
            facts = {"number": number, "expected": expected, "found": found(item)}
            raise PydanticCustomError("item_type", "item {number} must be {expected}, not {found}", facts)
    return cast("list[T]", list(items))


def _integer(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise type_error("an integer")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise type_error("a number")
    try:
        return float(value)
    except OverflowError:
        raise value_error("is out of range") from None


Integer = Annotated[int, BeforeValidator(_integer)]  # 1.0 is an integer; true is not
Number = Annotated[float, BeforeValidator(_number)]


@dataclass(frozen=True, eq=False)  # as its base: annotations have to be hashable
class Narrowed(AfterValidator):
    """A check that leaves fewer values than the type says; `allowed` says which, as a JSON Schema."""

    allowed: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """What documentation says of the field."""
        return dict(self.allowed)


def only(*values: object, why: str = "is not available yet") -> AfterValidator:
    """A field that is known, and whose other values are refused: nothing is ever silently ignored."""

    def check(given: Any) -> Any:
        if given not in values:
            raise PydanticCustomError(
                "unsupported_parameter",
                "{given} {why}",
                {"given": clip(json.dumps(given, ensure_ascii=False), 40), "why": why},
            )
        return given

    return Narrowed(check, {"const": values[0]} if len(values) == 1 else {"enum": list(values)})


def refused(why: str) -> AfterValidator:
    """A field that is known and always refused."""

    def check(_: Any) -> Any:
        raise PydanticCustomError("unsupported_parameter", "{why}", {"why": why})

    return Narrowed(check, {"type": "null"})
