"""What is said of schemas that are broken, impossible or ask for too much."""

from typing import Any

import pytest

from schemas_cache.errors import SchemaError, SchemaTooComplexError, UnsatisfiableSchemaError
from schemas_cache.schema import SchemaOptions, lower
from tests.schemas_cache.schema.documents import OPEN, accepts, grammar

LOOSE = SchemaOptions(strict=False)
MANY_NAMES = {"properties": {f"{i:04d}" * 3: True for i in range(3000)}, "additionalProperties": True}


def findings(schema: Any) -> list[tuple[str, str, str]]:
    """Position, keyword and reason of everything that is wrong with a schema."""
    with pytest.raises(SchemaError) as raised:
        grammar(schema, SchemaOptions())
    return [(finding.pointer, finding.keyword, finding.reason) for finding in raised.value.findings]


@pytest.mark.parametrize(
    ("pointer", "keyword", "reason", "schema"),
    [
        ("#", "type", "expected a type name, found 5", {"type": 5}),
        ("#", "type", 'expected a type name, found "strng"', {"type": "strng"}),
        ("#", "type", "expected at least one type, found an empty list", {"type": []}),
        ("#", "type", 'the type "null" is listed twice', {"type": ["null", "null"]}),
        ("#", "properties", "expected an object of schemas, found an empty list", {"properties": []}),
        ("#", "required", 'expected a list of names, found "a"', {"required": "a"}),
        (
            "#/properties/a",
            "required",
            "expected a list of names, found true",
            {"properties": {"a": {"required": True}}},
        ),
        ("#", "required", 'the name "a" is listed twice', {"required": ["a", "a"]}),
        ("#", "minLength", "expected an integer from 0, found -1", {"minLength": -1}),
        ("#", "maxItems", "expected an integer from 0, found 1.5", {"maxItems": 1.5}),
        ("#", "minItems", "expected an integer from 0, found true", {"minItems": True}),
        ("#", "minimum", 'expected a number, found "3"', {"minimum": "3"}),
        ("#", "exclusiveMinimum", "expected a number, found true", {"exclusiveMinimum": True}),
        ("#", "enum", "expected a list of values, found an empty list", {"enum": []}),
        ("#", "enum", "expected a list of values, found an object", {"enum": {"a": 1}}),
        ("#", "anyOf", "expected a list of schemas, found an empty list", {"anyOf": []}),
        ("#/anyOf/1", "", "expected a schema: an object, true or false", {"anyOf": [True, 3]}),
        ("#/items", "", "expected a schema: an object, true or false", {"items": None}),
        ("#", "pattern", "expected a string, found 5", {"pattern": 5}),
        ("#", "$ref", '"#/$defs/x" points to nothing: there is no "$defs" at #', {"$ref": "#/$defs/x"}),
        ("#", "$ref", "expected a string, found 1", {"$ref": 1}),
        ("#", "$defs", "expected an object of schemas, found 1", {"$defs": 1}),
        ("#/$defs/unused", "type", "expected a type name, found 1", {"$defs": {"unused": {"type": 1}}}),
        ("#", "requird", '"requird" is no JSON Schema keyword', {"requird": ["a"]}),
        ("#", "nullable", '"nullable" is no JSON Schema keyword', {"nullable": True}),
        ("#", "anyof", '"anyof" is no JSON Schema keyword', {"anyof": [{"type": "null"}]}),
        ("#", "allOf", "expected a list of schemas, found an object", {"allOf": {}}),
        ("#", "oneOf", "expected a list of schemas, found an empty list", {"oneOf": []}),
        ("#/not", "", "expected a schema: an object, true or false", {"not": 1}),
        ("#", "$schema", "draft-03 cannot be enforced", {"$schema": "http://json-schema.org/draft-03/schema#"}),
        ("#", "multipleOf", "expected a number above 0, found 0", {"multipleOf": 0}),
        ("#", "", "expected a schema: an object, true or false", []),
        ("#", "", "expected a schema: an object, true or false", "string"),
    ],
)
def test_each_fault_is_named(pointer: str, keyword: str, reason: str, schema: Any) -> None:
    """Where it is, which keyword, what was expected and what stands there."""
    assert [(pointer, keyword, reason)] == findings(schema)


