"""What lies on disk under a key: labelled, so that no value is ever taken for another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas_cache import entries
from schemas_cache.codec import CorruptEntryError, pack
from schemas_cache.entries import cache_key, rows_entry, rows_from, tables_entry, tables_from
from schemas_cache.schema.options import SchemaOptions
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
    assert tables_from(tables_entry(KEY, b"tables"), KEY) == b"tables"


@pytest.mark.parametrize("entry", [b"", b"tables", tables_entry(OTHER_KEY, b"tables")])
def test_tables_of_another_key_are_corrupt(entry: bytes) -> None:
    """Nothing but a value stored under this key is taken for its tables."""
    with pytest.raises(CorruptEntryError):
        tables_from(entry, KEY)


@given(st.dictionaries(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8)))
def test_rows_come_back(rows: dict[bytes, bytes]) -> None:
    """Rows survive packing, none and many."""
    assert rows_from(rows_entry(KEY, rows, 8), KEY, 8) == rows


@pytest.mark.parametrize(("key", "row_bytes"), [(OTHER_KEY, 8), (KEY, 4), (KEY, 16)])
def test_rows_of_another_key_or_length_are_corrupt(key: str, row_bytes: int) -> None:
    """Rows stored under another key, or for another number of tokens, are not read."""
    with pytest.raises(CorruptEntryError):
        rows_from(rows_entry(KEY, {bytes(16): bytes(8)}, 8), key, row_bytes)


def test_tables_are_no_rows() -> None:
    """A container without rows in it is corrupt as rows."""
    with pytest.raises(CorruptEntryError):
        rows_from(pack({"key": KEY}, {}), KEY, 8)


def test_rows_beyond_the_limit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows stay where all would be too many."""
    monkeypatch.setattr(entries, "ROWS_LIMIT_BYTES", 24)
    rows = {bytes([n]) * 16: bytes([n]) * 8 for n in range(9)}
    assert list(rows_from(rows_entry(KEY, rows, 8), KEY, 8)) == list(rows)[:3]
