"""Connections that cost nobody anything but themselves: slow, stalled, malformed, too many.

In: bytes of a client. Out: what uvicorn makes of them, within bounds: a request's head has to be there in time; who
does not read the answer is cut off; beyond a number of connections requests are marked, so that the app can refuse them
with a clear answer; and what is no HTTP is told so in the form of all other errors. (A body's time is the middleware's:
it needs an answer by the app.) Cost: a timer for each request.

Rejected: uvicorn's `limit_concurrency`, whose answer is plain text and for health checks too; a proxy in front, which
people on a laptop do not have.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

MAX_HEAD_BYTES = 65_536  # of a request line and all headers; cookies and tracing headers of real clients take far less
LEAST_READ_BYTES = 16_384  # of an answer within the patience: 273 bytes a second by default
LINGER_S = 1.0  # after an answer to what is no HTTP: closed at once, the rest of what was sent would reset it unread
CROWDED = "crowded"  # in a request's state: it came over a connection beyond the limit

_REASONS = {
    400: "this is no HTTP request that can be read",
    408: "the head of the request did not come in time",
    431: f"the head of the request is longer than {MAX_HEAD_BYTES} bytes",
}
_CODES = {400: "invalid_http", 408: "request_timeout", 431: "headers_too_large"}


class Timer:
    """Calls something later, once, unless it is stopped or started again before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def start(self, delay_s: float, call: Callable[..., object], *arguments: object) -> None:
        """Begin anew."""
        self.stop()
        self._handle = self._loop.call_later(delay_s, call, *arguments)

    def stop(self) -> None:
        """Call nothing."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class PatientConnection(H11Protocol):
    """One connection.

    Parameters
    ----------
    patience_s : float
        How long a head may take to come, and how long nothing may be read of an answer.
    max_connections : int
        Beyond as many at once, requests are marked as `CROWDED`.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        patience_s: float,
        max_connections: int,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.patience_s, self.max_connections = patience_s, max_connections
        self._head_timer, self._read_timer = Timer(self.loop), Timer(self.loop)
        self._silent = True  # since the connection was made, or the last answer
        self._leaving = False  # all was said; what still comes is not read
        self._unread_bytes = 0  # of answers, when the wait for the client to read began

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self.app_state = self.app_state | {CROWDED: True}
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._head_timer.stop()
        self._read_timer.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something of a head or of a body."""
        self._silent = False
        if not self._leaving:
            super().data_received(data)

    def handle_events(self) -> None:
        """A head that is whole ends the wait for it."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._head_timer.stop()

    def on_response_complete(self) -> None:
        """Begin to wait for the next head, or for the answer to be read by a client that was told to leave."""
        self._await_head()
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_reader()

    def pause_writing(self) -> None:
        """The client does not keep up: begin to wait for it to read on."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """The client has read on."""
        self._read_timer.stop()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also of a client that never reads what is left."""
        super().timeout_keep_alive_handler()
        self._await_reader()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's words are replaced by ours
        """Tell what is no HTTP so; called where h11's error is being handled."""
        self._refuse(getattr(sys.exception(), "error_status_hint", 400))

    def _await_head(self) -> None:
        self._silent = True
        self._head_timer.start(self.patience_s, self._give_up)

    def _give_up(self) -> None:
        """End a connection without a request: with an answer only where one was begun."""
        if self._silent:
            self.timeout_keep_alive_handler()
        else:
            self._refuse(408)

    def _await_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_timer.start(self.patience_s, self._judge_reader)

    def _judge_reader(self) -> None:
        """Cut off who has read too little; who reads on has time again."""
        if self._unread_bytes - self.transport.get_write_buffer_size() < LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._await_reader()

    def _refuse(self, status: int) -> None:
        """Answer without the app where an answer can still be given, and leave."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what the app says from now on is not sent
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE) or self.transport.is_closing():
            self._leave()
            return
        self._leaving = True
        self.transport.write(self._refusal(status if status in _CODES else 400))
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self._leave)

    def _leave(self) -> None:
        self.transport.close()
        self._await_reader()

    def _refusal(self, status: int) -> bytes:
        request_id = f"req_{uuid.uuid4().hex}"
        error = {
            "message": _REASONS[status],
            "type": "invalid_request_error",
            "param": None,
            "code": _CODES[status],
        }
        body = json.dumps({"error": error}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        headers |= {"x-request-id": request_id, "request-id": request_id, "x-should-retry": "false"}
        response = h11.Response(status_code=status, headers=list(headers.items()))
        parts = (self.conn.send(event) for event in (response, h11.Data(data=body), h11.EndOfMessage()))
        return b"".join(part for part in parts if part)
