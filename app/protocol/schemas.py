"""The bodies of the schema routes, and reports on schemas.

In: a JSON object; then what the compiler says. Out: what to compile for which model; plain JSON values. Cost: linear in
the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictStr

from app.findings import errors_json, warnings_json
from app.protocol.fields import Fields, parse, without_hints
from app.protocol.models import model_named
from app.protocol.structured import schema_value
from engine import LoadedModel
from schemas_cache import CompiledSchema, SchemaError, SchemaOptions, Source, schema_source


class SchemaBody(Fields):
    """`POST /v1/schemas/validate`: a schema and the options that shape its language."""

    content: Annotated[Any, BeforeValidator(schema_value), Field(alias="schema")]
    model: StrictStr | None = None  # None: the first one
    strict: StrictBool = True
    whitespace: Literal["spaced", "compact", "flexible", "pretty"] = "spaced"
    additional_properties: Literal["closed", "open"] = "closed"
    key_order: Literal["declared", "any"] = "declared"


class PrewarmBody(SchemaBody):
    """`POST /v1/schemas`."""

    wait: StrictBool = True


@dataclass(frozen=True, slots=True)
class AskedSchema:
    """A checked body: what to compile, for which model's tokens."""

    model: LoadedModel
    source: Source
    wait: bool = True


def parse_schema(body: type[SchemaBody], data: dict[str, Any], models: Mapping[str, LoadedModel]) -> AskedSchema:
    """Check a body; raises `RequestError` or `UnknownModelError`."""
    fields = parse(body, without_hints(data))
    options = SchemaOptions(fields.strict, fields.whitespace, fields.additional_properties, fields.key_order)
    wait = fields.wait if isinstance(fields, PrewarmBody) else True
    return AskedSchema(model_named(fields.model, models), schema_source(fields.content, options), wait)


def report_of(compiled: CompiledSchema) -> dict[str, Any]:
    """The report on a schema that can be enforced."""
    return {
        "object": "schema.report",
        "supported": True,
        "hash": compiled.schema_hash,
        "errors": [],
        "warnings": warnings_json(compiled.warnings),
        "minimum_tokens": compiled.minimum_tokens,
        "shortest_example": compiled.matcher().shortest().decode("utf-8"),
        "estimated_states": compiled.estimated_states,
    }


def refusal_report(source: Source, error: SchemaError) -> dict[str, Any]:
    """The report on one that cannot."""
    return {
        "object": "schema.report",
        "supported": False,
        "hash": _hash_of(source),
        "errors": errors_json(error.findings),
        "warnings": [],
        "minimum_tokens": None,
        "shortest_example": None,
        "estimated_states": None,
    }


def _hash_of(source: Source) -> str | None:
    """None for a schema that is too deep or too large to be written down."""
    try:
        return source.schema_hash
    except SchemaError:
        return None