def test_all_findings_come_at_once_in_document_order() -> None:
    """Faults of form, unknown words, unenforceable keywords and dangling references in one error."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "strin", "minLength": -1},
            "b": {"type": "array", "items": {}, "uniqueItems": True},
            "c": {"$ref": "#/$defs/gone"},
            "d": {"type": "string", "pattern": "(?=a)"},
        },
        "requird": ["a"],
        "not": {"uniqueItems": True},
        "oneOf": [{"propertyNames": {"maxLength": 3}}, {"required": ["b"]}],
    }
    expected = [
        ("#", "requird"),
        ("#/properties/a", "type"),
        ("#/properties/a", "minLength"),
        ("#/properties/c", "$ref"),
        ("#", "not"),
        ("#", "oneOf"),
        ("#/properties/b", "uniqueItems"),
        ("#/properties/d", "pattern"),
    ]
    assert expected == [(pointer, keyword) for pointer, keyword, _ in findings(schema)]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        ('did you mean "required"?', {"requird": ["a"]}),
        ('did you mean "string"?', {"type": "strng"}),
        ('did you mean "additionalProperties"?', {"additionalProperty": False}),
        ('did you mean "properties"?', {"propertys": {"a": True}}),
        ('write "type": ["string", "null"] or add {"type": "null"} to anyOf', {"nullable": True}),
        ("present there: a, b", {"$defs": {"a": {}, "b": {}}, "$ref": "#/$defs/c"}),
        ('copy the definition into "$defs" and write "#/$defs/name"', {"$ref": "https://example.org/s"}),
        ('did you mean "minLength"?', {"min_length": 1}),
    ],
)
def test_hints_show_the_way_out(hint: str, schema: Any) -> None:
    """The nearest word, what is there, or how to write it otherwise."""
    with pytest.raises(SchemaError) as raised:
        grammar(schema)
    assert [hint] == [finding.hint for finding in raised.value.findings]


@pytest.mark.parametrize(
    ("pointers", "schema"),
    [
        (["#"], {"$ref": "#"}),
        (["#/$defs/a"], {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        (["#/$defs/a"], {"$defs": {"a": {"$ref": "#/$defs/a", "minLength": 1}}, "items": {"$ref": "#/$defs/a"}}),
    ],
)
def test_references_that_only_lead_back_are_named(pointers: list[str], schema: Any) -> None:
    """A loop of references is unsatisfiable, and the error shows its way round."""
    with pytest.raises(UnsatisfiableSchemaError, match="only leads back to itself") as raised:
        grammar(schema)
    assert pointers == [finding.pointer for finding in raised.value.findings]


@pytest.mark.parametrize(
    ("reason", "schema"),
    [
        ("no value", False),
        ("no string has at least 3 and at most 2 characters", {"type": "string", "minLength": 3, "maxLength": 2}),
        ("no integer is at least 4 and at most 3", {"type": "integer", "exclusiveMinimum": 3, "maximum": 3.5}),
        ("no array has at least 2 and at most 1 elements", {"type": "array", "minItems": 2, "maxItems": 1}),
        ("none of the values satisfies the other keywords", {"type": "string", "enum": [1, None]}),
        ('the property "a" is required', {"type": "object", "required": ["a"], "additionalProperties": False}),
        ("no array has at least 1 and at most 0", {"type": "array", "items": False, "minItems": 1}),
        ("no value", {"type": "string", "not": {"type": "string"}}),
        ("no value", {"oneOf": [{"type": "null"}, {"type": "null"}]}),
        ("no value", {"type": "string", "anyOf": [{"type": "integer"}, {"type": "null"}]}),
        ("finite", {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        ("finite", {"type": "array", "items": {"$ref": "#"}, "minItems": 1}),
        ("finite", {"anyOf": [{"$ref": "#"}]}),
        ("no value", {"anyOf": [{"$ref": "#"}], "minLength": 1}),
    ],
)
def test_impossible_schemas_are_found(reason: str, schema: Any) -> None:
    """Contradictions and requirements without an end, with what contradicts."""
    with pytest.raises(UnsatisfiableSchemaError, match=reason):
        grammar(schema, SchemaOptions())


def test_an_impossible_branch_is_only_left_out() -> None:
    """What cannot be finished vanishes; the rest stands."""
    endless = {"type": "object", "properties": {"a": {"$ref": "#/anyOf/0"}}, "required": ["a"]}
    rules = grammar({"anyOf": [endless, {"type": "string", "minLength": 2, "maxLength": 1}, {"const": 1}]})
    assert [text for text in ("1", "{}", '{"a": {}}', '""') if accepts(rules, text)] == ["1"]


def test_loose_mode_drops_and_lists() -> None:
    """With `strict=False` what cannot be enforced is a warning, and the rest is enforced."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "null"}, "uniqueItems": True, "not": {"uniqueItems": True}},
            "b": {"type": "string", "pattern": "(?=a)", "maxLength": 1},
            "c": {"if": {"propertyNames": {"maxLength": 3}}, "then": {"type": "null"}},
        },
        "nullable": True,
    }
    rules, warnings = lower(schema, LOOSE, None)
    expected = [
        ("#", "nullable"),
        ("#/properties/a", "not"),
        ("#/properties/b", "pattern"),
        ("#/properties/c", "if"),
    ]
    assert expected == [(warning.pointer, warning.keyword) for warning in warnings if not warning.is_note]
    assert accepts(rules, '{"a": [], "b": "x", "c": 1}')
    assert not accepts(rules, '{"b": "xx"}')


