"""What the mask bent: whole answers against softmax in float64 and masks asked token by token; limits by eye."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.diagnostics import LimitWatch, Position, diagnose
from engine.places import Places
from engine.request import Diagnostics, FieldMass, Request, Sampling, Worst
from engine.sequence import Sequence, choice_of
from schemas_cache import Matcher, SchemaOptions, Vocabulary, compile_source, regex_source, schema_source
from tests.toy import CHARACTERS, TOY, ToyModel, decode, decoder_for, random_logits, rows_for
from tests.toy import given as logits_of

SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 12]}}, "required": ["a", "b"]},
    {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string", "maxLength": 2}, "maxItems": 3}},
    },
    {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 3},
    {"const": {"a": [True, False]}},
    {"type": "string", "maxLength": 4},
]
LOGITS = random_logits(len(TOY))


def pointers_by_parsing(text: str) -> list[str]:
    """Pointer of each character of a JSON text, by a recursive descent of its own."""
    found: list[str] = [""] * len(text)

    def value(at: int, pointer: str) -> int:
        if text[at] in "{[":
            return members(at, pointer)
        end = at + json.JSONDecoder().raw_decode(text[at:])[1]
        found[at:end] = [pointer] * (end - at)
        return end

    def members(at: int, pointer: str) -> int:
        closing, index = ("}" if text[at] == "{" else "]"), 0
        found[at] = pointer
        at += 1
        while text[at] != closing:
            if text[at] in ", \n":
                found[at] = pointer
                at += 1
                continue
            name = str(index)
            if closing == "}":
                name, length = json.JSONDecoder().raw_decode(text[at:])
                end = text.index(":", at + length) + 1
                end += len(text[end:]) - len(text[end:].lstrip())
                found[at:end] = [pointer] * (end - at)
                at = end
            at, index = value(at, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"), index + 1
        found[at] = pointer
        return at + 1

    value(0, "")
    return found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.floats(0, 1) | st.text('a"\\/~é{[:, \n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\/~é ,', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.booleans(), st.sampled_from([None, 2]))
def test_each_byte_belongs_to_the_value_it_stands_in(value: object, ascii_only: bool, indent: int | None) -> None:
    """Keys, separators, blanks and brackets to their container; escapes, nesting and empty containers included."""
    text, places = json.dumps(value, ensure_ascii=ascii_only, indent=indent), Places()
    expected = pointers_by_parsing(text)
    for character, pointer in zip(text, expected, strict=True):
        for byte in character.encode():
            assert pointer == places.pointer(byte)
            places.take(byte)


def limited_in(schema: object, text: str) -> list[str]:
    """Pointers of the values in a text that a limit ended."""
    watch = LimitWatch(compile_source(schema_source(schema), BYTES).matcher())  # type: ignore[arg-type]
    watch.take(text.encode())
    return watch.limited


def of(schema: object) -> dict[str, object]:
    """An object with one member."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


