"""What the mask bent in one answer: how much of the model's own probability it left, token by token and field by field.

In: the positions of an answer, in order. Out: `Diagnostics`. A position's mass is the share of the raw probability that
lies on the tokens its schema allowed there, forced positions included; it is one that the mask intervened in where the
model's best token was forbidden. What a token limit forbids beside the schema does not count here: `closed_early` tells
of it. So the figures follow from model, prompt, schema and text alone, and anybody can compute them again.

A position belongs to the field that the first byte of its token belongs to (`places`); text of a regular expression or
a choice has one field. A field was ended by a limit where its closing quote or bracket had to come since `maxLength`,
`maxItems`, or a counted repeat of its pattern, was used up (`schemas_cache.bounds`); all of its tokens having been
forced, as a constant's are, is no limit. Cost: that of `LimitWatch`, some microseconds for each byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from engine.places import Event, Places
from engine.request import Diagnostics, FieldMass, Worst
from schemas_cache import Matcher


@dataclass(frozen=True, slots=True)
class Position:
    """One token of an answer."""

    pointer: str
    allowed_mass: float
    wanted_id: int  # the model's best token
    intervened: bool  # it was forbidden
    got_id: int


def diagnose(positions: Sequence[Position], forced: int, limited: Iterable[str]) -> Diagnostics:
    """Sum up an answer; `forced` is how many of its tokens were, `limited` has the pointers that a limit ended."""
    if not positions:
        return Diagnostics(0, forced, 0, 1.0, 1.0, None, ())
    masses = [position.allowed_mass for position in positions]
    index = masses.index(min(masses))
    worst = positions[index]
    ended, fields = frozenset(limited), dict[str, list[Position]]()
    for position in positions:
        fields.setdefault(position.pointer, []).append(position)
    return Diagnostics(
        total=len(positions),
        forced=forced,
        intervened=sum(position.intervened for position in positions),
        mean_mass=fmean(masses),
        min_mass=worst.allowed_mass,
        worst=Worst(index, worst.pointer, worst.wanted_id, worst.got_id, worst.allowed_mass),
        fields=tuple(_field(pointer, members, pointer in ended) for pointer, members in fields.items()),
    )


def _field(pointer: str, positions: Sequence[Position], ended_by_limit: bool) -> FieldMass:
    masses = [position.allowed_mass for position in positions]
    intervened = sum(position.intervened for position in positions)
    return FieldMass(pointer, fmean(masses), min(masses), intervened, ended_by_limit)


class LimitWatch:
    """Follows one JSON document byte by byte, and notes the values that a limit ended.

    Parameters
    ----------
    matcher : Matcher
        At the start of the document; taken over.
    """

    def __init__(self, matcher: Matcher) -> None:
        self.limited: list[str] = []
        self._matcher, self._places = matcher, Places()
        self._outside: frozenset[int] = frozenset()  # repeats that were in their last round before the text began
        self._last_character = False
        self._last_elements: list[bool] = []  # for each open array or object: whether its element is the last one

    def pointer(self, byte: int) -> str:
        """Pointer of what the next byte, this one, belongs to."""
        return self._places.pointer(byte)

    def take(self, data: bytes) -> None:
        """Go on by what a token spells."""
        for byte in data:
            self._note(byte)
            self._places.take(byte)
            self._matcher.advance_bytes(bytes((byte,)))

    def _note(self, byte: int) -> None:
        event = self._places.event(byte)
        if self._last_elements and self._places.begins_element(byte):
            self._last_elements[-1] = self._matcher.may_be_last_element()
        if event is Event.OPEN_TEXT:
            self._outside, self._last_character = self._matcher.last_rounds(), False
        elif event is Event.CHARACTER:
            self._last_character = bool(self._matcher.last_rounds() - self._outside)
        elif event is Event.CLOSE_TEXT:
            if self._last_character and self._matcher.forced().startswith(b'"'):
                self.limited.append(self._places.pointer(byte))
        elif event is Event.OPEN:
            self._last_elements.append(False)
        elif event is Event.CLOSE:
            last = self._last_elements.pop()
            if last and byte == b"]"[0] and not self._matcher.allows_bytes(b","):
                self.limited.append(self._places.pointer(byte))