def test_loose_mode_does_not_forgive_faults_of_form() -> None:
    """A malformed keyword is an error in any mode."""
    with pytest.raises(SchemaError, match="expected a list of names"):
        lower({"required": "a"}, LOOSE, None)


def test_definitions_out_of_reach_may_ask_for_anything() -> None:
    """They cannot change the result, so there is nothing to enforce."""
    assert accepts(grammar({"$defs": {"a": {"format": "date", "allOf": [{}]}}, "type": "null"}), "null")


def test_extensions_and_annotations_are_ignored() -> None:
    """`x-` words, annotations, names, and keywords that say nothing."""
    schema = {"type": "array", "x-order": [1], "title": "T", "uniqueItems": False, "id": "root", "items": {"$id": "i"}}
    assert (grammar({"type": "array", "items": {}}), ()) == lower(schema, OPEN, None)


def test_unknown_words_pass_with_a_warning() -> None:
    """Each once, as a note: the standard takes them for annotations, so nothing is lost."""
    texts = "name form javaType _format copyright self options defaultSnippets markdownDescription units container"
    words = dict.fromkeys(texts.split(), "a") | {"nullable": False, "optional": True, "readonly": True, "example": {}}
    rules, warnings = lower({"type": "null", **words}, SchemaOptions(), None)
    assert accepts(rules, "null")
    assert [(word, True) for word in words] == [(warning.keyword, warning.is_note) for warning in warnings]
    _, once = lower({"items": {"name": 1}, "additionalProperties": {"name": 2}}, SchemaOptions(), None)
    assert ["#/items"] == [warning.pointer for warning in once]


def test_words_newer_than_the_draft_are_ignored() -> None:
    """A draft that does not know a keyword takes it for an annotation; there is a warning."""
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "const": 1, "items": {"if": {}, "then": False}}
    rules, warnings = lower(schema, SchemaOptions(), None)
    assert accepts(rules, "[2]")
    assert ["const", "if", "then"] == [warning.keyword for warning in warnings]


def test_an_unknown_dialect_is_read_as_the_newest_draft() -> None:
    """With a warning."""
    rules, warnings = lower({"$schema": "https://example.org/my-dialect", "const": 1}, SchemaOptions(), None)
    assert [accepts(rules, text) for text in ("1", "2")] == [True, False]
    assert [("#", "$schema")] == [(warning.pointer, warning.keyword) for warning in warnings]


def test_integers_of_draft_4_have_no_fraction() -> None:
    """There 1.0 is a number and no integer; later it is."""
    schema = {"type": "integer"}
    texts = ("1", "1.0")
    assert [True, True] == [accepts(grammar(schema), text) for text in texts]
    older = grammar({"$schema": "http://json-schema.org/draft-04/schema#", **schema})
    assert [True, False] == [accepts(older, text) for text in texts]


@pytest.mark.parametrize(
    ("accepted", "rejected", "extra"),
    [(["3", "4"], ["2", "5"], {"maximum": 5, "exclusiveMaximum": True}), (["3"], ["2"], {"exclusiveMaximum": False})],
)
def test_draft_4_bounds(accepted: list[str], rejected: list[str], extra: dict[str, Any]) -> None:
    """The boolean spelling is read where `$schema` names that draft."""
    draft = {"$schema": "http://json-schema.org/draft-04/schema#"}
    rules = grammar(draft | {"type": "integer", "minimum": 2, "exclusiveMinimum": True} | extra)
    assert (accepted, []) == (
        [text for text in accepted if accepts(rules, text)],
        [text for text in rejected if accepts(rules, text)],
    )