STRING3 = {"type": "string", "maxLength": 3}
REFERRING = {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}
BYTES = Vocabulary([b"", *(bytes([byte]) for byte in range(256))], [0])
NUMBERS2 = {"type": "array", "items": {"type": "integer"}, "maxItems": 2}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRING3, '"abc"', [""]),
        (STRING3, '"ab"', []),
        (STRING3, '""', []),
        (STRING3, '"ab\\n"', [""]),
        (STRING3, '"ab\\u00e9"', [""]),
        (STRING3, '"abé"', [""]),
        (of(STRING3), '{"a": "abc"}', ["/a"]),
        ({"type": "string", "minLength": 3, "maxLength": 3}, '"abc"', [""]),
        ({"type": "string"}, '"abcdefgh"', []),
        ({"type": "string", "pattern": "^[a-z]*$", "maxLength": 3}, '"abc"', [""]),
        ({"type": "string", "pattern": "^[a-z]{1,3}$"}, '"abc"', [""]),
        ({"type": "string", "pattern": "^[0-9]{4}$"}, '"2026"', []),
        ({"const": "abc"}, '"abc"', []),
        ({"enum": ["a", "ab", "abc"]}, '"abc"', []),
        (of({"anyOf": [STRING3, {"type": "null"}]}), '{"a": "abc"}', ["/a"]),
        ({"anyOf": [STRING3, {"type": "string", "pattern": "^[a-c]{5}$"}]}, '"abcab"', []),
        (NUMBERS2, "[1, 22]", [""]),
        (NUMBERS2, "[1]", []),
        (NUMBERS2, "[]", []),
        (of(NUMBERS2), '{"a": [1, 2]}', ["/a"]),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2, 3]", []),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 1}, "[1]", [""]),
        ({"type": "array", "prefixItems": [{"enum": [1]}, {"enum": [2]}], "items": False, "minItems": 2}, "[1, 2]", []),
        ({"type": "array", "prefixItems": [{"enum": [1]}], "items": {"enum": [2]}, "maxItems": 3}, "[1, 2, 2]", [""]),
        ({"type": "array", "prefixItems": [{"enum": [1]}], "items": {"enum": [2]}, "maxItems": 3}, "[1, 2]", []),
        ({"type": "array", "items": STRING3, "maxItems": 2}, '["ab", "abc"]', ["/1", ""]),
        ({"type": "array", "items": {"enum": ["a", "ab"]}, "maxItems": 2}, '["a", "ab"]', [""]),
        ({"type": "array", "items": NUMBERS2, "maxItems": 2}, "[[1, 2], [3]]", ["/0", ""]),
        ({"type": "array", "items": of(NUMBERS2), "maxItems": 2}, '[{"a": [1, 2]}, {"a": [1]}]', ["/0/a", ""]),
        ({**REFERRING, "$defs": {"n": NUMBERS2}}, "[[], [1, 2]]", ["/1", ""]),
    ],
)  # fmt: skip
def test_values_that_a_limit_ended(schema: object, text: str, expected: list[str]) -> None:
    """`maxLength`, `maxItems` and a pattern's bound, reached; not what is fixed, listed, or simply over."""
    assert expected == limited_in(schema, text)


def answers(schema: object, **fields: object) -> list[Sequence]:
    """A few answers with diagnostics, on random logits over the toy vocabulary."""
    source = regex_source(schema) if isinstance(schema, str) else schema and schema_source(schema)  # type: ignore[arg-type]
    asked = Request(
        **{"prompts": ((9, 10),), "max_tokens": 30, "n": 5, "source": source, "diagnostics": True, **fields}
    )  # type: ignore[arg-type]
    rows = rows_for(asked, TOY)
    decode(decoder_for(TOY, ToyModel(len(TOY), LOGITS), max_running=2), rows)
    assert [row.error for row in rows] == [None] * len(rows)
    return rows


def diagnosed(row: Sequence) -> Diagnostics:
    """Its diagnostics."""
    found = choice_of(row).diagnostics
    assert found is not None
    return found


def slow(row: Sequence, pointers: list[str]) -> list[Position]:
    """Every position from the definition: a full softmax in float64, and every token asked for."""
    assert row.job.lookup is not None
    matcher: Matcher = row.job.lookup.compiled.matcher()
    prompt = row.job.request.prompts[row.index // row.job.request.n]
    positions, length = [], 0
    for at, token_id in enumerate(row.token_ids):
        scores = np.asarray(LOGITS((*prompt, *row.token_ids[:at])), np.float32).astype(np.float64)
        weights = np.exp(scores - scores.max())
        allowed = [token for token in range(len(TOY)) if matcher.allows(token)]
        wanted = int(scores.argmax())
        mass = math.fsum(weights[allowed]) / math.fsum(weights)
        positions.append(Position(pointers[length] if pointers else "", mass, wanted, wanted not in allowed, token_id))
        matcher.advance(token_id)
        length += len(TOY.token_bytes[token_id])
    return positions


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(SCHEMAS),
    st.booleans(),
    st.sampled_from([(), (9, 10)]),
    st.sampled_from(["close", "truncate"]),
    st.integers(1, 30),
)
def test_figures_are_those_of_a_full_softmax(
    schema: object, jump: bool, prompt: tuple[int, ...], on_limit: str, limit: int
) -> None:
    """Mass, intervention and pointer of every position, forced ones too, summed up by field and as a whole."""
    for row in answers(schema, jump_forward=jump, prompts=(prompt,), on_limit=on_limit, max_tokens=limit):
        found, text = diagnosed(row), bytes(row.data).decode("ascii", "replace")
        expected = slow(row, pointers_by_parsing(text) if row.complete and text.isascii() else [])
        masses = [position.allowed_mass for position in expected]
        assert (len(expected), row.forced_tokens) == (found.total, found.forced)
        assert sum(position.intervened for position in expected) == found.intervened
        assert [math.fsum(masses) / len(masses), min(masses)] == pytest.approx(
            [found.mean_mass, found.min_mass], abs=1e-5
        )
        assert found.worst is not None
        worst = expected[found.worst.token_index]
        assert worst.allowed_mass == pytest.approx(min(masses), abs=1e-5)
        assert (worst.wanted_id, worst.got_id) == (found.worst.wanted_id, found.worst.got_id)
        if not (row.complete and text.isascii()):
            continue
        assert worst.pointer == found.worst.pointer
        assert list(dict.fromkeys(position.pointer for position in expected)) == [one.pointer for one in found.fields]
        for one in found.fields:
            mine = [position for position in expected if position.pointer == one.pointer]
            masses = [position.allowed_mass for position in mine]
            figures = [math.fsum(masses) / len(masses), min(masses)]
            assert figures == pytest.approx([one.mean_mass, one.min_mass], abs=1e-5)
            assert sum(position.intervened for position in mine) == one.intervened


