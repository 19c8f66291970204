"""Events on their way from the engine to a reader who may be slow.

In: events, as fast as the engine makes them. Out: all that wait, at once. Cost: constant for each event. Where many
wait, deltas of one choice are joined, so that a reader who stalls costs the memory of the text and not of its steps;
joined ones end at a bound, so that joining stays linear. Rejected: a bounded queue, behind which the engine would have
to wait, and with it everybody else in the batch.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from engine import Delta, StreamEvent

JOIN_FROM = 64  # events that wait; a reader who keeps up never has so many
JOINED_TOKENS = 1024  # of one joined delta

T = TypeVar("T")


class Outbox:
    """One for each stream; used on the event loop only."""

    def __init__(self) -> None:
        self._events: list[StreamEvent] = []
        self._latest: dict[int, int] = {}  # choice -> place of its latest delta
        self._changed = asyncio.Event()
        self._over = False
        self._error: BaseException | None = None

    def put(self, event: StreamEvent) -> None:
        """Append an event, or join it to the one before."""
        if isinstance(event, Delta):
            place = self._latest.get(event.index)
            before = self._events[place] if place is not None and len(self._events) >= JOIN_FROM else None
            if place is not None and isinstance(before, Delta) and len(before.token_ids) < JOINED_TOKENS:
                self._events[place] = joined(before, event)
                return
            self._latest[event.index] = len(self._events)
        self._events.append(event)
        self._changed.set()

    def close(self, error: BaseException | None = None) -> None:
        """Nothing more will come; an error is raised to the reader once all before it is taken."""
        self._over, self._error = True, error
        self._changed.set()

    async def take(self) -> list[StreamEvent]:
        """All that wait, at least one event; an empty list at the end."""
        await self._changed.wait()
        events, self._events, self._latest = self._events, [], {}
        if not self._over:
            self._changed.clear()
        elif not events and self._error:
            raise self._error
        return events


def joined(first: Delta, second: Delta) -> Delta:
    """One delta for two in a row of the same choice."""
    logprobs = None if first.logprobs is None and second.logprobs is None else _sum(first.logprobs, second.logprobs)
    known = first.prompt_logprobs  # it comes with the first delta of a choice
    token_ids = first.token_ids + second.token_ids
    return Delta(first.index, first.text + second.text, token_ids, logprobs, prompt_logprobs=known)


def _sum(first: tuple[T, ...] | None, second: tuple[T, ...] | None) -> tuple[T, ...]:
    return (first or ()) + (second or ())
