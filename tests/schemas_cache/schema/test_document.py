"""The canonical form, its hash, and positions."""

import hashlib
from typing import Any

import pytest

from schemas_cache.errors import SchemaError, SchemaTooComplexError
from schemas_cache.schema import canonical, schema_hash
from schemas_cache.schema.document import child, read_document


def test_annotations_are_left_out() -> None:
    """Every annotation goes, at every depth, and blanks go with them; the key order stays."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/s",
        "title": "T",
        "type": "object",
        "properties": {"b": {"description": "B", "type": "integer", "default": 1}, "a": {"examples": ["é"]}},
        "anyOf": [{"$comment": "c", "required": ["b"]}],
    }
    expected = b'{"type":"object","properties":{"b":{"type":"integer"},"a":{}},"anyOf":[{"required":["b"]}]}'
    assert expected == canonical(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"title": {"type": "string"}, "default": {}}},
        {"const": {"title": 1}},
        {"enum": [{"description": "x"}]},
        {"required": ["title"]},
        {"$defs": {"examples": {"type": "string"}}},
    ],
)
def test_names_and_values_like_annotations_stay(schema: Any) -> None:
    """Where a property name or a value stands, nothing is an annotation."""
    assert schema == read_document(schema).root


def test_a_name_of_a_part_stays_where_references_depend_on_it() -> None:
    """`$id` below the root is an annotation unless there is a reference inside."""
    without, within = {"$id": "https://example.org/a"}, {"$id": "https://example.org/b", "$ref": "#"}
    assert {"properties": {"a": {}, "b": within}} == read_document({"properties": {"a": without, "b": within}}).root


def test_all_names_stay_where_a_reference_goes_by_name() -> None:
    """By a URI or an anchor; a pointer from the root needs no names."""
    schema = {"$id": "https://example.org/root", "$defs": {"a": {"$id": "a"}}, "items": {"$ref": "a"}}
    assert schema == read_document(schema).root
    by_pointer = {**schema, "items": {"$ref": "#/$defs/a"}}
    assert {"$defs": {"a": {}}, "items": {"$ref": "#/$defs/a"}} == read_document(by_pointer).root


def test_hash_is_sha256_of_the_canonical_form() -> None:
    """64 hexadecimal digits of the canonical bytes."""
    assert hashlib.sha256(b'{"type":"string"}').hexdigest() == schema_hash({"title": "x", "type": "string"})


def test_order_changes_the_hash() -> None:
    """Two orders of names are two languages."""
    assert schema_hash({"properties": dict.fromkeys("xy", True)}) != schema_hash(
        {"properties": dict.fromkeys("yx", True)}
    )


def test_an_older_draft_changes_the_hash() -> None:
    """The same keywords mean something else there, the newest draft is the default."""
    schema = {"$ref": "#/$defs/a", "minLength": 1}
    older = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    newest = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    assert schema_hash(schema) == schema_hash(newest)
    assert schema_hash(schema) != schema_hash(older)


def test_boolean_schemas_have_a_canonical_form() -> None:
    """`true` and `false` as they are."""
    assert [canonical(True), canonical(False)] == [b"true", b"false"]


@pytest.mark.parametrize(
    ("expected", "segments"),
    [
        ("#/properties/code", ("properties", "code")),
        ("#/a~1b/c~0d", ("a/b", "c~d")),
        ("#/a%20b/%25/日本", ("a b", "%", "日本")),
        ("#/", ("",)),
    ],
)
def test_positions_are_pointers_in_fragments(expected: str, segments: tuple[str, ...]) -> None:
    """RFC 6901 escapes first, then what no fragment may hold; characters beyond ASCII stay."""
    assert expected == child("#", *segments)


@pytest.mark.parametrize("levels", [65, 1_000, 100_000])
def test_deep_nesting_is_refused_without_recursion(levels: int) -> None:
    """Beyond the limit, however far, the error names the figure."""
    schema: Any = True
    for _ in range(levels):
        schema = {"items": schema}
    with pytest.raises(SchemaTooComplexError, match="64 levels"):
        canonical(schema)


def test_a_schema_that_contains_itself_is_refused() -> None:
    """A loop of Python objects ends at the same limit."""
    schema: dict[str, Any] = {}
    schema["items"] = schema
    with pytest.raises(SchemaTooComplexError):
        canonical(schema)


def test_shared_objects_cannot_blow_up() -> None:
    """A doubling chain of shared lists is refused for its size, in bounded time."""
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    with pytest.raises(SchemaTooComplexError, match="1048576"):
        canonical({"enum": value})


def test_large_texts_are_refused() -> None:
    """One byte beyond a mebibyte is too many, the last one is not."""
    empty = len(canonical({"const": ""}))
    assert len(canonical({"const": "x" * ((1 << 20) - empty)})) == 1 << 20
    with pytest.raises(SchemaTooComplexError, match="1048577"):
        canonical({"const": "x" * ((1 << 20) - empty + 1)})


@pytest.mark.parametrize(
    ("pointer", "schema"),
    [
        ("#/minimum", {"minimum": float("nan")}),
        ("#/minimum", {"minimum": float("inf")}),
        ("#/minimum", {"minimum": 10**5000}),
        ("#/const", {"const": "\ud800"}),
        ("#/properties", {"properties": {"\udfff": True}}),
        ("#/enum/1", {"enum": [1, (2, 3)]}),
        ("#/enum/0", {"enum": [{1: 2}]}),
        ("#/const", {"const": b"x"}),
    ],
)
def test_what_is_no_json_is_refused(pointer: str, schema: Any) -> None:
    """Values that no JSON text holds are found before anything else."""
    with pytest.raises(SchemaError) as raised:
        canonical(schema)
    assert [pointer] == [finding.pointer for finding in raised.value.findings]