def test_a_limit_is_told_by_field() -> None:
    """A model that never closes a string by itself: the field says that the limit did."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"enum": ["abc"]}},
        "required": ["a", "b"],
    }
    asked = Request(((),), 30, sampling=Sampling(temperature=0), source=schema_source(schema), diagnostics=True)
    rows = rows_for(asked, TOY)
    decode(decoder_for(TOY, ToyModel(len(TOY), logits_of(len(TOY), {9: 5.0}))), rows)
    assert choice_of(rows[0]).text == '{"a": "aaa", "b": "abc"}'
    ended = {field.pointer: field.ended_by_limit for field in diagnosed(rows[0]).fields}
    assert ended["/a"]
    assert not any(value for pointer, value in ended.items() if pointer != "/a")


def test_text_of_a_pattern_and_free_text_have_one_field() -> None:
    """Quotes and brackets in them are no JSON."""
    for source in ('"[ab]{1,3}"\\]', None):
        for row in answers(source, max_tokens=6):
            assert [""] == [field.pointer for field in diagnosed(row).fields]
            assert not diagnosed(row).fields[0].ended_by_limit


def test_free_text_is_hardly_bent() -> None:
    """All that is left out of it are tokens without text."""
    for row in answers(None, max_tokens=6):
        special = [int(np.argmax(LOGITS((9, 10, *row.token_ids[:at])))) == 1 for at in range(len(row.token_ids))]
        assert sum(special) == diagnosed(row).intervened
        assert diagnosed(row).min_mass > 0.5


def test_any_order_and_open_keys_have_their_pointers() -> None:
    """Pointers are read off the text, so they are right whatever the schema says of keys."""
    schema = {"type": "object", "additionalProperties": {"enum": [1]}, "maxProperties": 2, "minProperties": 2}
    source = schema_source(schema, SchemaOptions())
    asked = Request(((),), 40, source=source, diagnostics=True, sampling=Sampling(temperature=0))
    logits = {'"': 3.0, "a": 2.0}
    favour = {CHARACTERS.token_bytes.index(text.encode()): value for text, value in logits.items()}
    rows = rows_for(asked, CHARACTERS)
    decode(decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), logits_of(len(CHARACTERS), favour))), rows)
    keys = list(json.loads(choice_of(rows[0]).text))
    assert {"", *(f"/{key}" for key in keys)} == {field.pointer for field in diagnosed(rows[0]).fields}


def test_an_answer_without_tokens_is_not_bent() -> None:
    """Nothing was there to be forbidden."""
    assert Diagnostics(0, 0, 0, 1.0, 1.0, None, ()) == diagnosed(answers(SCHEMAS[4], max_tokens=0)[0])


def test_sum_by_eye() -> None:
    """Three positions in two fields."""
    positions = [Position("", 0.5, 3, False, 3), Position("/a", 0.1, 4, True, 5), Position("", 0.9, 6, True, 7)]
    found = diagnose(positions, forced=1, limited=["/a"])
    assert (3, 1, 2, 0.5, 0.1) == (found.total, found.forced, found.intervened, found.mean_mass, found.min_mass)
    assert Worst(1, "/a", 4, 5, 0.1) == found.worst
    whole, field = found.fields
    assert FieldMass("", 0.7, 0.5, 1, False) == whole
    assert FieldMass("/a", 0.1, 0.1, 1, True) == field


def test_diagnostics_alone_keep_no_logprobs() -> None:
    """Only what was asked for."""
    assert choice_of(answers(SCHEMAS[0])[0]).logprobs is None
