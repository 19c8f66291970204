"""Whether work is taken now, and what ends it before its time.

In: the engine, and signals from the server's start and end. Out: results, or the reason why there is none. The states
of a server are: loading, ready, draining (a signal came: what runs may finish, nothing new begins), expired (the grace
is over). Cost: two waiting tasks for each running request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from fastapi import Request

from app.errors import ClientGoneError, ModelLoadingError
from app.exchange import exchange_of
from engine import Engine, EngineFailedError, Result, ShuttingDownError
from engine import Request as EngineRequest

T = TypeVar("T")
log = logging.getLogger("katagami")


class Gate:
    """One per server; used on the event loop only.

    Attributes
    ----------
    running : int
        Requests at work.
    draining : bool
        Nothing new begins.
    failure : Exception or None
        Why the models could not be loaded.
    loaded_at : int
        Unix time at which they were.
    on_loaded : callable
        Called once they are, before any work is taken.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.running = 0
        self.draining = False
        self.failure: Exception | None = None
        self.loaded_at = 0
        self.on_loaded: Callable[[], None] = lambda: None
        self._expired = asyncio.Event()

    async def load(self) -> None:
        """Load the models off the event loop, so that the server answers meanwhile."""
        try:
            await _on_daemon_thread(self.engine.start)
            self.on_loaded()
            self.loaded_at = int(time.time())
        except Exception as error:
            self.failure = error
            log.error("the models could not be loaded: %s", error)

    def expire(self) -> None:
        """End what still runs: each gets `ShuttingDownError`."""
        self._expired.set()

    def check_loaded(self) -> None:
        """Raise `ModelLoadingError` until the models are there, `EngineFailedError` if they never will be."""
        if self.failure:
            raise EngineFailedError("the models could not be loaded")
        if not (self.loaded_at and self.engine.ready) and not self.draining:
            raise ModelLoadingError("the models are still being loaded; try again shortly")

    def check_open(self) -> None:
        """Raise `ShuttingDownError` or `ModelLoadingError` where no work is taken."""
        if self.draining:
            raise ShuttingDownError
        self.check_loaded()

    async def generate(self, request: Request, model_name: str, asked: EngineRequest) -> Result:
        """What the engine makes of it; raises as `Engine.generate`, and as `run`."""
        exchange = exchange_of(request.scope)
        exchange.model = model_name
        exchange.result = result = await self.run(request, self.engine.generate(model_name, asked))
        return result

    async def run(self, request: Request | None, work: Coroutine[None, None, T]) -> T:
        """Await the work, or cancel it: when the client goes away (if there is one), and when the grace is over."""
        self.running += 1
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        expired = asyncio.ensure_future(self._expired.wait())
        try:
            await asyncio.wait({task, gone, expired}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientGoneError("the client closed the connection")
            raise ShuttingDownError
        finally:
            await _cancel(task, gone, expired)
            self.running -= 1


async def _on_daemon_thread(work: Callable[[], None]) -> None:
    """Run where the process can end meanwhile: large models take minutes to load."""
    outcome: Future[None] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work()
            outcome.set_result(None)
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, name="load", daemon=True).start()
    await asyncio.wrap_future(outcome)


async def _disconnected(request: Request | None) -> None:
    if request is None:
        await asyncio.Event().wait()
        return
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
