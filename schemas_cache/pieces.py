"""What bytes the pieces of a tokenizer stand for.

In: the pieces of a tokenizer.json or of a GGUF file, which are strings, and how that family spells bytes in them. Out:
bytes per token id, empty for special tokens and for ids without a token. Cost: linear, a fraction of a second for
50,000 tokens. Sources: the byte alphabet of GPT-2 (`bytes_to_unicode` in its encoder.py), SentencePiece's
`▁` and `<0x0A>`, the decoders of the tokenizers library, the token types of the GGUF specification.

Each sign is translated in its own kind of tokenizer only: `▁` is a blank where blanks are so written and a character of
its own elsewhere, `Ġ` likewise. Families whose pieces do not stand for fixed bytes (WordPiece, `</w>` suffixes) are
refused: a mask over guessed bytes would accept what it must not. Rejected: asking a tokenizer to decode each id, which
drops leading blanks and turns parts of characters into U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gguf import TokenType


@dataclass(frozen=True, slots=True)
class Spelling:
    """How pieces spell bytes; nothing set: as the characters they are."""

    byte_level: bool = False  # one character of GPT-2's alphabet per byte
    blank_sign: bool = False  # ▁ is a blank
    byte_names: bool = False  # <0x0A> is one byte


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte: itself where it shows in Latin-1, else the next code point from 256 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(256)) - set(shown))
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_level_alphabet()
_BYTE_NAME = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_BLANK_SIGN = "▁"


def piece_bytes(piece: str, spelling: Spelling) -> bytes:
    """Bytes that one piece stands for.

    A byte-level piece with a character outside the alphabet stands for itself, as for the library's own decoder.
    """
    if spelling.byte_names and (name := _BYTE_NAME.fullmatch(piece)):
        return bytes([int(name[1], 16)])
    if spelling.byte_level and all(character in _BYTE_OF for character in piece):
        return bytes(_BYTE_OF[character] for character in piece)
    return (piece.replace(_BLANK_SIGN, " ") if spelling.blank_sign else piece).encode("utf-8")


def tokenizer_json_bytes(document: Mapping[str, Any]) -> list[bytes]:
    """Bytes of each token of a tokenizer.json of the tokenizers library, by id.

    Raises
    ------
    ValueError
        When its pieces do not stand for fixed bytes.
    """
    spelling = _spelling_of(document)
    model = document["model"]
    pieces = _model_pieces(model)
    found = {token_id: piece_bytes(piece, spelling) for piece, token_id in pieces.items()}
    found |= {
        token["id"]: b"" if token["special"] else token["content"].encode("utf-8")
        for token in document.get("added_tokens") or ()
    }
    unknown_id = model.get("unk_id", pieces.get(model.get("unk_token")))
    if unknown_id is not None:
        found[unknown_id] = b""
    return [found.get(token_id, b"") for token_id in range(max(found, default=-1) + 1)]


def gguf_bytes(family: str, pieces: Sequence[str], types: Sequence[int] | None) -> list[bytes]:
    """Bytes of each token of a GGUF file, by id.

    Parameters
    ----------
    family : str
        `tokenizer.ggml.model`.
    pieces : sequence of str
        `tokenizer.ggml.tokens`.
    types : sequence of int, optional
        `tokenizer.ggml.token_type`; all tokens are normal ones where it is absent.

    Raises
    ------
    ValueError
        For a family whose pieces do not stand for fixed bytes.
    """
    normal = _GGUF_FAMILIES.get(family)
    if normal is None:
        raise ValueError(f"tokenizer.ggml.model {family!r} is not supported; known are {', '.join(_GGUF_FAMILIES)}")
    spellings = {
        TokenType.NORMAL: normal,
        TokenType.USER_DEFINED: Spelling(),
        TokenType.BYTE: Spelling(byte_names=True),
    }
    if types is None:
        return [piece_bytes(piece, normal) for piece in pieces]
    return [
        piece_bytes(piece, spellings[TokenType(kind)]) if kind in spellings else b""
        for piece, kind in zip(pieces, types, strict=True)
    ]


_GGUF_FAMILIES = {
    "gpt2": Spelling(byte_level=True),
    "llama": Spelling(blank_sign=True),
    "t5": Spelling(blank_sign=True),
}


def _model_pieces(model: Mapping[str, Any]) -> dict[str, int]:
    if model.get("type") == "WordPiece" or model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        raise ValueError("the pieces of this tokenizer depend on their place in a word, so no mask over them is exact")
    vocabulary = model["vocab"]
    if isinstance(vocabulary, Mapping):
        return dict(vocabulary)
    return {piece: token_id for token_id, (piece, _score) in enumerate(vocabulary)}


def _spelling_of(document: Mapping[str, Any]) -> Spelling:
    components = [part for name in ("normalizer", "pre_tokenizer", "decoder") for part in _parts(document.get(name))]
    kinds = {part["type"] for part in components}
    if refused := kinds & {"BPEDecoder", "WordPiece", "CTC"}:
        raise ValueError(f"pieces of a {sorted(refused)[0]} decoder do not stand for fixed bytes, so no mask is exact")
    return Spelling(
        byte_level="ByteLevel" in kinds,
        blank_sign="Metaspace" in kinds or any(_writes_blank_sign(part) for part in components),
        byte_names="ByteFallback" in kinds or bool(document["model"].get("byte_fallback")),
    )


def _parts(component: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """A component and, if it is a sequence, what it consists of, however deep."""
    if component is None:
        return
    yield component
    for name in ("normalizers", "pretokenizers", "decoders"):
        for inner in component.get(name, ()):
            yield from _parts(inner)


def _writes_blank_sign(part: Mapping[str, Any]) -> bool:
    """Whether a component turns blanks into ▁ or back."""
    pattern = part.get("pattern", {})
    return part["type"] == "Replace" and {pattern.get("String"), part.get("content")} == {_BLANK_SIGN, " "}
