"""What every exchange gets.

From the outside inwards:

    Exchanges   a request id, on the response, in the log and in the metrics
    CrossOrigin answers for browsers, where pages of other origins may call
    Entrance    no more connections than may be; an API key, before anything of the body is read; a body in time
    Bugs        an answer even where the code has a bug

In: an ASGI app. Out: the same, wrapped. Cost: some microseconds a request. Rejected: the framework's handler for bugs,
which sits outside all middleware, so that its answers would carry no request id; and the web server's own lines for
the log, which know of none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.connections import CROWDED
from app.errors import BodyTimeoutError, InvalidKeyError, RequestError, TooManyConnectionsError, error_response
from app.exchange import begin_exchange, exchange_of
from app.keys import Keys, presented_keys
from app.logs import log_exchange
from app.metrics import Metrics

OPEN_PATHS = frozenset({"/health", "/ready", "/version", "/openapi.json"})  # tell nothing that is anybody's own
METRICS_PATH = "/metrics"
CROSS_ORIGIN_METHODS = ("GET", "HEAD", "POST", "DELETE")
EXPOSED_HEADERS = (
    *("x-request-id", "request-id", "x-schema-hash", "x-schema-cache", "x-schema-warnings", "server-timing"),
    *("retry-after", "retry-after-ms", "x-should-retry"),
)

log = logging.getLogger("katagami")


class Exchanges:
    """Names each request, puts the name on its response under both SDKs' headers, and tells log and metrics of it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = begin_exchange(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = exchange.request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            exchange.route = getattr(scope.get("route"), "path", exchange.route)
            self.metrics.observe(exchange)
            log_exchange(exchange)


class CrossOrigin(CORSMiddleware):
    """The framework's, but that a refused question is answered as all other errors are."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=CROSS_ORIGIN_METHODS,
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the browser's question, or serve with the headers that let a page read the answer."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        if scope["type"] != "http" or scope["method"] != "OPTIONS" or "access-control-request-method" not in headers:
            await super().__call__(scope, receive, send)
            return
        await self._answer(scope, headers)(scope, receive, send)

    def _answer(self, scope: Scope, headers: Headers) -> Response:
        if "origin" not in headers:
            return error_response(Request(scope), RequestError("invalid_value", "the origin header is missing"))
        response = self.preflight_response(headers)
        if response.status_code == 200:
            return response
        reason = f"{bytes(response.body).decode()}; the server's --cors-origin names who may call"
        return error_response(Request(scope), RequestError("invalid_value", reason))


class Entrance:
    """Lets in who may come in, and does not wait for ever for what they have to say."""

    def __init__(self, app: ASGIApp, keys: Keys, open_paths: frozenset[str], body_timeout_s: float) -> None:
        self.app, self.keys, self.open_paths, self.body_timeout_s = app, keys, open_paths, body_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange, or refuse it."""
        if scope["type"] != "http" or scope["path"] in self.open_paths:
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, TimedBody(receive, self.body_timeout_s), send)
            return
        headers = {"www-authenticate": "Bearer"} if isinstance(refusal, InvalidKeyError) else None
        await error_response(Request(scope), refusal, headers)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Exception | None:
        if scope["state"].get(CROWDED):
            return TooManyConnectionsError("too many connections are open; try again shortly")
        if not self.keys:
            return None
        presented = presented_keys(Headers(scope=scope))
        exchange_of(scope).key_name = name = self.keys.name_of(presented)
        if name is not None:
            return None
        told = "the API key is not known here" if presented else "an API key is needed"
        return InvalidKeyError(f"{told}; send it as authorization: Bearer KEY, or as x-api-key: KEY")


class TimedBody:
    """Receives a body within the time it has; afterwards as long as it takes."""

    def __init__(self, receive: Receive, timeout_s: float) -> None:
        self.receive, self.timeout_s = receive, timeout_s
        self.deadline_s = asyncio.get_running_loop().time() + timeout_s
        self.whole = False

    async def __call__(self) -> Message:
        """The next message; raises `BodyTimeoutError`."""
        if self.whole:
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.deadline_s):
                message = await self.receive()
        except TimeoutError:
            raise BodyTimeoutError(f"the body did not come within {self.timeout_s:g} s") from None
        self.whole = not message.get("more_body", False)
        return message


class Bugs:
    """Answers what nobody expected with a plain 500, and has the log tell the rest."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        started = False

        async def send_and_see(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_see)
        except Exception as error:
            if scope["type"] != "http":
                raise
            log.exception("%s failed", exchange_of(scope).name)
            if started:
                raise
            await error_response(Request(scope), error)(scope, receive, send)
