"""The engine as others see it: requests in from any thread, results out to whoever waits for them.

In: `Request`. Out: `Result`, to a coroutine or to a blocked thread, or events as they come. The way of a request:
checked; its schema compiled by the pool; its sequences decoded on the decode thread; its result set on a future. A
prewarm, of no tokens, is done once its schema is compiled. Cost: two hand-overs between threads for each request, and
one for each step of a streamed one.

A future may be cancelled at any time: the request's sequences are out of the batch before the next step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from time import perf_counter

from engine.budget import check_room
from engine.checks import check_request
from engine.compile_processes import CompileProcesses
from engine.compiler_pool import CompilerPool, Order
from engine.config import EngineConfig, compiling_cache
from engine.decode_thread import DecodeThread
from engine.delivery import Mailbox, Post
from engine.errors import ShuttingDownError, UnknownModelError, unexpected
from engine.in_flight import InFlight
from engine.models.registry import LoadedModel, load_model
from engine.request import Ready, Request, Result, StreamEvent
from engine.sequence import Job, prewarmed, schema_use_of
from engine.stats import EngineStats, copy_of
from engine.step import Decoder
from schemas_cache import CompiledSchema, KatagamiError, Lookup, SchemaCache, Source, compile_source
from schemas_cache.store import CompileFunction
from schemas_cache.work import StoppedError

logger = logging.getLogger(__name__)


class Engine:
    """Decodes requests on models of its own; used from any thread.

    Parameters
    ----------
    config : EngineConfig
        Set-up.
    load : callable, optional
        Loads a model by its name; by default as the set-up says.
    cache : SchemaCache, optional
        Compiled schemas, closed at the end; compiles as it does. By default one in `config.cache_folder` that compiles
        in processes of its own.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[str], LoadedModel] | None = None,
        cache: SchemaCache | None = None,
    ) -> None:
        self.config = config
        self.models: Mapping[str, LoadedModel] = {}
        self._load = load or partial(load_model, home=config.home, cache_bytes=config.kv_cache_bytes)
        processes = CompileProcesses(config.compile_workers) if cache is None else None
        self._compile_apart: CompileFunction = compile_source if processes is None else processes.apart
        self._cache = cache or compiling_cache(config, processes or compile_source)
        self._pool = CompilerPool(self._cache, config.compile_workers, processes)
        self._decoders: Mapping[str, Decoder] = {}
        self._in_flight = InFlight(config)
        self._decoding = DecodeThread(self._in_flight)

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self._in_flight.accepting and self._decoding.is_alive

    @property
    def stats(self) -> EngineStats:
        """Counters at this moment."""
        return EngineStats(
            running=sum(decoder.scheduler.slots_taken for decoder in self._decoders.values()),
            steps={name: copy_of(decoder.counters) for name, decoder in self._decoders.items()},
            **self._in_flight.counts,
        )

    @property
    def cache(self) -> SchemaCache:
        """Compiled schemas."""
        return self._cache

    def inspect(self, model_name: str, source: Source) -> CompiledSchema:
        """Compile for an answer about the schema, not for use: nothing is kept, and no dense table is made.

        Raises
        ------
        UnknownModelError
            When there is no such model.
        SchemaError
            As `compile_source`.
        ShuttingDownError
            When the engine stops meanwhile.
        """
        loaded = self._model_named(model_name)
        limits = replace(self._cache.limits, max_dense_entries=0)
        try:
            return self._compile_apart(source, loaded.tokenizer.vocabulary, limits=limits)
        except StoppedError:
            raise ShuttingDownError from None

    def start(self) -> None:
        """Load the models and begin to take requests.

        Raises
        ------
        ValueError
            When a model cannot be loaded.
        """
        models = _by_name(map(self._load, self.config.model_names))
        self._decoders = {
            name: Decoder(
                loaded.model,
                loaded.tokenizer.vocabulary,
                loaded.tokenizer.encode_bytes,
                self.config.max_running,
                batch_invariant=self.config.batch_invariant,
                fast_path=self.config.fast_path,
            )
            for name, loaded in models.items()
        }
        self.models = models
        if self._decoding.stopping:  # while the models were loaded
            return
        self._pool.start(loaded.tokenizer.vocabulary for loaded in models.values())
        self._decoding.start(self._decoders.values())
        self._in_flight.accepting = True

    def stop(self) -> None:
        """Take no more requests, let those under way run on for the grace time, fail the rest, and end the threads."""
        self._in_flight.drain(self.config.grace_s)
        self._decoding.stop()
        self._pool.stop()
        self._decoding.join()
        self._cache.close()

    async def generate(self, model_name: str, request: Request) -> Result:
        """Decode a request; cancelling the awaiting task frees its rows before the next step.

        Raises
        ------
        UnknownModelError, ContextLengthError, CacheTooSmallError, QueueFullError, ShuttingDownError
            When the request is not taken.
        ValueError
            For a token of a prompt that is not in the vocabulary.
        SchemaError
            When its schema cannot be enforced, or not in time.
        DeadStateError
            When no token is allowed at some place; `RowDeadError` says in which choice.
        BudgetBelowMinimumError
            When no document has room and the request asks for an error then.
        DeadlineExceededError
            When the request's time is over.
        EngineFailedError
            For a fault that is not the request's.
        """
        return await asyncio.wrap_future(self.submit(model_name, request))

    def generate_blocking(self, model_name: str, request: Request) -> Result:
        """Decode a request and wait for it; raises as `generate`."""
        return self.submit(model_name, request).result()

    async def stream(self, model_name: str, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Decode a request and give what there is of it: `Ready`, then each `Delta` and `Choice`, at last the `Result`.

        Closing the generator, or cancelling the task that reads it, frees its rows before the next step. Events wait
        for a reader that is slow. Raises as `generate`; before `Ready` where the request is not taken or its schema
        fails, between events where decoding does.
        """
        mailbox = Mailbox()
        future = self._submit(model_name, request, mailbox.post)
        future.add_done_callback(lambda _: mailbox.close())
        try:
            async for event in mailbox.read():
                yield event
            yield future.result()
        finally:
            future.cancel()

    def submit(self, model_name: str, request: Request) -> Future[Result]:
        """Take a request, and return the future of its result; raises as `generate` where it is not taken."""
        return self._submit(model_name, request)

    def _submit(self, model_name: str, request: Request, post: Post | None = None) -> Future[Result]:
        loaded = self._model_named(model_name)
        check_request(request, loaded)
        decoder = self._decoders[model_name]
        job = self._in_flight.take(request, decoder, self._decoders.values(), post)
        order = None
        if request.source is None:
            self._enqueue(decoder, job)
        else:
            order = self._order(loaded, decoder, job, request.source)
        job.future.add_done_callback(partial(self._note_done, decoder, job, order))
        return job.future

    def _model_named(self, name: str) -> LoadedModel:
        loaded = self.models.get(name)
        if loaded is None:
            raise UnknownModelError(name, tuple(self.models))
        return loaded

    def _order(self, loaded: LoadedModel, decoder: Decoder, job: Job, source: Source) -> Order | None:
        """Have the request's schema compiled; None where the pool was stopped since the request was taken."""
        asked_s, limit_s = job.request.compile_timeout_s, self.config.compile_timeout_s
        timeout_s = limit_s if asked_s is None else min(limit_s, asked_s)
        try:
            return self._pool.submit(
                source, loaded.tokenizer.vocabulary, timeout_s, partial(self._compiled, decoder, job)
            )
        except RuntimeError:
            self._in_flight.finish(job, ShuttingDownError())
            return None

    def _compiled(self, decoder: Decoder, job: Job, outcome: Lookup | Exception) -> None:
        """Called on a thread of the pool."""
        if isinstance(outcome, Exception):
            self._in_flight.finish(job, outcome)
            return
        job.lookup, job.ready_s = outcome, perf_counter()
        try:
            check_room(job, decoder.context_length)
        except KatagamiError as error:
            self._in_flight.finish(job, error)
        except Exception as error:  # it must not end the pool's thread
            logger.exception("a request could not be looked at")
            self._in_flight.finish(job, unexpected(error))
        else:
            self._enqueue(decoder, job)

    def _enqueue(self, decoder: Decoder, job: Job) -> None:
        """Tell its reader that a request is ready, and have it decoded; a prewarm is done with that."""
        outlet, result = self._in_flight.outlet_of(job), None
        if job.request.max_tokens == 0 and not job.request.prompt_logprobs:
            result = prewarmed(job, decoder.context_length, perf_counter())
        if outlet is not None:
            ready = Ready(None if job.lookup is None else schema_use_of(job.lookup))
            outlet.post([ready, *(result.choices if result else ())])
        if result is None:
            self._decoding.put(decoder, job)
        else:
            self._in_flight.finish(job, result)

    def _note_done(self, decoder: Decoder, job: Job, order: Order | None, future: Future[Result]) -> None:
        """Called when the future is done, on whichever thread that is."""
        if order is not None:
            self._pool.leave(order)
        if future.cancelled():
            self._decoding.cancel(decoder, job)


def _by_name(loaded_models: Iterable[LoadedModel]) -> dict[str, LoadedModel]:
    """Models by the names that requests call them; raises `ValueError` where two have the same."""
    models: dict[str, LoadedModel] = {}
    for loaded in loaded_models:
        if loaded.name in models:
            raise ValueError(f"two models are named {loaded.name!r}: give the file or folder of one another name")
        models[loaded.name] = loaded
    return models
