"""Where in a JSON document a text is, byte by byte: the pointer of the value that is being written.

In: the bytes of one document, valid so far. Out: a JSON pointer (RFC 6901) for the next byte, and what that byte
begins or ends. A value's own bytes belong to it; keys, separators, blanks and brackets belong to the object or array
that they stand in. Cost: a microsecond for a byte; only who asks what the mask bent pays it. Rejected: the pointer that
the automaton gives, which at a border is that of the first thing that may follow, not of the one that does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto

OPENERS, CLOSERS, BLANKS = b"{[", b"}]", b" \t\r\n"
QUOTE, ESCAPE = b'"'[0], b"\\"[0]


class Event(Enum):
    """What a byte does, as far as lengths are concerned."""

    NOTHING = auto()
    OPEN_TEXT = auto()  # the quote before a string value
    CHARACTER = auto()  # the first byte of a character in a string value
    CLOSE_TEXT = auto()  # the quote after a string value
    OPEN = auto()  # the bracket or brace that opens an array or object
    CLOSE = auto()


@dataclass(slots=True)
class _Container:
    is_object: bool
    segment: str  # of the member that is being written, as a pointer has it; the last key or index
    in_value: bool  # whether a member's value may come or is under way, in an object; always in an array
    index: int = 0
    begun: bool = False  # a value began since the last separator


class Places:
    """Follows one document."""

    def __init__(self) -> None:
        self._open: list[_Container] = []
        self._in_text = self._in_key = False
        self._escaped = 0  # bytes of an escape still to come
        self._key = bytearray()

    def pointer(self, byte: int) -> str:
        """Pointer of what the next byte, this one, belongs to."""
        whole = self._open if self._is_value(byte) else self._open[:-1]
        return "".join(f"/{container.segment}" for container in whole)

    def begins_element(self, byte: int) -> bool:
        """Whether the next byte, this one, is the first of an array's element."""
        inside = self._open[-1] if self._open else None
        return inside is not None and not inside.is_object and not inside.begun and self._is_value(byte)

    def event(self, byte: int) -> Event:
        """What the next byte, this one, does."""
        if self._in_text:
            if self._in_key or self._escaped or 0x80 <= byte < 0xC0:
                return Event.NOTHING
            return Event.CLOSE_TEXT if byte == QUOTE else Event.CHARACTER
        if byte in OPENERS:
            return Event.OPEN
        if byte in CLOSERS:
            return Event.CLOSE
        return Event.OPEN_TEXT if byte == QUOTE and self._is_value(byte) else Event.NOTHING

    def take(self, byte: int) -> None:
        """Go on by one byte."""
        if self._in_text:
            self._take_in_text(byte)
            return
        if self._open and self._is_value(byte):
            self._open[-1].begun = True
        if byte == QUOTE:
            self._in_key = bool(self._open) and not self._open[-1].in_value
            self._in_text = True
            self._key.clear()
        elif byte in OPENERS:
            is_object = byte == OPENERS[0]
            self._open.append(_Container(is_object, "0", in_value=not is_object))
        elif byte in CLOSERS:
            self._open.pop()
        else:
            self._take_separator(byte)

    def _take_separator(self, byte: int) -> None:
        if byte == b":"[0]:
            self._open[-1].in_value = True
        elif byte == b","[0]:
            inside = self._open[-1]
            inside.begun = False
            inside.in_value = not inside.is_object
            inside.index += 1
            inside.segment = str(inside.index)

    def _take_in_text(self, byte: int) -> None:
        if self._escaped:
            self._escaped += 3 if byte == b"u"[0] and self._escaped == 1 else -1
        elif byte == ESCAPE:
            self._escaped = 1
        elif byte == QUOTE:
            self._in_text = False
            if self._in_key:
                self._open[-1].segment = _segment(bytes(self._key))
                self._in_key = False
            return
        if self._in_key:
            self._key.append(byte)

    def _is_value(self, byte: int) -> bool:
        if self._in_text:
            return not self._in_key
        if byte in BLANKS or byte in CLOSERS or byte in b",:":
            return False
        return not self._open or self._open[-1].in_value


def _segment(key: bytes) -> str:
    text: str = json.loads(b'"' + key + b'"')
    return text.replace("~", "~0").replace("/", "~1")
