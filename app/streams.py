"""An answer in pieces: the engine's events to server-sent events.

In: a checked request. Out: bytes on the client's connection, in the contract's order. Cost: a task that moves events,
and one JSON text for each chunk.

The headers wait for the schema, for two seconds at most: what is wrong with a request is then told with a status of its
own. Later errors come as an event in the stream, which ends without `[DONE]`. Silence is broken by comments. A client
that goes away ends the work for it; one that reads slowly delays nobody, and costs the memory of its text. Rejected:
the framework's streaming response, which sends its headers before anything is known, and listens for the client's end
where the gate does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from app.errors import ClientGoneError, answer_to, openai_body
from app.exchange import Exchange, exchange_of
from app.gate import Gate
from app.outbox import Outbox
from app.proof import Judge, judge
from app.protocol.answers import Writer, schema_headers
from app.protocol.chunks import Chunks
from app.protocol.generation import Asked
from engine import Choice, Delta, Ready, Result, StreamEvent

HEADERS_WAIT_S = 2.0  # for the schema; what takes longer is told in the stream
SILENCE_S = 10.0  # before a comment says that the server is still there
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}

log = logging.getLogger("katagami")


def event_bytes(data: Mapping[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"


class EventStream(Response):
    """The response; nothing runs before it is sent."""

    def __init__(self, gate: Gate, asked: Asked, writer: Writer) -> None:
        super().__init__()
        self._gate, self._asked = gate, asked
        self._chunks = Chunks(asked, writer)
        self._judge: Judge | None = None
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request and send what it comes to; raises its errors only before the headers are out."""
        exchange = exchange_of(scope)
        exchange.model = self._asked.model.name
        try:
            await self._gate.run(Request(scope, receive), self._run(exchange, send))
        except Exception as error:
            if not self._started:
                raise
            exchange.error = error
            if not isinstance(error, ClientGoneError):
                await _send(send, _failure(exchange, error), more=False)

    async def _run(self, exchange: Exchange, send: Send) -> None:
        """Headers, events as they come and comments while none do, the end."""
        outbox = Outbox()
        moving = asyncio.ensure_future(
            _move(self._gate.engine.stream(self._asked.model.name, self._asked.request), outbox)
        )
        try:
            events = await _take(outbox, time.monotonic() + HEADERS_WAIT_S)
            await self._start(send, events or ())
            silent_until_s = time.monotonic() + SILENCE_S
            while events is None or events:
                data = KEEP_ALIVE if events is None else await self._bytes_of(events, exchange)
                if data:  # a step may have nothing to show
                    await _send(send, data, more=True)
                    silent_until_s = time.monotonic() + SILENCE_S
                events = await _take(outbox, silent_until_s)
            await _send(send, b"", more=False)
        finally:
            moving.cancel()
            await asyncio.gather(moving, return_exceptions=True)

    async def _start(self, send: Send, events: Sequence[StreamEvent]) -> None:
        """The headers, with what is known by now."""
        ready = next((event for event in events if isinstance(event, Ready)), None)
        known = {} if ready is None else schema_headers(self._asked, ready.schema, complete=True, timings_ms={})
        headers = [(name.encode(), value.encode()) for name, value in (HEADERS | known).items()]
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _bytes_of(self, events: Sequence[StreamEvent], exchange: Exchange) -> bytes:
        """All server-sent events for these; the last of all is noted for the log."""
        if isinstance(events[-1], Result):
            exchange.result = events[-1]
        return b"".join([part for event in events for part in await self._parts_of(event)])

    async def _parts_of(self, event: StreamEvent) -> list[bytes]:
        """The server-sent events for one of the engine's."""
        if isinstance(event, Ready):
            return [event_bytes(chunk) for chunk in self._chunks.openings(event)]
        if isinstance(event, Delta):
            return [event_bytes(chunk) for chunk in self._chunks.pieces(event)]
        if isinstance(event, Choice):
            valid = await run_in_threadpool(self._verdict, event)
            return [event_bytes(self._chunks.end(event, valid))]
        return [*map(event_bytes, self._chunks.usage(event)), DONE]

    def _verdict(self, choice: Choice) -> bool | None:
        """The judge's word on a complete document; in a worker thread, since building a judge takes time."""
        source = self._asked.request.source
        if source is None or not choice.complete:
            return None
        if self._judge is None:
            self._judge = judge(source)
        return self._judge(choice.text)


async def _move(events: AsyncGenerator[StreamEvent, None], outbox: Outbox) -> None:
    """Keep up with the engine, whatever the client does; cancelled, it gives up the request's rows."""
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                outbox.put(event)
    except Exception as error:
        outbox.close(error)
    else:
        outbox.close()


async def _take(outbox: Outbox, until_s: float) -> list[StreamEvent] | None:
    """What waits, nothing at the end; None where nothing came in time (seconds of `time.monotonic`)."""
    deadline = asyncio.timeout(until_s - time.monotonic())
    try:
        async with deadline:
            return await outbox.take()
    except TimeoutError:
        if not deadline.expired():
            raise
        return None


async def _send(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def _failure(exchange: Exchange, error: Exception) -> bytes:
    """An error as an event; clients keep no more of it than its message, so that has the request's id."""
    if answer_to(error).status == 500:
        log.error("%s failed", exchange.name, exc_info=error)
    body = openai_body(error, exchange.request_id)
    if exchange.request_id not in body["error"]["message"]:
        body["error"]["message"] += f" (request {exchange.request_id})"
    return event_bytes(body)
