"""Forced text ahead of the model: bytes that a schema leaves no choice about, as tokens.

In: a matcher where some bytes must come next. Out: the tokens that spell them, and the matcher after these. Cost: a few
microseconds; bytes are tokenised once and remembered, since the same ones recur in every record.

Forced bytes need no logits. They are tokenised as a whole, as the tokenizer would on its own, since a text spelled
token by token from single characters is nothing that the model has seen in training. The last of these tokens is given
back and drawn under the mask, since a longer token may reach into what follows; it is kept where nothing follows, or
where each character is one token and no token is longer. Forced tokens are charged against the token limit before they
are taken, and not taken where too few would be left to end the text (see `budget`).

Rejected: taking the last token too (a text of other tokens than the model writes), forcing bytes in the middle of a
character, and asking the mask whether a single token is left, which would make jump-forward depend on the vocabulary's
accidents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from schemas_cache import Matcher, Vocabulary

FORCED_BYTES = 4096  # tokenised at once; what is forced beyond them is taken after the next token
REMEMBERED_CHUNKS = 4096  # forced byte strings kept; more are possible only with as many schemas


@dataclass(frozen=True, slots=True)
class Chunk:
    """Forced bytes as tokens: `body` is taken at once, `last` is given back unless it ends the text."""

    body: tuple[int, ...]
    body_bytes: bytes
    last: tuple[int, ...]  # one token or none
    last_bytes: bytes


NOTHING = Chunk((), b"", (), b"")


class Forcing:
    """Takes forced bytes as tokens; one for each tokenizer, used by one thread.

    Parameters
    ----------
    vocabulary : Vocabulary
        Bytes of each token.
    encode_bytes : callable
        Tokenises UTF-8 canonically. Where it raises `ValueError`, or its tokens do not spell
        the bytes exactly, nothing is forced.
    """

    def __init__(self, vocabulary: Vocabulary, encode_bytes: Callable[[bytes], Iterable[int]]) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._encode = encode_bytes
        self._gives_back = not one_token_per_character(vocabulary)
        self._chunks: dict[bytes, Chunk] = {}

    def take(
        self, matcher: Matcher, tokens_left: int, closes: bool = False, given_back: bytes = b""
    ) -> tuple[int, ...]:
        """Advance the matcher over what is forced, by at most this many tokens, and return them.

        `closes`: none are taken where too few tokens would be left after them to end the text. `given_back`: the tokens
        spell this too, before what is forced; none are taken where they would not reach beyond it.
        """
        forced = matcher.forced()
        if not forced or tokens_left <= 0:
            return ()
        chunk = self._chunk(given_back + forced)
        room, new = tokens_left - len(chunk.body), chunk.body_bytes[len(given_back) :]
        if given_back and (room < 0 or not new):
            return ()
        if room < 0:
            return () if closes else self._cut(matcher, chunk.body[:tokens_left])
        if new:
            matcher.advance_bytes(new)
            if closes and not matcher.fits(room):
                matcher.rollback(1)
                return ()
        if chunk.last and room > 0:
            matcher.advance_bytes(chunk.last_bytes)
            if matcher.finished:
                return chunk.body + chunk.last
            matcher.rollback(1)
        return chunk.body

    def _cut(self, matcher: Matcher, body: tuple[int, ...]) -> tuple[int, ...]:
        matcher.advance_bytes(self._spell(body))
        return body

    def _chunk(self, forced: bytes) -> Chunk:
        chunk = self._chunks.get(forced)
        if chunk is None:
            if len(self._chunks) >= REMEMBERED_CHUNKS:
                self._chunks.clear()
            chunk = self._chunks[forced] = self._tokenise(forced)
        return chunk

    def _tokenise(self, forced: bytes) -> Chunk:
        data = forced[: whole_characters_end(forced[:FORCED_BYTES])]
        try:
            ids = tuple(self._encode(data)) if data else ()
        except ValueError:  # the tokenizer cannot spell it, though single tokens can
            return NOTHING
        if not ids or self._spell(ids) != data:
            return NOTHING
        if not self._gives_back:
            return Chunk(ids, data, (), b"")
        return Chunk(ids[:-1], self._spell(ids[:-1]), ids[-1:], self._spell(ids[-1:]))

    def _spell(self, ids: tuple[int, ...]) -> bytes:
        return b"".join(self._token_bytes[token_id] for token_id in ids)


def one_token_per_character(vocabulary: Vocabulary) -> bool:
    """Whether every text has one spelling: each token is one character, and no two are the same."""
    spelled = [data for data in vocabulary.token_bytes if data]
    try:
        return len(set(spelled)) == len(spelled) and all(len(data.decode("utf-8")) == 1 for data in spelled)
    except UnicodeDecodeError:
        return False


def whole_characters_end(data: bytes) -> int:
    """Length of the longest beginning of `data` that is whole characters; 0 where it begins inside one."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(data)
