"""What of an answer under way may be shown now, and how it gets to the event loop that reads it.

In: the sequences of a streamed request after a step. Out: events for its reader, all of a step in one hand-over between
threads. A `Delta`'s text is whole characters, and nothing that may still become a stop string; all deltas of an answer
joined are its text, however it was cut into tokens. Cost: linear in the new bytes, and in the lengths of the stop
strings.

The decode thread never waits for a reader: events wait for it, as many as the request has tokens at the most.

Rejected: a call into the event loop for each token; a bounded line, whose end either stops the decode thread or loses
text.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress

from engine.request import Delta, StreamEvent
from engine.sequence import Job, Sequence, choice_of

Post = Callable[[list[StreamEvent]], None]


class Mailbox:
    """Where events are read on an event loop; made there, and filled from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._mail: asyncio.Queue[list[StreamEvent] | None] = asyncio.Queue()

    def post(self, events: list[StreamEvent]) -> None:
        """Hand events over."""
        self._put(events)

    def close(self) -> None:
        """Nothing more will come."""
        self._put(None)

    async def read(self) -> AsyncIterator[StreamEvent]:
        """All events, to the end."""
        while (events := await self._mail.get()) is not None:
            for event in events:
                yield event

    def _put(self, events: list[StreamEvent] | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads
            self._loop.call_soon_threadsafe(self._mail.put_nowait, events)


class Outlet:
    """The reader's end of one request: what it has been sent, and how to send more.

    Parameters
    ----------
    job : Job
        The request.
    post : callable
        Hands events over; called from any thread.
    """

    def __init__(self, job: Job, post: Post) -> None:
        self.job, self.post = job, post
        self._readers: list[Reader] = []

    def deliver(self, done: Collection[int]) -> None:
        """Send what the last step brought; called on the decode thread. `done` are the id()s of sequences that left."""
        if not self._readers:
            self._readers = [Reader(row) for row in self.job.sequences]
        events: list[StreamEvent] = []
        for reader in self._readers:
            reader.read(events, done)
        if events:
            self.post(events)


class Reader:
    """Follows one sequence."""

    def __init__(self, row: Sequence) -> None:
        self._row = row
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes = 0  # how much of the sequence's data was decoded
        self._tokens = 0  # how many of its tokens were sent
        self._steps: list[tuple[int, int]] = []  # tokens and bytes after each step that is not sent yet
        self._known = 0, 0  # tokens and bytes of which all is known
        self._begun, self._ended = False, False

    def read(self, events: list[StreamEvent], done: Collection[int]) -> None:
        """Append what is new: a `Delta` where there are new tokens or characters, the `Choice` at the end."""
        row, request = self._row, self._row.job.request
        if self._ended or row.error is not None:
            return
        self._look()
        if request.prompt_logprobs and id(row) not in done and not self._prompt_is_known():
            return
        text, token_ids = self._new_text(), tuple(row.token_ids[self._tokens : self._known[0]])
        owes_prompt = request.prompt_logprobs and not self._begun
        if text or token_ids or (owes_prompt and id(row) in done):
            logprobs = None if request.logprobs is None else tuple(row.logprobs[self._tokens : self._known[0]])
            self._tokens, self._begun = self._known[0], True
            prompt_logprobs = tuple(row.prompt_logprobs) if owes_prompt else None
            events.append(Delta(row.index, text, token_ids, logprobs, prompt_logprobs))
        if id(row) in done:
            self._ended = True
            events.append(choice_of(row))

    def _look(self) -> None:
        """Find out how far all is known: probabilities of forced tokens come a step behind them."""
        row = self._row
        now = len(row.token_ids), len(row.data)
        if now != (self._steps[-1] if self._steps else self._known):
            self._steps.append(now)
        tokens = len(row.token_ids) if row.job.request.logprobs is None else len(row.logprobs)
        while self._steps and self._steps[0][0] <= tokens:
            self._known = self._steps.pop(0)

    def _prompt_is_known(self) -> bool:
        return len(self._row.prompt_logprobs) == len(self._row.prompt)

    def _new_text(self) -> str:
        row = self._row
        end = len(row.data) if row.text_bytes is None else row.text_bytes
        if not row.over:
            end -= held_back(row.data, row.stops)
        start, self._bytes = self._bytes, max(self._bytes, min(end, self._known[1]))
        return self._decoder.decode(bytes(row.data[start : self._bytes]))


def held_back(data: bytes | bytearray, stops: tuple[bytes, ...]) -> int:
    """Length of the longest end of `data` that a stop string begins with."""
    for length in range(min(len(data), max(map(len, stops), default=1) - 1), 0, -1):
        if any(stop.startswith(data[-length:]) for stop in stops if len(stop) > length):
            return length
    return 0
