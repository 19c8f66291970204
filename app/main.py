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
from app.keys import Keys, read_keys
from app.metrics import Metrics
from app.middleware import METRICS_PATH, OPEN_PATHS, Bugs, CrossOrigin, Entrance, Exchanges
from app.prewarm import Prewarming
from app.routes import chat, completions, models, schemas, service, tokens
from app.settings import Settings
from engine import Engine
from schemas_cache import KatagamiError


def create_app(settings: Settings | None = None, engine: Engine | None = None) -> FastAPI:
    """The app; nothing is loaded before its lifespan begins."""
    settings = settings or Settings()
    keys = read_keys((key.get_secret_value() for key in settings.api_key), settings.api_key_file)
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

    # Bodies are read and checked by hand, so the framework's own documentation would be empty: see app/openapi.
    app = FastAPI(lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    app.state.gate, app.state.settings, app.state.metrics = gate, settings, Metrics(gate.engine)
    app.state.prewarming = Prewarming(gate, settings.request_timeout_s)
    app.state.reporting = asyncio.Semaphore(settings.compile_workers)
    add_middleware(app, settings, keys)
    app.add_exception_handler(KatagamiError, answer_error)
    app.add_exception_handler(HTTPException, answer_http_exception)
    for part in (completions, chat, models, schemas, service, tokens):
        app.include_router(part.router)
    return app


def add_middleware(app: FastAPI, settings: Settings, keys: Keys) -> None:
    """From the inside outwards: the last one added sees a request first."""
    open_paths = OPEN_PATHS if settings.metrics_need_key else OPEN_PATHS | {METRICS_PATH}
    app.add_middleware(Bugs)
    app.add_middleware(Entrance, keys=keys, open_paths=open_paths, body_timeout_s=settings.client_timeout_s)
    if settings.cors_origin:
        app.add_middleware(CrossOrigin, origins=settings.cors_origin)
    app.add_middleware(Exchanges, metrics=app.state.metrics)
