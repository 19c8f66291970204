"""The tokens as bytes: all that a mask needs to know of a tokenizer.

In: the bytes of each token and the ids that end a text, or a tokenizer.json or GGUF file that holds them. Out:
`Vocabulary`, frozen, with a fingerprint that names it in cache keys. Cost: linear in the bytes; for 49,152 tokens of a
GGUF file 0.2 s. Rejected: token strings, since every tokenizer family spells
bytes in strings in its own way (pieces.py), and masks are decided over bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from schemas_cache.gguf_header import GgufHeader, read_gguf_header
from schemas_cache.pieces import gguf_bytes, tokenizer_json_bytes


class Vocabulary:
    """Bytes of every token, by id, and which ids end a text. Frozen; may be shared between threads.

    Parameters
    ----------
    token_bytes : sequence of bytes, length V
        What each token stands for. Special and control tokens, and ids without a token, are empty bytes: they are never
        allowed by a mask, but for the end tokens.
    end_ids : iterable of int
        Tokens that end a text; allowed exactly where the text may end. May be empty. Their bytes are ignored.

    Raises
    ------
    ValueError
        For an end id outside the vocabulary, or no token at all.
    """

    def __init__(self, token_bytes: Sequence[bytes], end_ids: Iterable[int]) -> None:
        if not token_bytes:
            raise ValueError("a vocabulary has one token at least")
        self.end_ids = tuple(sorted(set(end_ids)))
        for end_id in self.end_ids:
            if not 0 <= end_id < len(token_bytes):
                raise ValueError(f"end id {end_id} is outside the vocabulary of {len(token_bytes)} tokens")
        ends = set(self.end_ids)
        self.token_bytes = tuple(b"" if i in ends else bytes(data) for i, data in enumerate(token_bytes))

    @classmethod
    def from_tokenizer_json(cls, path: str | Path, end_ids: Iterable[int] | None = None) -> Vocabulary:
        """The vocabulary of a tokenizer.json of the tokenizers library.

        Parameters
        ----------
        path : path
            The file. It does not say which tokens end a text.
        end_ids : iterable of int, optional
            Those tokens. Without it, what a generation_config.json, config.json or tokenizer_config.json in the same
            folder says, the first that says anything.

        Raises
        ------
        ValueError
            When its pieces do not stand for fixed bytes, or no end token is given or found.
        """
        path = Path(path)
        document = json.loads(path.read_text("utf-8"))
        token_bytes = tokenizer_json_bytes(document)
        return cls(token_bytes, _end_ids_beside(path, document) if end_ids is None else end_ids)

    @classmethod
    def from_gguf(cls, path: str | Path, end_ids: Iterable[int] | None = None) -> Vocabulary:
        """The vocabulary of a GGUF model file; only its header is read.

        Parameters
        ----------
        path : path
            The file.
        end_ids : iterable of int, optional
            Tokens that end a text; without it, the file's end tokens of text, turn and message.

        Raises
        ------
        ValueError
            When the file names no end token and none is given, or for a family without fixed bytes.
        """
        return cls.from_gguf_header(read_gguf_header(path), path, end_ids)

    @classmethod
    def from_gguf_header(cls, header: GgufHeader, path: str | Path, end_ids: Iterable[int] | None = None) -> Vocabulary:
        """The same of a header that was read already; `path` is for messages."""
        family, pieces = _gguf_value(header, "model"), _gguf_value(header, "tokens")
        if family is None or pieces is None:
            raise ValueError(f"{path}: the file has no tokenizer")
        return cls(
            gguf_bytes(family, pieces, _gguf_value(header, "token_type")),
            _gguf_end_ids(header, path) if end_ids is None else end_ids,
        )

    def __len__(self) -> int:
        return len(self.token_bytes)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over token bytes and end ids, as hex; equal vocabularies have equal fingerprints."""
        digest = hashlib.sha256()
        for data in self.token_bytes:
            digest.update(len(data).to_bytes(4, "little") + data)
        digest.update(repr(self.end_ids).encode())
        return digest.hexdigest()

    @cached_property
    def single_bytes(self) -> frozenset[int]:
        """Byte values that are a token of their own."""
        return frozenset(data[0] for data in self.token_bytes if len(data) == 1)

    @cached_property
    def characters(self) -> frozenset[str] | None:
        """The characters that the vocabulary is made of, or None where it can spell any bytes or is neither.

        A vocabulary is *made of characters* when every token is whole characters and each of them is also a token of
        its own: then a text can be spelled exactly if all its characters are in this set.
        """
        if len(self.single_bytes) == 256:
            return None
        try:
            texts = [data.decode("utf-8") for data in self.token_bytes if data]
        except UnicodeDecodeError:
            return None
        single = frozenset(text for text in texts if len(text) == 1)
        return single if all(set(text) <= single for text in texts) else None

    @cached_property
    def spellable_bytes(self) -> frozenset[int] | None:
        """The bytes that the vocabulary is made of, or None where it is not made of bytes.

        A vocabulary is *made of bytes* when every byte of every token is also a token of its own: then exactly the
        texts of these bytes can be spelled.
        """
        return self.single_bytes if all(self.single_bytes.issuperset(data) for data in self.token_bytes) else None

    @cached_property
    def has_holes(self) -> bool:
        """Whether it is made neither of bytes nor of characters, so that a text may begin and have no spelled end."""
        return self.spellable_bytes is None and self.characters is None

    @cached_property
    def longest_token_bytes(self) -> int:
        """Length of the longest token in bytes: how far one mask can look ahead."""
        return max((len(data) for data in self.token_bytes), default=0)


def _end_ids_beside(path: Path, document: dict[str, Any]) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        found = _json_or_empty(path.with_name(name)).get("eos_token_id")
        if found is not None:
            return found if isinstance(found, list) else [found]
    token = _json_or_empty(path.with_name("tokenizer_config.json")).get("eos_token")
    content = token["content"] if isinstance(token, dict) else token
    ids = [added["id"] for added in document.get("added_tokens") or () if added["content"] == content]
    if not ids:
        raise ValueError(f"{path}: no file beside it says which token ends a text; give end_ids")
    return ids


def _json_or_empty(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return loaded


def _gguf_end_ids(header: GgufHeader, path: str | Path) -> list[int]:
    found = [_gguf_value(header, name) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    if found == [None] * len(found):
        raise ValueError(f"{path}: the file names no end token; give end_ids")
    return [token_id for token_id in found if token_id is not None]


def _gguf_value(header: GgufHeader, name: str) -> Any:
    """Value of `tokenizer.ggml.<name>`, or None."""
    return header.metadata.get(f"tokenizer.ggml.{name}")
