"""The thread that owns the models: requests in from any thread, results out to whoever waits for them.

In: `Request`. Out: `Result`, to a coroutine or to a blocked thread. The way of a request: checked; its schema compiled
on the pool's threads; queued; its sequences decoded on the one decode thread; its result set on a future, from where
`asyncio` carries it over to its own thread. Cost: two hand-overs between threads for each request.

A future that is cancelled takes its sequences out of the batch before the next step. Whatever a step raises fails the
requests that were in it, and the thread goes on. With several models the thread takes a step of each in turn.

Rejected: a step per event-loop turn, which stops the server for as long as a forward pass takes, and a thread for each
model, which would only share the same cores.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from threading import Condition, Thread
from time import perf_counter

import numpy as np

from engine.compiler_pool import CompilerPool, Order
from engine.config import EngineConfig
from engine.errors import ContextLengthError, EngineFailedError, QueueFullError, ShuttingDownError, UnknownModelError
from engine.models.registry import LoadedModel, load_model
from engine.sequence import Job, Request, Result, Sequence, choice_of, result_of, sequences_of
from engine.stats import EngineStats, RequestCounters, copy_of
from engine.step import Decoder
from schemas_cache import Limits, Lookup, SchemaCache, Source

SMOOTHING = 0.1  # weight of the latest request in the mean time that one takes

logger = logging.getLogger(__name__)


class Engine:
    """Decodes requests on models of its own; used from any thread.

    Parameters
    ----------
    config : EngineConfig
        Set-up.
    load : callable
        Loads a model by its name.
    cache : SchemaCache, optional
        Compiled schemas; by default one in `config.cache_folder`, closed at the end.
    """

    def __init__(
        self,
        config: EngineConfig,
        load: Callable[[str], LoadedModel] = load_model,
        cache: SchemaCache | None = None,
    ) -> None:
        self.config = config
        self.models: Mapping[str, LoadedModel] = {}
        self._load = load
        limits = Limits(compile_timeout_s=config.compile_timeout_s)
        self._cache = SchemaCache(config.cache_folder, limits=limits) if cache is None else cache
        self._pool = CompilerPool(self._cache, config.compile_workers)
        self._decoders: Mapping[str, Decoder] = {}
        self._counters = RequestCounters()
        self._thread = Thread(target=self._run, name="decode", daemon=True)
        self._change = Condition()  # over everything below
        self._seeds = np.random.default_rng(config.seed)
        self._arrived: deque[tuple[Decoder, Job]] = deque()
        self._cancelled: deque[tuple[Decoder, Job]] = deque()
        self._jobs: dict[int, tuple[Decoder, Job]] = {}  # all that are on their way, by id()
        self._accepting, self._stopping = False, False
        self._request_s = 1.0  # what a request takes from its beginning to its end, a moving mean

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self._accepting and self._thread.is_alive()

    @property
    def stats(self) -> EngineStats:
        """Counters at this moment."""
        with self._change:
            queued = sum(job.started_s is None for _, job in self._jobs.values())
        return EngineStats(
            queued=queued,
            running=sum(decoder.scheduler.slots_taken for decoder in self._decoders.values()),
            steps={name: copy_of(decoder.counters) for name, decoder in self._decoders.items()},
            **self._counters.snapshot(),
        )

    def start(self) -> None:
        """Load the models and begin to take requests.

        Raises
        ------
        ValueError
            When a model cannot be loaded.
        """
        models = {loaded.name: loaded for loaded in map(self._load, self.config.model_names)}
        self._decoders = {
            name: Decoder(
                loaded.model, loaded.tokenizer.vocabulary, loaded.tokenizer.encode_bytes, self.config.max_running
            )
            for name, loaded in models.items()
        }
        self.models = models
        if self._stopping:  # while the models were loaded
            return
        self._pool.start()
        self._thread.start()
        self._accepting = True

    def stop(self) -> None:
        """Take no more requests, let those under way run on for the grace time, fail the rest, and end the threads."""
        with self._change:
            self._accepting = False
            self._change.wait_for(lambda: not self._jobs, self.config.grace_s)
            self._stopping = True
            self._change.notify_all()
        self._pool.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self._cache.close()

    async def generate(self, model_name: str, request: Request) -> Result:
        """Decode a request; cancelling the awaiting task frees its rows before the next step.

        Raises
        ------
        UnknownModelError, ContextLengthError, QueueFullError, ShuttingDownError
            When the request is not taken.
        ValueError
            For a token of a prompt that is not in the vocabulary.
        SchemaError
            When its schema cannot be enforced, or not in time.
        DeadStateError
            When no token is allowed at some place; `RowDeadError` says in which choice.
        EngineFailedError
            For a fault that is not the request's.
        """
        return await asyncio.wrap_future(self.submit(model_name, request))

    def generate_blocking(self, model_name: str, request: Request) -> Result:
        """Decode a request and wait for it; raises as `generate`."""
        return self.submit(model_name, request).result()

    def submit(self, model_name: str, request: Request) -> Future[Result]:
        """Take a request, and return the future of its result; raises as `generate` where it is not taken."""
        loaded, decoder = self._check(model_name, request)
        job = self._take(decoder, request)
        order = None
        if request.source is None:
            self._enqueue(decoder, job)
        else:
            order = self._order(loaded, decoder, job, request.source)
        job.future.add_done_callback(partial(self._note_cancelled, decoder, job, order))
        return job.future

    def _order(self, loaded: LoadedModel, decoder: Decoder, job: Job, source: Source) -> Order | None:
        """Have the request's schema compiled; None where the pool was stopped since the request was taken."""
        asked_s, limit_s = job.request.compile_timeout_s, self.config.compile_timeout_s
        timeout_s = limit_s if asked_s is None else min(limit_s, asked_s)
        try:
            return self._pool.submit(
                source, loaded.tokenizer.vocabulary, timeout_s, partial(self._compiled, decoder, job)
            )
        except RuntimeError:
            self._finish(job, ShuttingDownError())
            return None

    def _check(self, model_name: str, request: Request) -> tuple[LoadedModel, Decoder]:
        loaded = self.models.get(model_name)
        if loaded is None:
            raise UnknownModelError(model_name, tuple(self.models))
        longest = max(map(len, request.prompts), default=0)
        if longest > loaded.model.context_length:
            raise ContextLengthError(longest, loaded.model.context_length)
        ids, size = set().union(*request.prompts), len(loaded.tokenizer.vocabulary)
        if ids and not 0 <= min(ids) <= max(ids) < size:
            raise ValueError(f"the prompt has a token outside the vocabulary of {size}")
        return loaded, self._decoders[model_name]

    def _take(self, decoder: Decoder, request: Request) -> Job:
        with self._change:
            if not self._accepting:
                raise ShuttingDownError
            queued, has_room = self._in_line(decoder)
            if queued >= self.config.max_queued and not has_room:
                self._counters.add("refused")
                raise QueueFullError(max(1.0, self._request_s / max(1, len(self._jobs) - queued)))
            seed, now_s = request.sampling.seed, perf_counter()
            if seed is None:
                seed = int(self._seeds.integers(1 << 63))
            job = Job(request, Future(), seed, submitted_s=now_s, ready_s=now_s)
            self._jobs[id(job)] = decoder, job
        self._counters.add("submitted")
        return job

    def _in_line(self, asked: Decoder) -> tuple[int, bool]:
        """How many requests have to wait for a slot, and whether the next one for this model would not have to.

        Slots are counted as if requests took them in the order they came in, also before the decode thread has seen
        them: which ones those will be is open until their schemas are compiled, how many is not.
        """
        free = dict.fromkeys(self._decoders.values(), self.config.max_running)
        queued = 0
        for decoder, job in self._jobs.values():
            if job.future.cancelled():  # gone before the next step
                continue
            queued += free[decoder] <= 0
            free[decoder] -= job.unfinished or len(job.request.prompts) * job.request.n
        return queued, free[asked] > 0

    def _compiled(self, decoder: Decoder, job: Job, outcome: Lookup | Exception) -> None:
        """Called on a thread of the pool."""
        if isinstance(outcome, Exception):
            self._finish(job, outcome)
            return
        job.lookup, job.ready_s = outcome, perf_counter()
        self._enqueue(decoder, job)

    def _enqueue(self, decoder: Decoder, job: Job) -> None:
        with self._change:
            self._arrived.append((decoder, job))
            self._change.notify_all()

    def _note_cancelled(self, decoder: Decoder, job: Job, order: Order | None, future: Future[Result]) -> None:
        """Called when the future is done, on whichever thread that is."""
        if future.cancelled():
            if order is not None:
                self._pool.leave(order)
            with self._change:
                self._cancelled.append((decoder, job))
                self._change.notify_all()

    def _finish(self, job: Job, outcome: Result | Exception) -> None:
        """Hand over what became of a request, once; afterwards nothing is known of it."""
        with self._change:
            if self._jobs.pop(id(job), None) is None:
                return
            self._change.notify_all()
        if not job.future.set_running_or_notify_cancel():
            self._counters.add("cancelled")
        elif isinstance(outcome, Exception):
            self._counters.add("failed")
            job.future.set_exception(outcome)
        else:
            self._counters.add("completed")
            job.future.set_result(outcome)

    def _run(self) -> None:
        """Decode until stopped: the decode thread."""
        while True:
            with self._change:
                self._change.wait_for(self._has_work)
                arrived, self._arrived = self._arrived, deque()
                cancelled, self._cancelled = self._cancelled, deque()
                stopping = self._stopping
            if stopping:
                break
            for decoder, job in arrived:
                self._begin(decoder, job)
            for decoder, job in cancelled:
                decoder.scheduler.drop(job)
                self._finish(job, CancelledError())
            for decoder in self._decoders.values():
                self._step(decoder)
        with self._change:
            left = list(self._jobs.values())
        for _, job in left:
            self._finish(job, ShuttingDownError())

    def _has_work(self) -> bool:
        idle = all(decoder.scheduler.idle for decoder in self._decoders.values())
        return bool(self._stopping or self._arrived or self._cancelled or not idle)

    def _begin(self, decoder: Decoder, job: Job) -> None:
        if id(job) not in self._jobs:  # cancelled while it was compiled
            return
        try:
            job.sequences = list(sequences_of(job, decoder.context_length))
        except Exception as error:
            logger.exception("a request could not begin")
            self._finish(job, EngineFailedError(f"{type(error).__name__}: {error}"))
            return
        job.unfinished = len(job.sequences)
        decoder.scheduler.add(job.sequences)

    def _step(self, decoder: Decoder) -> None:
        if decoder.scheduler.idle:
            return
        try:
            over = decoder.step()
        except Exception as error:
            logger.exception("a step failed")
            over = decoder.abandon(EngineFailedError(f"{type(error).__name__}: {error}"))
        for row in over:
            self._collect(decoder, row)

    def _collect(self, decoder: Decoder, row: Sequence) -> None:
        job = row.job
        if id(job) not in self._jobs:  # another of its sequences failed
            return
        job.unfinished -= 1
        if row.error is not None:
            decoder.scheduler.drop(job)
            self._finish(job, row.error)
        elif job.unfinished == 0:
            now_s = perf_counter()
            if job.started_s is not None:
                self._request_s += SMOOTHING * (now_s - job.started_s - self._request_s)
            self._finish(job, result_of(job, map(choice_of, job.sequences), now_s))
