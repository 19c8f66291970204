"""The HTTP application, put together.

In: settings, and an engine where the caller has one already. Out: a FastAPI app whose start loads the models in the
background (so that `/health` answers at once and `/ready` when they are there) and whose end stops the engine. Also
works with any ASGI server: `uvicorn --factory app.main:create_app`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.exceptions import HTTPException

from app.errors import answer_error, answer_http_exception
from app.gate import Gate
from app.middleware import RequestIds
from app.routes import completions, models, service
from app.settings import Settings
from engine import Engine
from schemas_cache import KatagamiError


def create_app(settings: Settings | None = None, engine: Engine | None = None) -> FastAPI:
    """The app; nothing is loaded before its lifespan begins."""
    settings = settings or Settings()
    gate = Gate(engine or Engine(settings.engine_config()))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(gate.load())
        yield
        gate.draining = True
        gate.expire()
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await asyncio.to_thread(gate.engine.stop)

    # Bodies are read and checked by hand, so generated documentation would be empty.
    app = FastAPI(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.state.gate, app.state.settings = gate, settings
    app.add_middleware(RequestIds)
    app.add_exception_handler(KatagamiError, answer_error)
    app.add_exception_handler(HTTPException, answer_http_exception)
    for part in (completions, models, service):
        app.include_router(part.router)
    return app
