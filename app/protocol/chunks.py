"""A stream's chunks, in the contract's order: openings, pieces, one end for each choice, usage.

In: the engine's events, and the judge's word on each complete text. Out: plain JSON values. Cost: linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.protocol.answers import Writer, ending_members, new_frame, schema_members, usage_body
from app.protocol.generation import Asked
from engine import Choice, Delta, Ready, Result, SchemaUse


class Chunks:
    """One for each stream.

    What is known of the schema stands on the chunk that ends the last choice, since only then all texts are known.
    """

    def __init__(self, asked: Asked, writer: Writer) -> None:
        self._asked, self._writer = asked, writer
        self._frame = new_frame(asked, writer)
        self._use: SchemaUse | None = None
        self._unfinished = asked.choices
        self._complete = True  # all texts so far

    def openings(self, ready: Ready) -> Iterator[dict[str, Any]]:
        """What comes before any text, choice by choice."""
        self._use = ready.schema
        for index in range(self._asked.choices):
            opening = self._writer.opening(index)
            if opening is not None:
                yield self._chunk({"index": index} | opening | {"finish_reason": None})

    def pieces(self, delta: Delta) -> Iterator[dict[str, Any]]:
        """A step's text, where it has any."""
        piece = self._writer.piece(delta)
        if piece is not None:
            yield self._chunk({"index": delta.index} | piece | {"finish_reason": None})

    def end(self, choice: Choice, valid: bool | None) -> dict[str, Any]:
        """The end of one choice."""
        members = ending_members(self._asked, self._writer, choice, self._use, valid)
        chunk = self._chunk({"index": choice.index} | self._writer.ending() | members)
        self._unfinished -= 1
        self._complete &= choice.complete
        if self._unfinished == 0:
            chunk |= {"structured": schema_members(self._asked, self._use, self._complete)}
        return chunk

    def usage(self, result: Result) -> Iterator[dict[str, Any]]:
        """The tokens that were used, where they were asked for."""
        if self._asked.include_usage:
            yield self._frame.body(self._writer.chunk_kind, []) | {"usage": usage_body(result)}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = self._frame.body(self._writer.chunk_kind, [choice])
        return chunk | {"usage": None} if self._asked.include_usage else chunk
