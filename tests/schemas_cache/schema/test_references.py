"""Where references lead: pointers, names, anchors, dynamic ones; and why some lead nowhere."""

from typing import Any

import pytest

from schemas_cache.errors import SchemaError
from schemas_cache.schema import lower
from schemas_cache.schema.document import DanglingRefError, read_document
from schemas_cache.schema.references import References
from tests.schemas_cache.schema.documents import OPEN, accepts, grammar

OLDER = {draft: f"http://json-schema.org/draft-0{draft}/schema#" for draft in "467"}
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def target(schema: dict[str, Any], reference: str, pointer: str = "#", keyword: str = "$ref") -> str:
    """The position that a reference at `pointer` leads to; some other reference goes by name, so names are kept."""
    schema = {**schema, "not": {"$ref": "#some-name"}}
    return References(read_document(schema)).resolve(keyword, reference, pointer)[0]


@pytest.mark.parametrize(
    ("expected", "reference"),
    [
        ("#", "#"),
        ("#/$defs/a~1b", "#/$defs/a~1b"),
        ("#/$defs/a~1b", "#/%24defs/a%7E1b"),
        ("#/anyOf/1", "#/anyOf/1"),
        ("#/$defs/", "#/$defs/"),
        ("#/$defs/own/$defs/x", "#/$defs/own/$defs/x"),
    ],
)
def test_references_have_one_name_for_each_position(expected: str, reference: str) -> None:
    """However a reference is spelled, it leads to the same position."""
    own = {"$id": "https://example.org/own", "$defs": {"x": {}}}
    assert expected == target({"$defs": {"a/b": {}, "": {}, "own": own}, "anyOf": [{}, {}]}, reference)


NAMED = {
    "$id": "https://example.org/a/root.json",
    "$anchor": "top",
    "$defs": {
        "near": {"$id": "near.json", "$defs": {"x": {"$anchor": "x"}}},
        "far": {"$id": "../far.json", "properties": {"$id": {"$id": "inner.json"}}},
        "urn": {"$id": "urn:example:thing", "$defs": {"y": {"$anchor": "y"}}},
        "value": {"const": {"$id": "value.json"}, "unknown": {"$id": "unknown.json"}},
    },
}


@pytest.mark.parametrize(
    ("expected", "reference", "pointer"),
    [
        ("#", "root.json", "#"),
        ("#", "#top", "#/$defs/value"),
        ("#", "https://example.org/a/root.json#top", "#/$defs/urn"),
        ("#/$defs/near", "near.json", "#"),
        ("#/$defs/near", "#", "#/$defs/near/$defs/x"),
        ("#/$defs/near/$defs/x", "near.json#x", "#"),
        ("#/$defs/near/$defs/x", "near.json#/$defs/x", "#/anyOf/0"),
        ("#/$defs/near/$defs/x", "#x", "#/$defs/near"),
        ("#/$defs/far", "/far.json", "#"),
        ("#/$defs/far/properties/$id", "inner.json", "#/$defs/far"),
        ("#/$defs/far/properties/$id", "../inner.json", "#/$defs/near"),
        ("#/$defs/urn", "urn:example:thing", "#"),
        ("#/$defs/urn/$defs/y", "urn:example:thing#y", "#"),
        ("#/$defs/urn/$defs/y", "#/$defs/y", "#/$defs/urn"),
    ],
)
def test_names_are_relative_to_the_resource_around(expected: str, reference: str, pointer: str) -> None:
    """Resources inside each other, anchors of each, and pointers from each."""
    assert expected == target(NAMED, reference, pointer)


@pytest.mark.parametrize(
    ("reason", "reference"),
    [
        ('no "b" at #/$defs', "#/$defs/b"),
        ('no "2" at #/anyOf', "#/anyOf/2"),
        ('no "01" at #/anyOf', "#/anyOf/01"),
        ('no "-1" at #/anyOf', "#/anyOf/-1"),
        ('no "x" at #/$defs/near/$anchor', "#/$defs/near/$anchor/x"),
        ("nothing is ever fetched", "https://example.org/schema.json"),
        ("nothing is ever fetched", "other.json#/a"),
        ("nothing is ever fetched", "value.json"),
        ("nothing is ever fetched", "unknown.json"),
        ("is a metaschema", "http://json-schema.org/draft-07/schema#"),
        ('there is no anchor "name"', "#name"),
        ('there is no anchor "x"', "#x"),
        ('no "default"', "#/default"),
    ],
)
def test_references_that_lead_nowhere_say_why(reason: str, reference: str) -> None:
    """Dangling, remote, where no schema stands, an anchor of another resource, into an annotation."""
    near = {**NAMED["$defs"]["near"], "$anchor": "near"}  # type: ignore[index]
    with pytest.raises(DanglingRefError) as raised:
        target({**NAMED, "$defs": {**NAMED["$defs"], "near": near}, "anyOf": [{}], "default": {}}, reference)  # type: ignore[dict-item]
    assert reason in raised.value.reason


