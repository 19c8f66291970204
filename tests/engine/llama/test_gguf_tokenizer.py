"""The tokenizer of a GGUF file, against merges made one by one."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.models.gguf_tokenizer import gguf_tokenizer
from engine.tokenizer import Tokenizer
from schemas_cache.gguf_header import read_gguf_header
from tests.engine.llama.slow import Sizes
from tests.engine.llama.tiny import ALPHABET, MERGES, PIECES, make_weights, write_gguf

SIZES = Sizes(layers=1)
# The byte alphabet once more, in the order in which GPT-2's own code makes it.
SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
LETTER_OF = dict(zip([*SHOWN, *(byte for byte in range(256) if byte not in SHOWN)], ALPHABET, strict=True))
WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")  # of ASCII, without digits


def open_tokenizer(folder: Path, pre: str = "smollm", **extra: object) -> Tokenizer:
    """The tokenizer of a tiny file."""
    metadata = {f"tokenizer.ggml.{name}": value for name, value in extra.items()}
    path = write_gguf(folder / "m.gguf", SIZES, make_weights(SIZES), extra=metadata, pre=pre)  # type: ignore[arg-type]
    return gguf_tokenizer(read_gguf_header(path), path)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Cut like SmolLM2's."""
    return open_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def merged(word: str) -> list[int]:
    """Ids of a word: the first rule in the list that fits anywhere is used, at its first place, again and again."""
    parts = [LETTER_OF[byte] for byte in word.encode()]
    while True:
        pairs = [f"{a} {b}" for a, b in pairwise(parts)]
        best = min((MERGES.index(pair) for pair in pairs if pair in MERGES), default=None)
        if best is None:
            return [PIECES.index(part) for part in parts]
        at = pairs.index(MERGES[best])
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@given(st.text("abcx12 \n.'sté", max_size=30))
def test_text_is_cut_and_merged_as_by_hand(tokenizer: Tokenizer, text: str) -> None:
    """Digits one by one, then words, then merges in their order."""
    text = text.replace("é", "Z")  # the words of this test are ASCII
    pieces = [
        piece for part in re.split(r"(\d)", text) for piece in ([part] if part.isdigit() else WORDS.findall(part))
    ]
    assert [token_id for piece in pieces for token_id in merged(piece)] == tokenizer.encode(text)


def test_digits_are_never_merged_but_where_the_rule_allows_it(tmp_path: Path) -> None:
    """The piece `12` is in the vocabulary; only GPT-2's own cut reaches it."""
    assert 2 == len(open_tokenizer(tmp_path).encode("12"))
    assert [PIECES.index("12")] == open_tokenizer(tmp_path, pre="gpt-2").encode("12")


def test_characters_of_several_bytes_are_merged(tokenizer: Tokenizer) -> None:
    """Two bytes, one token; and spelled exactly."""
    assert [PIECES.index("Ã©")] == tokenizer.encode("é")
    assert "é".encode() == tokenizer.decode_bytes(tokenizer.encode("é"))


def test_special_tokens_are_text_unless_they_are_meant(tokenizer: Tokenizer) -> None:
    """Of a user, and of a template."""
    assert b"<|end|>" == tokenizer.decode_bytes(tokenizer.encode("<|end|>"))
    assert [1, PIECES.index("x"), 0] == tokenizer.encode("<|start|>x<|end|>", special=True)
    assert (0,) == tokenizer.end_ids


@pytest.mark.parametrize(
    ("extra", "expected"), [({}, ()), ({"add_bos_token": False}, ()), ({"add_bos_token": True}, (1,))]
)
def test_tokens_that_a_text_begins_with_are_named(tmp_path: Path, extra: dict[str, bool], expected: tuple[int]) -> None:
    """Where the file says so."""
    assert expected == open_tokenizer(tmp_path, **extra).begin_ids


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("llama-bpe", "a1234 b", ["a", "123", "4", " b"]),
        ("qwen2", "a12 b", ["a", "1", "2", " b"]),
        ("llama-bpe", "it'S\n\n x", ["it", "'S", "\n\n", " x"]),
    ],
)
def test_words_of_other_models(tmp_path: Path, pre: str, text: str, expected: list[str]) -> None:
    """Digits in threes or one by one, contractions in any case, line breaks together."""
    tokenizer = open_tokenizer(tmp_path, pre=pre)
    words = tokenizer._tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert expected == [text[start:end] for _, (start, end) in words]


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"model": "llama"}, r"type 'llama' is not supported; known is gpt2"),
        ({"pre": "deepseek-llm"}, r"pre-tokenizer 'deepseek-llm' is not supported; known are gpt-2, smollm"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, extra: dict[str, str], reason: str) -> None:
    """By its name: text that is cut otherwise is another text for the model."""
    with pytest.raises(ValueError, match=reason):
        open_tokenizer(tmp_path, **extra)
