"""Text to token ids and back, for any tokenizer of the tokenizers library.

In: a tokenizer.json, or a tokenizer that was built from another file. Out: `Tokenizer`, which encodes text, decodes ids
to bytes, and holds the `Vocabulary` that masks are decided over. Cost: a native call per text; decoding joins bytes.
Text of a user never becomes a special token, even where it spells one. Ids are decoded through the same bytes as the
masks see, so text and mask cannot disagree. Rejected: the library's own decoder, which drops a leading blank and
replaces half a character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import tokenizers

from schemas_cache.pieces import tokenizer_json_bytes
from schemas_cache.vocabulary import Vocabulary


class Tokenizer:
    """A tokenizer and the bytes of its tokens; may be shared between threads.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        Does the encoding; set to take special tokens in a text as plain text.
    vocabulary : Vocabulary
        Its tokens as bytes.
    begin_ids : iterable of int
        Special tokens that each text for the model begins with; most models have none. `encode` does not write them.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, vocabulary: Vocabulary, begin_ids: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True
        self.vocabulary = vocabulary
        self.begin_ids = tuple(begin_ids)
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = {token.content: token_id for token_id, token in added.items() if token.special}
        longest_first = sorted(filter(None, self._special_ids), key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})" if longest_first else r"(?!)")

    @classmethod
    def from_file(cls, path: str | Path, end_ids: Iterable[int] | None = None) -> Tokenizer:
        """The tokenizer of a file; end tokens as for `Vocabulary.from_tokenizer_json`.

        Raises
        ------
        ValueError
            When the file is missing or is no tokenizer of the library's.
        """
        if not Path(path).is_file():
            raise ValueError(f"{path} is missing; tokenizers in other files, such as tokenizer.model, are not read")
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library has no class of its own
            raise ValueError(f"{path} cannot be read as a tokenizer: {error}") from error
        vocabulary = Vocabulary.from_tokenizer_json(path, end_ids)
        begin_ids = tokenizer.encode("", add_special_tokens=True).ids
        return cls(tokenizer, vocabulary, [token_id for token_id in begin_ids if token_id not in vocabulary.end_ids])

    @classmethod
    def from_json(cls, text: str, end_ids: Iterable[int]) -> Tokenizer:
        """The tokenizer of the text of such a file."""
        return cls(tokenizers.Tokenizer.from_str(text), Vocabulary(tokenizer_json_bytes(json.loads(text)), end_ids))

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end a text."""
        return self.vocabulary.end_ids

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """What `encode` takes for special tokens where it is told to."""
        return tuple(self._special_ids)

    def token_name(self, token_id: int) -> str:
        """What the tokenizer calls a token: of one without bytes the only text there is."""
        return self._tokenizer.id_to_token(token_id) or f"<{token_id}>"

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of a text; what the vocabulary cannot spell becomes its unknown token.

        Special tokens are plain text, unless `special` says that they are meant: for text of a chat template.

        Raises
        ------
        ValueError
            For a text with half of a surrogate pair, which is not Unicode.
        """
        if special:
            pieces = self._special.split(text)  # at odd places stand the special tokens
            return [
                token_id
                for place, piece in enumerate(pieces)
                for token_id in ([self._special_ids[piece]] if place % 2 else self.encode(piece))
            ]
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        except TypeError as error:
            raise ValueError("the text has half of a surrogate pair, which is no character") from error
        return ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids that spell exactly these bytes, cut as the tokenizer cuts them: for text that a mask forces.

        Raises
        ------
        ValueError
            When the bytes are not UTF-8, or the tokenizer cannot spell them exactly.
        """
        ids = self.encode(data.decode("utf-8"))
        if self.decode_bytes(ids) != data:
            raise ValueError(f"the vocabulary cannot spell {data!r} exactly")
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; half a character is shown as U+FFFD, special and end tokens as nothing."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Bytes of ids; special and end tokens have none."""
        return b"".join(self.vocabulary.token_bytes[token_id] for token_id in ids)

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json."""
        self._tokenizer.save(str(path))