def test_older_drafts_ignore_what_stands_beside_a_reference() -> None:
    """Up to draft-07, with a warning for each keyword that does not count."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "string"}},
        "$ref": "#/definitions/a",
        "maxLength": 1,
    }
    rules, warnings = lower(schema, SchemaOptions(), None)
    assert accepts(rules, '"abc"')
    assert [(warning.pointer, warning.keyword) for warning in warnings] == [("#", "maxLength")]


def test_open_keys_that_cannot_all_be_spelled_have_an_automaton_and_its_limit() -> None:
    """Where characters are lacking, all names but the declared ones are a product; with all characters they are not."""
    with pytest.raises(SchemaTooComplexError, match="20000 states"):
        lower(MANY_NAMES, SchemaOptions(), frozenset(map(chr, range(0x20, 0x7F))))
    assert lower(MANY_NAMES, SchemaOptions(), None)


@pytest.mark.parametrize(
    ("figure", "schema"),
    [
        ("10001 properties", {"properties": {str(i): True for i in range(10_001)}}),
        ("20001 enum values", {"enum": list(range(20_001))}),
        ("4096", {"$defs": {str(i): {"anyOf": [{"minLength": i}, {"maxLength": 90 - i}]} for i in range(13)}}),
    ],
)
def test_limits_are_named_with_the_figure(figure: str, schema: Any) -> None:
    """One more than the limit is refused, with the figure in the text."""
    if "$defs" in schema:  # all thirteen choices at once, by a chain of references
        for i in range(12):
            schema["$defs"][str(i)]["$ref"] = f"#/$defs/{i + 1}"
        schema["$ref"] = "#/$defs/0"
    with pytest.raises(SchemaTooComplexError, match=figure):
        grammar(schema)


@pytest.mark.parametrize(("name", "figure"), [("MAX_MERGED", "2"), ("MAX_RULES", "3")])
def test_merging_and_rules_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str, figure: str) -> None:
    """However references and unions meet, the bounds hold for the schema as a whole."""
    monkeypatch.setattr(f"schemas_cache.schema.lowering.{name}", int(figure))
    pair = {"type": "string", "anyOf": [{"minLength": 3}, {"maxLength": 1}]}
    schema = {"type": "object", "properties": dict.fromkeys("abcd", pair)}
    with pytest.raises(SchemaTooComplexError, match=f"more than {figure}"):
        grammar(schema)


def test_values_beside_a_circular_union_are_refused() -> None:
    """The validator that filters listed values would not survive a union that leads back to itself."""
    schema = {
        "$defs": {"loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "null"}]}},
        "enum": [[None]],
        "items": {"$ref": "#/$defs/loop"},
    }
    with pytest.raises(SchemaError, match="leads back to itself"):
        grammar(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a)"},
        {"type": "string", "pattern": "[a"},
        {"type": "string", "pattern": "a{2,1}"},
        {"type": "string", "pattern": "a++"},
        {"type": "string", "not": {"pattern": "(a"}},
        {"type": "object", "patternProperties": {"[z-a]": {"type": "integer"}}},
        {"type": "object", "propertyNames": {"pattern": "\\"}, "additionalProperties": True},
    ],
)
def test_a_malformed_pattern_is_an_error_under_either_strictness(schema: dict[str, object]) -> None:
    """`strict=False` drops what cannot be enforced, not what is no pattern at all."""
    for options in (SchemaOptions(), LOOSE):
        with pytest.raises(SchemaError):
            lower(schema, options, None)


@pytest.mark.parametrize("pattern", ["(?=a)a", r"\bword", r"\z", r"(a)\1", "(?i:a)"])
def test_a_pattern_that_cannot_be_enforced_is_dropped_under_loose_options(pattern: str) -> None:
    """Well-formed in some reading of ECMA-262, and beyond an automaton: a warning under `strict=False`."""
    with pytest.raises(SchemaError):
        lower({"type": "string", "pattern": pattern}, SchemaOptions(), None)
    _, warnings = lower({"type": "string", "pattern": pattern}, LOOSE, None)
    assert ["pattern"] == [warning.keyword for warning in warnings]
