"""What lies on disk under a key: the tables of one schema, with a label that says what they are.

In: tables and the key they belong to. Out: bytes, and back. An entry carries its key, so that a value that ended up
under another one (a copied file, a foreign program, a flipped bit) is corrupt, never a wrong mask. The label is for
people and listings only; nothing depends on it. Cost: one copy.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from schemas_cache.bytes_cache import StoredValue
from schemas_cache.codec import DIGEST_BYTES, DIGEST_START, FORMAT_VERSION, CorruptEntryError
from schemas_cache.compile import CompiledSchema
from schemas_cache.sight import is_shared
from schemas_cache.source import Source
from schemas_cache.vocabulary import Vocabulary

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A compiled schema that the cache has, described.

    Attributes
    ----------
    schema_hash : str
        SHA-256 of the canonical source.
    vocabulary : str
        Fingerprint of the tokens that it is compiled for.
    kind, options : str
        Of the source.
    states, rows : int
        How many are known.
    minimum_tokens : int
        Tokens that a shortest document takes.
    created_s, last_used_s : float
        Seconds since 1970.
    key : str
        Of the entry.
    size_bytes : int
        On disk; in memory where it is not on disk.
    tier : str
        The nearest that has it.
    """

    schema_hash: str
    vocabulary: str
    kind: str
    options: str
    states: int
    rows: int
    minimum_tokens: int
    created_s: float
    last_used_s: float
    key: str
    size_bytes: int
    tier: Literal["memory", "disk"]


_LABELLED = {
    "schema_hash": str,
    "vocabulary": str,
    "kind": str,
    "options": str,
    "states": int,
    "rows": int,
    "minimum_tokens": int,
    "created_s": float,
}


def cache_key(source: Source, vocabulary: Vocabulary) -> str:
    """SHA-256, as hex, over everything that shapes the tables: source with options, vocabulary, format version."""
    text = f"{source.digest} {vocabulary.fingerprint} {FORMAT_VERSION}"
    return hashlib.sha256(text.encode()).hexdigest()


def row_name(key: str, digest: bytes) -> bytes:
    """Name a mask row among those of its vocabulary, 16 bytes: its digest, if that means the same in every schema."""
    return digest if is_shared(digest) else hashlib.blake2b(bytes.fromhex(key) + digest, digest_size=16).digest()


def tables_entry(key: str, dump: bytes) -> bytes:
    """Label dumped tables with their key."""
    return bytes.fromhex(key) + dump


def tables_from(entry: bytes, key: str) -> memoryview:
    """Return the dumped tables, or raise `CorruptEntryError` if they are not those of `key`."""
    if not entry.startswith(bytes.fromhex(key)):
        raise CorruptEntryError("the entry belongs to another key")
    return memoryview(entry)[KEY_BYTES:]


def stamp_of(entry: bytes) -> bytes:
    """Return what tells one content of an entry from another: the digest in it."""
    start = KEY_BYTES + DIGEST_START
    return entry[start : start + DIGEST_BYTES]


def describe(key: str, compiled: CompiledSchema, created_s: float, last_used_s: float) -> StoredSchema:
    """Describe tables in memory."""
    source, options = compiled.source, compiled.source.options
    words = ("strict" if options.strict else "lenient", options.whitespace, options.additional_properties)
    return StoredSchema(
        compiled.schema_hash,
        compiled.vocabulary.fingerprint,
        source.kind,
        " ".join((*words, options.key_order)),
        compiled.states,
        compiled.rows,
        compiled.minimum_tokens,
        created_s,
        last_used_s,
        key,
        compiled.size_bytes,
        "memory",
    )


def label_of(schema: StoredSchema) -> str:
    """Write the label of an entry."""
    return json.dumps({name: getattr(schema, name) for name in _LABELLED})


def described_by(stored: StoredValue) -> StoredSchema | None:
    """Read the label of an entry; None where it is none, or of an older form."""
    known = _read_label(stored.label)
    if known is None:
        return None
    size_bytes, used_s = stored.size_bytes, stored.last_used_s
    return StoredSchema(**known, last_used_s=used_s, key=stored.key, size_bytes=size_bytes, tier="disk")


def created_by(label: str, otherwise_s: float) -> float:
    """When an entry was made, by its label."""
    known = _read_label(label)
    return otherwise_s if known is None else float(known["created_s"])


def _read_label(text: str) -> dict[str, Any] | None:
    try:
        label = json.loads(text)
        known = {name: label[name] for name in _LABELLED}
    except (TypeError, ValueError, LookupError):
        return None
    return known if all(type(known[name]) is kind for name, kind in _LABELLED.items()) else None
