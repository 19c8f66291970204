"""What every exchange gets: a request id, on the response and in the log, and an answer even where the code has a bug.

In: an ASGI app. Out: the same, wrapped. Cost: a few microseconds a request. Rejected: the framework's handler for bugs,
which sits outside all middleware, so that its answers would carry no request id; and the web server's own lines for
the log, which know of none.
"""

from __future__ import annotations

import logging
import time
import uuid

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import CLIENT_GONE_STATUS, error_response, exchange_name

log = logging.getLogger("katagami")


class RequestIds:
    """Names each request, puts the name on its response under both SDKs' headers, and answers bugs with a plain 500."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = request_id
        status, started, started_s = CLIENT_GONE_STATUS, False, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except Exception as error:
            log.exception("%s failed", exchange_name(scope))
            if started:
                raise
            await error_response(Request(scope), error)(scope, receive, send_with_id)
        finally:
            elapsed_ms = 1000 * (time.perf_counter() - started_s)
            host = (scope.get("client") or ("unknown",))[0]
            log.info("%s %d in %.0f ms, from %s", exchange_name(scope), status, elapsed_ms, host)
