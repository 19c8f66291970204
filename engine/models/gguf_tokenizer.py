"""The tokenizer that a GGUF file describes, for the tokenizers library.

In: the file's header. Out: `Tokenizer`. Cost: 0.3 s for SmolLM2, most of it the library's table of merges. Byte-level
BPE only: the pieces and merges are in the file, the rule that cuts a text into words before the merges is only named
there, so each rule is written out here, and a name that is not known is refused. Sources: llama.cpp's table of
pre-tokenizers, and the tokenizer.json of the models that they were made for; checked against llama.cpp on 200 strings
for `smollm`.

Rejected: merges from another file of the same model, which could be another version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from gguf import TokenType
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from engine.tokenizer import Tokenizer
from schemas_cache.gguf_header import GgufHeader
from schemas_cache.vocabulary import Vocabulary

FAMILY = "gpt2"  # what GGUF calls byte-level BPE

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_AFTER_DIGITS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _AFTER_DIGITS
_QWEN2_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _AFTER_DIGITS


def gguf_tokenizer(header: GgufHeader, path: Path) -> Tokenizer:
    """The tokenizer of a file with this header; `path` is for messages.

    Raises
    ------
    ValueError
        When it is not byte-level BPE, or its text is cut into words by a rule that is not known here.
    """
    family, rule = (str(header.metadata.get(f"tokenizer.ggml.{name}")) for name in ("model", "pre"))
    if family != FAMILY:
        raise ValueError(f"{path}: a tokenizer of type {family!r} is not supported; known is {FAMILY} (byte-level BPE)")
    if rule not in _WORDS:
        raise ValueError(f"{path}: pre-tokenizer {rule!r} is not supported; known are {', '.join(_WORDS)}")
    metadata = header.metadata
    pieces: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {piece: token_id for token_id, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=rule in _WHOLE_WORDS_FIRST))
    if rule in _NORMALIZED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _WORDS[rule]()
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, pieces, metadata.get("tokenizer.ggml.token_type", []))
    return Tokenizer(tokenizer, Vocabulary.from_gguf_header(header, path), _begin_ids(metadata))


def _split(words: str) -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(words), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _digits_then_words() -> pre_tokenizers.PreTokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


_WORDS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": _digits_then_words,
    "llama-bpe": lambda: _split(_LLAMA3_WORDS),
    "qwen2": lambda: _split(_QWEN2_WORDS),
}
_WHOLE_WORDS_FIRST = {"llama-bpe"}  # a word that is a token is never cut, whatever the merges say
_NORMALIZED = {"qwen2"}  # the model has seen composed characters only


def _add_tokens(tokenizer: tokenizers.Tokenizer, pieces: list[str], kinds: list[int]) -> None:
    """Tell the library which tokens are no outcome of merges: control tokens, and the user's own."""
    of_kind = {kind: [p for p, found in zip(pieces, kinds, strict=False) if found == kind] for kind in set(kinds)}
    control, own = (of_kind.get(kind, []) for kind in (TokenType.CONTROL, TokenType.USER_DEFINED))
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in control])
    tokenizer.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in own])


def _begin_ids(metadata: Mapping[str, Any]) -> list[int]:
    return [metadata["tokenizer.ggml.bos_token_id"]] if metadata.get("tokenizer.ggml.add_bos_token") else []
