"""Pieces to bytes, family by family, and vocabularies read from files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import decoders, pre_tokenizers

from schemas_cache.pieces import Spelling, gguf_bytes, piece_bytes, tokenizer_json_bytes
from schemas_cache.vocabulary import Vocabulary

PLAIN, BYTE_LEVEL = Spelling(), Spelling(byte_level=True)
SENTENCEPIECE = Spelling(blank_sign=True, byte_names=True)


@pytest.mark.parametrize(
    ("piece", "spelling", "data"),
    [
        ("<0x0A>", SENTENCEPIECE, b"\n"),
        ("<0xc3>", SENTENCEPIECE, b"\xc3"),
        ("<0x0A>x", SENTENCEPIECE, b"<0x0A>x"),
        ("a▁b", SENTENCEPIECE, b"a b"),
        ("Ġ", SENTENCEPIECE, b"\xc4\xa0"),
        ("Ġa", BYTE_LEVEL, b" a"),
        ("Ċ", BYTE_LEVEL, b"\n"),
        ("Ã©", BYTE_LEVEL, b"\xc3\xa9"),
        ("<0x0A>", BYTE_LEVEL, b"<0x0A>"),
        ("▁a", BYTE_LEVEL, "▁a".encode()),
        ("型▁Ġ<", PLAIN, "型▁Ġ<".encode()),
        ("<0x0A>", PLAIN, b"<0x0A>"),
    ],
)
def test_each_sign_is_translated_in_its_own_kind_only(piece: str, spelling: Spelling, data: bytes) -> None:
    """And is itself elsewhere."""
    assert data == piece_bytes(piece, spelling)


def test_byte_alphabet_covers_every_byte_once() -> None:
    """The 256 characters that the tokenizers library uses; its decoder agrees on those that are whole characters."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert sorted(piece_bytes(character, BYTE_LEVEL) for character in alphabet) == [bytes([n]) for n in range(256)]
    ascii_pieces = [character for character in alphabet if piece_bytes(character, BYTE_LEVEL) < b"\x80"]
    assert [piece_bytes(piece, BYTE_LEVEL).decode() for piece in ascii_pieces] == [
        decoders.ByteLevel().decode([piece]) for piece in ascii_pieces
    ]


def document(vocabulary: Any, **others: Any) -> dict[str, Any]:
    """A tokenizer.json with nothing but a vocabulary."""
    return {"added_tokens": [], "model": {"type": "BPE", "vocab": vocabulary}, **others}