def test_hints_list_the_anchors_that_there_are() -> None:
    """Those of the resource that was asked."""
    with pytest.raises(DanglingRefError) as raised:
        target({"$defs": {"a": {"$anchor": "here"}, "b": {"$id": "b", "$anchor": "there"}}}, "#her")
    assert raised.value.hint == "anchors there: here"


@pytest.mark.parametrize(
    ("draft", "part"),
    [("4", {"id": "part.json"}), ("6", {"$id": "part.json"}), ("7", {"$id": "part.json"}), ("7", {"$id": "#part"})],
)
def test_older_drafts_name_resources_in_their_own_way(draft: str, part: dict[str, Any]) -> None:
    """`id` in draft-04; up to draft-07 a fragment as a name is an anchor."""
    name = next(iter(part.values()))
    rules = grammar({"$schema": OLDER[draft], "definitions": {"p": {**part, "type": "null"}}, "items": {"$ref": name}})
    assert [accepts(rules, text) for text in ("[null]", "[1]")] == [True, False]


def test_a_name_beside_a_reference_is_none_in_older_drafts() -> None:
    """Nothing beside `$ref` counts there, so it is no base either."""
    part = {"$id": "https://example.org/other/", "$ref": "#/definitions/p"}
    schema = {"$schema": OLDER["7"], "definitions": {"p": {"type": "null"}}, "items": part}
    assert [accepts(grammar(schema), text) for text in ("[null]", "[1]")] == [True, False]


def tree(**root: Any) -> dict[str, Any]:
    """A root over an extensible tree, in draft 2020-12."""
    node = {"$id": "tree", "$dynamicAnchor": "node", "type": "object", "additionalProperties": {"$dynamicRef": "#node"}}
    return {"$id": "https://example.org/", "$ref": "tree", "$defs": {"tree": node}, **root}


@pytest.mark.parametrize(
    ("expected", "root"),
    [
        ("#/$defs/tree", {}),
        ("#", {"$dynamicAnchor": "node"}),
        ("#/$defs/tree", {"$anchor": "node"}),
    ],
)
def test_dynamic_references_with_one_possible_target(expected: str, root: dict[str, Any]) -> None:
    """The only dynamic anchor of that name, or the one at the root, which every way passes."""
    assert expected == target(tree(**root), "#node", "#/$defs/tree/additionalProperties", "$dynamicRef")


def test_dynamic_references_with_several_targets_are_named() -> None:
    """Two resources, none of them the root's, and either may have led there."""
    schema = tree(items={"$id": "other", "$dynamicAnchor": "node", "$ref": "tree"})
    with pytest.raises(SchemaError) as raised:
        grammar(schema)
    (finding,) = raised.value.findings
    assert (finding.pointer, finding.keyword) == ("#/$defs/tree/additionalProperties", "$dynamicRef")
    assert "#/$defs/tree, #/items" in finding.reason


@pytest.mark.parametrize(
    ("expected", "root", "inner"),
    [("#", True, True), ("#/$defs/tree", False, True), ("#/$defs/tree", True, False), ("#/$defs/tree", False, False)],
)
def test_recursive_references(expected: str, root: bool, inner: bool) -> None:
    """Draft 2019-09: the outermost resource that says so, if the innermost does."""
    node = {"$id": "tree", "$recursiveAnchor": inner, "items": {"$recursiveRef": "#"}}
    schema = {"$schema": DRAFT_2019, "$id": "https://example.org/", "$recursiveAnchor": root, "$defs": {"tree": node}}
    assert expected == target(schema, "#", "#/$defs/tree/items", "$recursiveRef")


def test_recursive_references_with_several_targets_are_named() -> None:
    """As dynamic ones."""
    parts = {name: {"$id": name, "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}} for name in "ab"}
    schema = {"$schema": DRAFT_2019, "$id": "https://example.org/", "$ref": "a", "$defs": parts}
    with pytest.raises(SchemaError, match="leads to different places"):
        grammar(schema)


def test_a_second_kind_of_reference_beside_the_first() -> None:
    """Both hold."""
    schema = {
        "$defs": {"a": {"$dynamicAnchor": "a", "type": "string"}, "b": {"type": ["string", "null"], "maxLength": 1}},
        "$dynamicRef": "#a",
        "$ref": "#/$defs/b",
        "allOf": [{"minLength": 1}],
    }
    assert [accepts(grammar(schema), text) for text in ('"a"', '""', '"ab"', "null")] == [True, False, False, False]


def test_a_resource_in_another_draft_is_refused() -> None:
    """The same words mean something else in there."""
    schema = {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "a", "$schema": OLDER["7"], "items": [{}]}}}
    with pytest.raises(SchemaError, match="another draft"):
        grammar(schema)
    same = {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "a", "$schema": "https://example.org/mine", "type": "null"}}}
    assert lower(same, OPEN, None)[0] == grammar({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}})
