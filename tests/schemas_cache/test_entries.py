"""What lies on disk under a key: labelled, so that no value is ever taken for another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas_cache.bytes_cache import StoredValue
from schemas_cache.codec import CorruptEntryError
from schemas_cache.compile import compile_regex, compile_source
from schemas_cache.entries import (
    cache_key,
    describe,
    described_by,
    label_of,
    row_name,
    stamp_of,
    tables_entry,
    tables_from,
)
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.sight import is_shared, shared_digest
from schemas_cache.source import choice_source, json_object_source, regex_source, schema_source
from schemas_cache.vocabulary import Vocabulary

VOCABULARY = Vocabulary([b"a", b""], [1])
KEY = cache_key(regex_source("a"), VOCABULARY)
OTHER_KEY = cache_key(regex_source("b"), VOCABULARY)


def test_equal_requests_have_equal_keys() -> None:
    """The same schema and tokens, built twice and annotated differently, share a key."""
    first = cache_key(schema_source({"type": "integer"}), VOCABULARY)
    second = cache_key(schema_source({"type": "integer", "title": "A number"}), Vocabulary([b"a", b"end"], [1]))
    assert first == second


def test_whatever_shapes_the_language_shapes_the_key() -> None:
    """Kind, content, each option, a token and an end token each give another key."""
    sources = [
        schema_source({"enum": ["a"]}),
        schema_source({"enum": ["b"]}),
        schema_source({"enum": ["a"]}, SchemaOptions(whitespace="compact")),
        schema_source({"enum": ["a"]}, SchemaOptions(strict=False)),
        schema_source({"enum": ["a"]}, SchemaOptions(key_order="any")),
        schema_source({"enum": ["a"]}, SchemaOptions(additional_properties="open")),
        json_object_source(),
        regex_source("a"),
        choice_source(["a"]),
    ]
    vocabularies = [VOCABULARY, Vocabulary([b"b", b""], [1]), Vocabulary([b"a", b""], [])]
    keys = {cache_key(source, vocabulary) for source in sources for vocabulary in vocabularies}
    assert len(sources) * len(vocabularies) == len(keys)


def test_tables_come_back() -> None:
    """The dump of tables survives its label."""
    assert bytes(tables_from(tables_entry(KEY, b"tables"), KEY)) == b"tables"


@pytest.mark.parametrize("entry", [b"", b"tables", tables_entry(OTHER_KEY, b"tables")])
def test_tables_of_another_key_are_corrupt(entry: bytes) -> None:
    """Nothing but a value stored under this key is taken for its tables."""
    with pytest.raises(CorruptEntryError):
        tables_from(entry, KEY)


def test_a_stamp_tells_contents_apart() -> None:
    """Entries of one key have one stamp where their tables are equal, and different ones where they are not."""
    compiled = compile_source(json_object_source(), Vocabulary([bytes([byte]) for byte in range(256)], []))
    first, again = (tables_entry(KEY, compiled.dump()) for _ in range(2))
    compiled.matcher().advance_bytes(b'{"a": 1}')
    assert stamp_of(first) == stamp_of(again) != stamp_of(tables_entry(KEY, compiled.dump()))


def test_rows_of_two_schemas_have_two_names_unless_digests_are_content() -> None:
    """A digest that depends on the numbers of one schema's states is never taken for another's."""
    assert row_name(KEY, bytes(16)) == row_name(KEY, bytes(16)) != row_name(OTHER_KEY, bytes(16))
    assert row_name(KEY, bytes(16)) != row_name(KEY, bytes([2] * 16))
    shared = shared_digest("a text")
    assert is_shared(shared)
    assert row_name(KEY, shared) == row_name(OTHER_KEY, shared) == shared


def test_a_label_says_what_an_entry_is() -> None:
    """What is written beside an entry comes back as its description."""
    compiled = compile_regex("ab*", VOCABULARY)
    about = describe(KEY, compiled, 1.5, 2.5)
    read = described_by(StoredValue(KEY, label_of(about), 7, 2.5))
    assert read == replace(about, size_bytes=7, tier="disk")
    assert (compiled.schema_hash, VOCABULARY.fingerprint, "regex") == (about.schema_hash, about.vocabulary, about.kind)


@pytest.mark.parametrize("label", ["", "{}", "[]", "null", '{"schema_hash": 1}', "\0", None])
def test_a_foreign_label_is_no_description(label: str) -> None:
    """A label that was damaged, or that another program wrote, is left out of listings."""
    assert described_by(StoredValue(KEY, label, 7, 2.5)) is None