def test_field_report_byte_fallback_pieces() -> None:
    """A llama-like tokenizer.json: byte pieces act like the characters themselves."""
    pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "<0x22>", "▁", "▁a", "a▁b", "<0xC3>", "Ġ"]
    made = document(
        {piece: number for number, piece in enumerate(pieces)},
        decoder={
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
    )
    made["model"] |= {"unk_token": "<unk>", "byte_fallback": True}
    made["added_tokens"] = [{"id": number, "content": pieces[number], "special": True} for number in (1, 2)]
    expected = [b"", b"", b"", b"\n", b'"', b" ", b" a", b"a b", b"\xc3", b"\xc4\xa0"]
    assert expected == tokenizer_json_bytes(made)


def test_unigram_pieces_with_metaspace() -> None:
    """A list of pieces and scores; byte names are no bytes where the model has no byte fallback."""
    made = document([["<unk>", 0.0], ["▁a", -1.0], ["<0x0A>", -2.0]], pre_tokenizer={"type": "Metaspace"})
    made["model"] |= {"type": "Unigram", "unk_id": 0}
    assert tokenizer_json_bytes(made) == [b"", b" a", b"<0x0A>"]


def test_gaps_between_ids_have_no_bytes() -> None:
    """An id without a token is never allowed."""
    assert tokenizer_json_bytes(document({"a": 0, "b": 3})) == [b"a", b"", b"", b"b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "WordPiece", "vocab": {"a": 0}, "continuing_subword_prefix": "##"}},
        {"model": {"type": "BPE", "vocab": {"a": 0}, "end_of_word_suffix": "</w>"}},
        {"decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "</w>"}]}},
    ],
)
def test_pieces_without_fixed_bytes_are_refused(changes: Mapping[str, Any]) -> None:
    """Rather than masked by guessed bytes."""
    with pytest.raises(ValueError, match="no mask"):
        tokenizer_json_bytes(document({"a": 0}) | dict(changes))


@pytest.mark.parametrize(
    ("name", "content", "end_ids"),
    [
        ("generation_config.json", {"eos_token_id": [1, 0]}, (0, 1)),
        ("config.json", {"eos_token_id": 1}, (1,)),
        ("tokenizer_config.json", {"eos_token": "<end>"}, (2,)),
        ("tokenizer_config.json", {"eos_token": {"content": "<end>"}}, (2,)),
    ],
)
def test_end_tokens_come_from_the_files_beside(
    tmp_path: Path, name: str, content: Mapping[str, Any], end_ids: tuple[int, ...]
) -> None:
    """In any of the usual places."""
    path = _write_tokenizer(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    assert end_ids == Vocabulary.from_tokenizer_json(path).end_ids


def test_given_end_tokens_win(tmp_path: Path) -> None:
    """Whatever lies beside."""
    path = _write_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 1}')
    vocabulary = Vocabulary.from_tokenizer_json(path, end_ids=[0])
    assert (vocabulary.end_ids, vocabulary.token_bytes) == ((0,), (b"", b"b", b""))


def test_no_end_token_is_refused(tmp_path: Path) -> None:
    """A text could never end."""
    with pytest.raises(ValueError, match="end_ids"):
        Vocabulary.from_tokenizer_json(_write_tokenizer(tmp_path))


def _write_tokenizer(folder: Path) -> Path:
    made = document({"a": 0, "b": 1}) | {"added_tokens": [{"id": 2, "content": "<end>", "special": True}]}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    return folder / "tokenizer.json"


def write_gguf(
    path: Path, family: str, tokens: Sequence[str], types: Sequence[int] | None, ends: Mapping[str, int]
) -> Path:
    """A GGUF file with a tokenizer and no weights."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(family)
    writer.add_token_list(list(tokens))
    if types is not None:
        writer.add_token_types(list(types))
    for name, token_id in ends.items():
        writer.add_uint32(f"tokenizer.ggml.{name}", token_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def test_gguf_byte_level(tmp_path: Path) -> None:
    """Normal pieces by the byte alphabet, user's own literally, control tokens without bytes."""
    path = write_gguf(
        tmp_path / "m.gguf",
        "gpt2",
        ["<|end|>", "Ġa", '"', "Ġb", "Ã"],
        [CONTROL, NORMAL, NORMAL, USER, NORMAL],
        {"eos_token_id": 0},
    )
    vocabulary = Vocabulary.from_gguf(path)
    assert (b"", b" a", b'"', "Ġb".encode(), b"\xc3") == vocabulary.token_bytes
    assert vocabulary.end_ids == (0,)


def test_gguf_sentencepiece(tmp_path: Path) -> None:
    """Only tokens of the byte type are bytes; every end token that the file names counts."""
    path = write_gguf(
        tmp_path / "m.gguf",
        "llama",
        ["<unk>", "<s>", "</s>", "<0x0A>", "▁a", "<0x0A>", "Ġ", "<turn>", "x"],
        [UNKNOWN, CONTROL, CONTROL, BYTE, NORMAL, NORMAL, NORMAL, CONTROL, UNUSED],
        {"eos_token_id": 2, "eot_token_id": 7},
    )
    vocabulary = Vocabulary.from_gguf(path)
    assert vocabulary.token_bytes == (b"", b"", b"", b"\n", b" a", b"<0x0A>", b"\xc4\xa0", b"", b"")
    assert vocabulary.end_ids == (2, 7)


def test_gguf_without_types_has_normal_tokens_only() -> None:
    """As old files have it."""
    assert gguf_bytes("gpt2", ["Ġa"], None) == [b" a"]


def test_gguf_of_an_unknown_family_is_refused(tmp_path: Path) -> None:
    """By its name, with the known ones."""
    path = write_gguf(tmp_path / "m.gguf", "bert", ["a"], None, {"eos_token_id": 0})
    with pytest.raises(ValueError, match=r"'bert'.*gpt2, llama"):
        Vocabulary.from_gguf(path)


def test_gguf_without_end_token_needs_one(tmp_path: Path) -> None:
    """Or is told which."""
    path = write_gguf(tmp_path / "m.gguf", "gpt2", ["a", "b"], None, {})
    with pytest.raises(ValueError, match="end_ids"):
        Vocabulary.from_gguf(path)
    assert Vocabulary.from_gguf(path, end_ids=[1]).token_bytes == (b"a", b"")
