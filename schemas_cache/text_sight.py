"""What one token can see from inside a string, in words that mean the same in every schema of a vocabulary.

In: configurations. Out: those that are inside texts or at their closing quotes, and a name for them, 16 bytes, equal
only where no token tells them apart. Three things decide a row there, and the name is their digest:

- the text: what its states are, as `thompson` built them, and the place in it;
- the characters left, and those still needed, clipped at the longest token;
- what is behind the text: another one, described in the same way, or the closing quote and behind it the set of
  remainders of tokens that is taken there (see `remainders`). That is equality as observed and not of structure: fields
  of any schemas share rows, whatever stands behind them, unless a token with a quote in it tells.

Texts that may be left by anything else are not described, nor are places where the whole text may end. Cost: some
microseconds; a walk over the remainders for each new place behind a quote. Source: ours. Rejected: a digest of the
structure in sight, as far as the longest token of 81 bytes, which costs as much as the row.
"""

from __future__ import annotations

from bisect import bisect_right

from schemas_cache.automaton import Automaton
from schemas_cache.closure import Configurations
from schemas_cache.nfa import BY_REPEAT
from schemas_cache.remainders import QUOTE_BYTE, Remainders
from schemas_cache.sight import Sight, shared_digest

_NO_TEXT = -1
_NO_QUOTE = 0
_MOST_IN_A_ROW = 8
"""Texts behind each other that are described; the rows of a longer row of them are not shared between schemas."""


class TextSight:
    """Names configurations; used under the automaton's lock."""

    def __init__(self, automaton: Automaton, sight: Sight, remainders: Remainders) -> None:
        nfa = automaton.nfa
        self._automaton, self._sight, self._remainders = automaton, sight, remainders
        self._first, self._end, self._exit = nfa.text_first.tolist(), nfa.text_end.tolist(), nfa.text_exit.tolist()
        self._content = [content.tobytes().hex() for content in nfa.text_content]
        self._quote = automaton.class_of[QUOTE_BYTE]
        self._text_of: dict[int, int] = {}
        self._ends: dict[tuple[int, int], str] = {}  # by text and frame; "" where something else may be behind it
        self._behind: dict[tuple[int, int], str] = {}  # by exit and frame; likewise
        self._quotes: dict[tuple[int, int], int] = {}  # by configuration
        self._open: set[tuple[int, int]] = set()  # exits that are being described

    def split(self, configurations: Configurations) -> tuple[Configurations, Configurations]:
        """Tell apart what is inside a text or at its closing quote, and what is not."""
        inside, elsewhere = list[tuple[int, int]](), list[tuple[int, int]]()
        for pair in configurations:
            (inside if self._is_seen(*pair) else elsewhere).append(pair)
        return tuple(inside), tuple(elsewhere)

    def name(self, inside: Configurations) -> bytes:
        """Return the name of configurations that are all inside texts or at closing quotes."""
        return shared_digest(self._describe(inside))

    def _describe(self, inside: Configurations) -> str:
        parts, remainders = [], _NO_QUOTE
        for at, frame in inside:
            text = self._text(at)
            if text == _NO_TEXT:
                remainders |= self._behind_quote(at, frame)
            else:
                parts.append(f"{self._content[text]} {at - self._first[text]} {self._ends_of(text, frame)}")
        return f"{sorted(parts)} {remainders:x}"

    def _is_seen(self, at: int, frame: int) -> bool:
        text = self._text(at)
        return self._behind_quote(at, frame) != _NO_QUOTE if text == _NO_TEXT else self._ends_of(text, frame) != ""

    def _text(self, at: int) -> int:
        """Number of the text that a state of the NFA is in, or _NO_TEXT."""
        known = self._text_of.get(at)
        if known is None:
            text = bisect_right(self._first, at) - 1
            is_inside = text >= 0 and at < self._end[text] and at != self._exit[text]
            known = self._text_of[at] = text if is_inside else _NO_TEXT
        return known

    def _ends_of(self, text: int, frame: int) -> str:
        """Say when a text may end and what is behind it."""
        known = self._ends.get((text, frame))
        if known is None:
            known = self._ends[text, frame] = self._describe_ends(text, frame)
        return known

    def _describe_ends(self, text: int, frame: int) -> str:
        frames, leave = self._automaton.frames, self._exit[text]
        if leave != BY_REPEAT:
            behind = [(self._sight.counts_without_bounds, self._behind_text(leave, frame))]
        else:
            repeat = frames.repeat(frame)
            leave = int(self._automaton.nfa.repeat_exit[repeat])
            counts = frames.counts(frame)
            behind = [(self._sight.counts(repeat, low, high), self._behind_text(leave, up)) for low, high, up in counts]
        return str(sorted(behind)) if all(seen for _, seen in behind) else ""

    def _behind_text(self, leave: int, frame: int) -> str:
        """Describe what is behind a text."""
        key = leave, frame
        known = self._behind.get(key)
        if known is None:
            if key in self._open or len(self._open) >= _MOST_IN_A_ROW:
                return ""  # texts that lead back to each other, or to more of them than are looked at
            self._open.add(key)
            try:
                configurations, accepting = self._automaton.closure.close({leave: frame})
                is_seen = not accepting and all(self._is_seen(*pair) for pair in configurations)
                known = shared_digest(self._describe(configurations)).hex() if is_seen else ""
            finally:
                self._open.discard(key)
            self._behind[key] = known
        return known

    def _behind_quote(self, at: int, frame: int) -> int:
        """Return the remainders that are taken after the quote of a configuration; _NO_QUOTE where it is none."""
        key = at, frame
        known = self._quotes.get(key)
        if known is None:
            closure, found = self._automaton.closure, _NO_QUOTE
            if closure.only_byte((key,)) == QUOTE_BYTE:
                after = self._automaton.state_of(*closure.step((key,), self._quote))
                found = self._remainders.taken(self._automaton, after)
            known = self._quotes[key] = found
        return known
