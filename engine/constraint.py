"""What binds one sequence: the end of its prompt, forced tokens, stop strings, the ways to end.

In: a `Sequence` with its matcher, and the token that was drawn for it. Out: the same sequence, longer by that token and
by those that are forced after it, and over where it has come to its end. Cost: a few microseconds a token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.budget import may_close, same_text
from engine.forcing import Forcing
from engine.healing import Healer
from engine.sequence import Healing, Sequence
from schemas_cache import Matcher, Vocabulary, pack_mask


def drawable_words(vocabulary: Vocabulary) -> NDArray[np.uint32]:
    """Packed row, uint32 (W,), of what free text may be drawn from: tokens that stand for bytes, and end tokens."""
    allowed = np.zeros((len(vocabulary) + 31) // 32 * 32, bool)
    allowed[: len(vocabulary)] = [bool(data) for data in vocabulary.token_bytes]
    allowed[list(vocabulary.end_ids)] = True
    return pack_mask(allowed)


class Walk:
    """Leads the sequences of one vocabulary from token to token to their end.

    Parameters
    ----------
    vocabulary : Vocabulary
        Bytes and end tokens.
    forcing : Forcing
        Where forced tokens come from.
    """

    def __init__(self, vocabulary: Vocabulary, forcing: Forcing) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._end_ids = frozenset(vocabulary.end_ids)
        self._forcing = forcing
        self._healer = Healer(vocabulary)

    def begin(self, row: Sequence) -> None:
        """Take what is forced before the first draw, or end at once where there is nothing to draw.

        What its prompt gives back is no longer pending then: it is forced too, or to be drawn.
        """
        row.closes = may_close(row)
        if row.tokens_left > 0:
            healing = self._healer.at_begin(row, row.matcher)
            if healing is not None:
                del row.pending[-len(healing.tokens) :]
            if not self._jump(row, b"" if healing is None else healing.data):
                row.healing = healing
        self._settle(row)

    def advance(self, row: Sequence, token_id: int) -> bool:
        """Take the token that was drawn, and what is forced after it.

        Returns
        -------
        bool
            False where too few tokens would be left to end the text; nothing is changed then.

        Raises
        ------
        ForbiddenTokenError
            When the token is not allowed; nothing is changed then.
        """
        matcher = row.matcher
        if row.healing is not None:
            self._heal(row, row.healing, token_id)
        elif token_id in self._end_ids:
            row.complete = matcher is None or matcher.accepting
            self._end(row)
        else:
            if matcher is not None:
                matcher.advance(token_id)
                if row.closes and not matcher.fits(row.tokens_left - 1):
                    matcher.rollback(1)
                    return False
            self._append(row, token_id, self._token_bytes[token_id])
        if not row.over and row.healing is None:
            self._jump(row)
            self._settle(row)
        return True

    def rehearse(self, row: Sequence, token_id: int | None) -> None:
        """Have the automaton learn all that `advance` looks at, or `begin` for None, and the mask after it.

        Nothing of the row is changed.
        """
        if row.matcher is None or token_id in self._end_ids:
            return
        matcher, tokens_left, closes, given_back = row.matcher.fork(), row.tokens_left, row.closes, b""
        if token_id is None:
            closes, healing = may_close(row), self._healer.at_begin(row, matcher)
            given_back = b"" if healing is None else healing.data
        elif row.healing is not None:
            if self._reaches_beyond(row, row.healing, token_id, matcher):
                tokens_left -= 1
            else:
                self._healer.of_end(row.healing.tokens[1:], matcher)
        else:
            matcher.advance(token_id)
            tokens_left -= 1
            if closes and not matcher.fits(tokens_left):
                matcher.rollback(1)
                matcher.mask_within(tokens_left)
                return
        if row.job.request.jump_forward:
            self._forcing.take(matcher, tokens_left, closes, given_back)
        if not matcher.finished:
            matcher.mask()

    def advance_instead(self, row: Sequence, token_id: int, refused_id: int) -> None:
        """Take the token that was drawn in place of one for which there was no room; raises as `advance`."""
        if row.matcher is not None and token_id not in self._end_ids:
            taken, refused = self._token_bytes[token_id], self._token_bytes[refused_id]
            row.closed_early = row.closed_early or not same_text(row.matcher, taken, refused)
        else:
            row.closed_early = True
        self.advance(row, token_id)

    def dead_end(self, row: Sequence) -> bool:
        """Whether the text has to end since no token is left; then it is over, and complete.

        That is so where it may end and the vocabulary has no end token to say it with.
        """
        if row.matcher is None or not row.matcher.accepting:
            return False
        row.complete = True
        self._end(row)
        return True

    def _end(self, row: Sequence) -> None:
        row.stop_reason = row.limit_reason if row.closed_early else "end_turn"

    def _jump(self, row: Sequence, given_back: bytes = b"") -> bool:
        """Take what is forced, together with what the prompt has given back; whether there is any."""
        if row.matcher is None or not row.job.request.jump_forward:
            return False
        token_ids, old = self._forcing.take(row.matcher, row.tokens_left, row.closes, given_back), len(given_back)
        for token_id in token_ids:
            data = self._token_bytes[token_id]
            if len(data) <= old:
                row.pending.append(token_id)
            else:
                row.forced_tokens += 1
                self._append(row, token_id, data[old:])
            old = max(0, old - len(data))
            if row.over:
                break
        return bool(token_ids)

    def _heal(self, row: Sequence, healing: Healing, token_id: int) -> None:
        """Take what was drawn in place of the end of a prompt: that itself, or a token that goes on."""
        if self._reaches_beyond(row, healing, token_id, row.matcher):
            row.healing = None
            self._append(row, token_id, self._token_bytes[token_id][len(healing.data) :])
            return
        row.healing = self._healer.of_end(healing.tokens[1:], row.matcher)
        row.pending += healing.tokens[: -len(row.healing.tokens)] if row.healing else healing.tokens

    def _reaches_beyond(self, row: Sequence, healing: Healing, token_id: int, matcher: Matcher | None) -> bool:
        """Whether a token goes on after the prompt and leaves room to end the text; the matcher has moved on then."""
        if token_id == healing.tokens[0]:
            return False
        if matcher is not None:
            matcher.advance_bytes(self._token_bytes[token_id][len(healing.data) :])
            if row.closes and not matcher.fits(row.tokens_left - 1):
                matcher.rollback(1)
                return False
        return True

    def _append(self, row: Sequence, token_id: int, data: bytes) -> None:
        row.token_ids.append(token_id)
        row.pending.append(token_id)
        row.data += data
        if row.stops:
            cut_at_stop(row, len(data))

    def _settle(self, row: Sequence) -> None:
        matcher = row.matcher
        if row.over:
            return
        if matcher is not None and matcher.finished:
            row.complete = True
            self._end(row)
        elif row.tokens_left <= 0:
            row.stop_reason, row.complete = row.limit_reason, matcher is not None and matcher.accepting


def cut_at_stop(row: Sequence, new_bytes: int) -> None:
    """End the sequence where its last `new_bytes` bytes completed a stop string: the first one to be complete.

    Of several that end at the same byte the longest is taken, so that the outcome does not depend on how the text was
    cut into tokens.
    """
    found: list[tuple[int, int, bytes]] = []
    for stop in row.stops:
        start = row.data.find(stop, max(0, len(row.data) - new_bytes - len(stop) + 1))
        if start >= 0:
            found.append((start + len(stop), start, stop))
    if not found:
        return
    _, row.text_bytes, stop = min(found)
    row.stop_reason, row.stop_sequence = "stop_sequence", stop.decode("utf-8")
    row.complete = row.matcher is None or is_document(row.matcher, bytes(row.data[: row.text_bytes]))


def is_document(matcher: Matcher, data: bytes) -> bool:
    """Whether these bytes, the beginning of a text that the matcher let through, are a whole document of themselves."""
    fresh = matcher.fork()
    fresh.reset()
    if data:
        fresh.advance_bytes(data)
    return fresh.accepting
