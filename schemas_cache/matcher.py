"""One sequence's walk through the automaton, and the masks of a batch of walks.

In: tokens, one at a time. Out: after each, which may come next. A `Matcher` is a state number and the numbers before
it, so that forking is a copy and rolling back is a pop. Cost: a look-up for the mask, a walk over the token's bytes to
advance; a state never seen before costs its expansion.

Threads: a matcher belongs to one thread at a time; matchers of one schema may run in any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from schemas_cache.automaton import DEAD, START
from schemas_cache.bounds import last_rounds, may_be_last_element
from schemas_cache.errors import ForbiddenBytesError, ForbiddenTokenError
from schemas_cache.masks import MaskRows
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.work import Work

_ALL = np.uint32(0xFFFFFFFF)
_TOKENS = attrgetter("tokens")
_STATE = attrgetter("state")


class Matcher:
    """Where one sequence stands in its schema; made by `CompiledSchema.matcher`."""

    __slots__ = ("_before", "state", "tokens")

    def __init__(self, tokens: TokenAutomaton) -> None:
        self.tokens = tokens
        self.state = START
        self._before: list[int] = []

    @property
    def advances(self) -> int:
        """How many advances can be taken back."""
        return len(self._before)

    def allowance(self) -> Work:
        """How much work one step may take while decoding, by the limits of the schema."""
        return self.tokens.automaton.allowance()

    @property
    def accepting(self) -> bool:
        """Whether the text so far is a whole document."""
        return self.tokens.automaton.accepting[self.state]

    @property
    def finished(self) -> bool:
        """Whether the text is a whole document that nothing can follow, or the end token was taken."""
        return self.accepting and not self.tokens.automaton.live(self.state)

    def mask(self) -> NDArray[np.uint32]:
        """Return the allowed tokens, packed, uint32 (ceil(V / 32),): bit t % 32 of word t // 32; read-only."""
        return self.tokens.rows.mask(self.state)

    def allows(self, token_id: int) -> bool:
        """Whether a token may come next; False for ids outside the vocabulary."""
        return self.tokens.step(self.state, token_id) != DEAD

    def advance(self, token_id: int) -> None:
        """Take a token.

        Raises
        ------
        ForbiddenTokenError
            When the mask forbids it; nothing is changed then.
        """
        following = self.tokens.step(self.state, token_id)
        if following == DEAD:
            raise ForbiddenTokenError(token_id, self.pointer())
        self._before.append(self.state)
        self.state = following

    def advance_bytes(self, data: bytes) -> None:
        """Take bytes that need not be a token, forced ones for example; one `advance` for `rollback`.

        Raises
        ------
        ForbiddenBytesError
            When they cannot come here; nothing is changed then.
        """
        following = self.tokens.automaton.walk(self.state, data)
        if following == DEAD:
            raise ForbiddenBytesError(data, self.pointer())
        self._before.append(self.state)
        self.state = following

    def rollback(self, count: int) -> None:
        """Take back the last `count` advances.

        Raises
        ------
        ValueError
            When there were fewer; nothing is changed then.
        """
        if not 0 <= count <= len(self._before):
            raise ValueError(f"cannot take back {count} advances of {len(self._before)}")
        if count:
            self.state = self._before[-count]
            del self._before[-count:]

    def reset(self) -> None:
        """Go back to the start."""
        self.state = START
        self._before.clear()

    def fork(self) -> Matcher:
        """Return a copy that goes its own way."""
        copy = Matcher(self.tokens)
        copy.state = self.state
        copy._before = self._before.copy()
        return copy

    def forced(self) -> bytes:
        """Return the bytes that must come next; empty where there is a choice, or where the text may end."""
        return self.tokens.automaton.forced(self.state)[0]

    def shortest(self) -> bytes:
        """Return a shortest way from here to a whole document; empty where the text is one already."""
        return self.tokens.automaton.shortest(self.state)

    def fits(self, tokens: int) -> bool:
        """Whether so many tokens are enough to make the text a whole document; see `fewest_tokens`."""
        return self.tokens.fewest.fit(self.state, tokens)

    def mask_within(self, tokens: int) -> NDArray[np.uint32]:
        """Return `mask` without the tokens after which `tokens` more would not be enough to end the text.

        Where `fits(tokens + 1)` holds some token or the end is left. uint32 (ceil(V / 32),), not shared.
        """
        return self.tokens.mask_within(self.state, tokens)

    def mask_after(self, prefix: bytes) -> NDArray[np.uint32]:
        """Return the tokens, packed as `mask`, that begin with these bytes and go on with what may come next.

        For a text whose end, `prefix`, is to be spelled anew together with what follows it. Read-only.
        """
        return self.tokens.mask_after(self.state, prefix)

    def pointer(self) -> str:
        """Return the JSON pointer of the value being written; empty for the root."""
        return self.tokens.automaton.pointer(self.state)

    def allows_bytes(self, data: bytes) -> bool:
        """Whether these bytes, which need not be a token, may come next."""
        return self.tokens.automaton.walk(self.state, data) != DEAD

    def last_rounds(self) -> frozenset[int]:
        """Return the counted repeats whose last permitted round begins here; see `bounds`."""
        return last_rounds(self.tokens.automaton, self.state)

    def may_be_last_element(self) -> bool:
        """Whether the array element that begins here is the last one permitted, unless a comma may follow it."""
        return may_be_last_element(self.tokens.automaton, self.state)


def fill_masks(matchers: Sequence[Matcher | None], out: NDArray[np.uint32]) -> bool:
    """Write the mask of each row of a batch.

    Parameters
    ----------
    matchers : sequence of Matcher or None, length B
        None: a free row, all ones.
    out : uint32, shape (B, ceil(V / 32))
        Filled. A row whose matcher allows no token comes out all zero: the caller decides what that means.

    Returns
    -------
    bool
        Whether any row is free.

    Notes
    -----
    One gather for each distinct schema. The matchers of a batch may belong to different schemas of one vocabulary.
    """
    shared = _shared_rows(matchers)
    if shared is None:
        return _fill_groups(matchers, out)
    np.take(shared[0].bits, shared[1], axis=0, out=out, mode="clip")
    return False


def _shared_rows(matchers: Sequence[Matcher | None]) -> tuple[MaskRows, NDArray[np.int32]] | None:
    """Return the table of rows and the row of each matcher, int32 (B,), where all are of one schema; else None."""
    try:
        shared = set(map(_TOKENS, matchers))
    except AttributeError:  # a free row
        return None
    if len(shared) != 1:
        return None
    rows: MaskRows = shared.pop().rows
    return rows, rows.rows(np.fromiter(map(_STATE, matchers), np.int32, len(matchers)))


def _fill_groups(matchers: Sequence[Matcher | None], out: NDArray[np.uint32]) -> bool:
    """Fill a batch of several schemas, or with free rows; whether there are any."""
    any_free = False
    groups: dict[TokenAutomaton, list[int]] = {}
    for number, matcher in enumerate(matchers):
        if matcher is None:
            out[number] = _ALL
            any_free = True
        else:
            groups.setdefault(matcher.tokens, []).append(number)
    for tokens, members in groups.items():
        rows = tokens.rows.rows(np.array([_STATE(matchers[number]) for number in members], np.int32))
        out[members] = tokens.rows.bits[rows]
    return any_free
