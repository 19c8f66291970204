"""Random small schemas against an independent validator, on random documents."""

import json
from typing import Any

import jsonschema
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from schemas_cache.errors import SchemaError, UnsatisfiableSchemaError
from schemas_cache.grammar import Grammar
from schemas_cache.schema import SchemaOptions, lower
from schemas_cache.schema.document import read_document
from schemas_cache.schema.loops import has_loop_in_place
from schemas_cache.schema.reading import read
from tests.schemas_cache.schema.documents import OPEN, accepts, orders

NAMES = st.sampled_from(["a", "b", "ab"])
COUNTS = st.integers(0, 3)
SCALARS = st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from([0.5, "", "a", "b", "ab", "日本", 'a"\n'])
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.just("z"), inner, max_size=2),
    max_leaves=5,
)
OBJECTS = st.dictionaries(NAMES, DOCUMENTS, min_size=1, max_size=3)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def optionally(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keywords."""
    return st.fixed_dictionaries({}, optional=keywords)


def subschemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of all supported keywords around `inner` ones, of one type more often than not."""
    strings = optionally(minLength=COUNTS, maxLength=COUNTS) | optionally(pattern=st.sampled_from(["a", "^a", "b$"]))
    bounds = st.integers(-3, 12) | st.sampled_from([0.5, 3.5])
    integers = optionally(minimum=bounds, maximum=bounds, exclusiveMinimum=bounds, exclusiveMaximum=bounds)
    arrays = optionally(items=inner, minItems=COUNTS, maxItems=COUNTS)
    objects = optionally(
        properties=st.dictionaries(NAMES, inner, max_size=3),
        required=st.lists(NAMES, max_size=2, unique=True),
        additionalProperties=inner,
    )
    typed = {"string": strings, "integer": integers, "array": arrays, "object": objects}
    of_one_type = [facets.map(lambda some, name=name: {"type": name} | some) for name, facets in typed.items()]  # type: ignore[misc]
    anything = optionally(
        type=st.lists(TYPES, min_size=1, max_size=3, unique=True),
        enum=st.lists(DOCUMENTS, min_size=1, max_size=4),
        anyOf=st.lists(inner, min_size=1, max_size=2),
    )
    references = st.sampled_from(["#", "#/$defs/s", "#/$defs/t"]).map(lambda target: {"$ref": target})
    parts = st.lists(st.one_of(*of_one_type, strings, arrays, objects, anything, references), min_size=1, max_size=3)
    return parts.map(lambda some: {word: value for part in some for word, value in part.items()})


SCHEMAS = st.recursive(st.booleans() | TYPES.map(lambda name: {"type": name}), subschemas, max_leaves=6)


LEAVES = st.sampled_from(
    [
        *({"type": "integer"}, {"type": ["integer", "null"], "minimum": 1}, {"type": "string", "maxLength": 1}),
        *({"enum": [1, "a", None]}, {"$ref": "#"}, {"$ref": "#/$defs/s"}, {"$ref": "#/$defs/s", "required": ["a"]}),
        *({"items": {"$ref": "#/$defs/t"}}, True, False),
    ]
)
LAYERS = optionally(
    properties=st.dictionaries(NAMES, LEAVES, min_size=1, max_size=3),
    required=st.lists(NAMES, max_size=1),
    additionalProperties=LEAVES,
    items=LEAVES,
)


@st.composite
def layered_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Property keywords, a reference and a union on the same value, mostly objects: all of it has to be merged."""
    branches = draw(st.lists(LAYERS, max_size=2))
    union = {"anyOf": branches} if branches else {}
    return {"$defs": {"s": draw(LAYERS), "t": draw(LAYERS | LEAVES)}, "$ref": "#/$defs/s", **draw(LAYERS), **union}


@st.composite
def documents_with_definitions(draw: st.DrawFn) -> dict[str, Any]:
    """A root schema with two definitions that it may refer to."""
    root = draw(subschemas(SCHEMAS))
    return {"$defs": {"s": draw(subschemas(SCHEMAS)), "t": draw(subschemas(SCHEMAS))}, **root}


def lowered(schema: dict[str, Any], options: SchemaOptions) -> Grammar | None:
    """The grammar; None where nothing satisfies the schema; refused and circular schemas are left out."""
    assume(not has_loop_in_place(read(read_document(schema), strict=True).schemas))
    try:
        return lower(schema, options, None)[0]
    except UnsatisfiableSchemaError:
        return None
    except SchemaError as error:
        assume("cannot be enforced" not in str(error))
        raise


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents_with_definitions() | layered_documents(), st.lists(DOCUMENTS | OBJECTS, min_size=1, max_size=4))
def test_accepted_in_some_key_order_exactly_if_valid(schema: dict[str, Any], documents: list[Any]) -> None:
    """With open objects the language is the standard's, up to the order of keys."""
    rules = lowered(schema, OPEN)
    validator = jsonschema.Draft202012Validator(schema)
    for document in documents:
        texts = [json.dumps(order, ensure_ascii=False) for order in orders(document)]
        assert validator.is_valid(document) == any(rules is not None and accepts(rules, text) for text in texts)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents_with_definitions() | layered_documents(), st.lists(DOCUMENTS | OBJECTS, min_size=1, max_size=4))
def test_closed_objects_accept_less(schema: dict[str, Any], documents: list[Any]) -> None:
    """Closing is never looser: what is accepted is valid."""
    rules = lowered(schema, SchemaOptions())
    accepted = [d for d in documents if rules is not None and accepts(rules, json.dumps(d, ensure_ascii=False))]
    assert accepted == [d for d in accepted if jsonschema.Draft202012Validator(schema).is_valid(d)]
