"""The thread that owns the models: requests in from any thread, results out to whoever waits for them.

In: `Request`. Out: `Result`, to a coroutine or to a blocked thread, or events as they come. The way of a request:
checked; its schema compiled on the pool's threads; queued; its sequences decoded on the one decode thread; its result
set on a future, from where `asyncio` carries it over to its own thread. A prewarm, of no tokens, is done once its
schema is compiled. Cost: two hand-overs between threads for each request, and one for each step of a streamed one.

A future that is cancelled, and a request whose deadline passes, takes its sequences out of the batch before the next
step. Whatever a step raises fails the requests that were in it, and the thread goes on. With several models the thread
takes a step of each in turn.

Rejected: a step per event-loop turn, which stops the server for as long as a forward pass takes, and a thread for each
model, which would only share the same cores.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Condition, Thread
from time import perf_counter

import numpy as np

from engine.admission import Admission
from engine.budget import check_room
from engine.compile_process import CompileProcesses, compiling_cache
from engine.compiler_pool import CompilerPool, Order
from engine.config import EngineConfig
from engine.delivery import Outlet, Post
from engine.errors import (
    CacheTooSmallError,
    ContextLengthError,
    DeadlineExceededError,
    EngineFailedError,
    QueueFullError,
    ShuttingDownError,
    UnknownModelError,
)
from engine.models import Model, caching
from engine.models.registry import LoadedModel, load_model
from engine.request import Ready, Request, Result, StreamEvent
from engine.retry import Trial, Verdict, events_of, judged
from engine.sequence import Job, Sequence, choice_of, prewarmed, result_of, schema_use_of, sequences_of
from engine.stats import EngineStats, RequestCounters, copy_of
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
        self._counters = RequestCounters()
        self._thread = Thread(target=self._run, name="decode", daemon=True)
        self._change = Condition()  # over everything below
        self._seeds = np.random.default_rng(config.seed)
        self._arrived: deque[tuple[Decoder, Job]] = deque()
        self._cancelled: deque[tuple[Decoder, Job]] = deque()
        self._judging = ThreadPoolExecutor(1, "judge")  # its thread starts with the first attempt
        self._verdicts: deque[tuple[Decoder, Sequence, Future[Verdict]]] = deque()
        self._trials: dict[int, Trial] = {}  # of requests that are drawn freely and judged, by their job's id()
        self._admission = Admission[Decoder](config.max_running, config.max_queued)
        self._outlets: dict[int, Outlet] = {}  # of streamed requests, by their job's id()
        self._accepting, self._stopping = False, False

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self._accepting and self._thread.is_alive()

    @property
    def stats(self) -> EngineStats:
        """Counters at this moment."""
        with self._change:
            queued = self._admission.waiting
        return EngineStats(
            queued=queued,
            running=sum(decoder.scheduler.slots_taken for decoder in self._decoders.values()),
            steps={name: copy_of(decoder.counters) for name, decoder in self._decoders.items()},
            **self._counters.snapshot(),
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
        loaded = self.models.get(model_name)
        if loaded is None:
            raise UnknownModelError(model_name, tuple(self.models))
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
        if self._stopping:  # while the models were loaded
            return
        self._pool.start(loaded.tokenizer.vocabulary for loaded in models.values())
        self._thread.start()
        self._accepting = True

    def stop(self) -> None:
        """Take no more requests, let those under way run on for the grace time, fail the rest, and end the threads."""
        with self._change:
            self._accepting = False
            self._change.wait_for(lambda: not self._admission, self.config.grace_s)
            self._stopping = True
            self._change.notify_all()
        self._pool.stop()
        self._judging.shutdown(cancel_futures=True)
        if self._thread.ident is not None:
            self._thread.join()
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
        loop = asyncio.get_running_loop()
        mail: asyncio.Queue[list[StreamEvent] | None] = asyncio.Queue()

        def post(events: list[StreamEvent] | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads
                loop.call_soon_threadsafe(mail.put_nowait, events)

        future = self._submit(model_name, request, post)
        future.add_done_callback(lambda _: post(None))
        try:
            while (events := await mail.get()) is not None:
                for event in events:
                    yield event
            yield future.result()
        finally:
            future.cancel()

    def submit(self, model_name: str, request: Request) -> Future[Result]:
        """Take a request, and return the future of its result; raises as `generate` where it is not taken."""
        return self._submit(model_name, request)

    def _submit(self, model_name: str, request: Request, post: Post | None = None) -> Future[Result]:
        loaded, decoder = self._check(model_name, request)
        job = self._take(decoder, request, post)
        order = None
        if request.source is None:
            self._enqueue(decoder, job)
        else:
            order = self._order(loaded, decoder, job, request.source)
        job.future.add_done_callback(partial(self._note_done, decoder, job, order))
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
            raise _too_long(longest, loaded.model)
        size, biased = len(loaded.tokenizer.vocabulary), {token_id for token_id, _ in request.sampling.logit_bias}
        for what, ids in (("the prompt", set().union(*request.prompts)), ("logit_bias", biased)):
            if ids and not 0 <= min(ids) <= max(ids) < size:
                raise ValueError(f"{what} has a token outside the vocabulary of {size}")
        return loaded, self._decoders[model_name]

    def _take(self, decoder: Decoder, request: Request, post: Post | None) -> Job:
        with self._change:
            if not self._accepting:
                raise ShuttingDownError
            now_s = perf_counter()
            try:
                self._admission.check(decoder, self._decoders.values(), now_s)
            except QueueFullError:
                self._counters.add("refused")
                raise
            seed = request.sampling.seed
            if seed is None:
                seed = int(self._seeds.integers(1 << 63))
            job = Job(request, Future(), seed, submitted_s=now_s, ready_s=now_s)
            self._admission.add(decoder, job)
            if post is not None:
                self._outlets[id(job)] = Outlet(job, post)
            self._change.notify_all()  # its deadline may be the next one
        self._counters.add("submitted")
        return job

    def _compiled(self, decoder: Decoder, job: Job, outcome: Lookup | Exception) -> None:
        """Called on a thread of the pool."""
        if isinstance(outcome, Exception):
            self._finish(job, outcome)
            return
        job.lookup, job.ready_s = outcome, perf_counter()
        try:
            check_room(job, decoder.context_length)
        except KatagamiError as error:
            self._finish(job, error)
        except Exception as error:  # it must not end the pool's thread
            logger.exception("a request could not be looked at")
            self._finish(job, EngineFailedError(f"{type(error).__name__}: {error}"))
        else:
            self._enqueue(decoder, job)

    def _enqueue(self, decoder: Decoder, job: Job) -> None:
        """Tell its reader that a request is ready, and put it in line; a prewarm is done with that."""
        outlet, result = self._outlets.get(id(job)), None
        if job.request.max_tokens == 0 and not job.request.prompt_logprobs:
            result = prewarmed(job, decoder.context_length, perf_counter())
        if outlet is not None:
            ready = Ready(None if job.lookup is None else schema_use_of(job.lookup))
            outlet.post([ready, *(result.choices if result else ())])
        if result is not None:
            self._finish(job, result)
            return
        with self._change:
            self._arrived.append((decoder, job))
            self._change.notify_all()

    def _note_done(self, decoder: Decoder, job: Job, order: Order | None, future: Future[Result]) -> None:
        """Called when the future is done, on whichever thread that is."""
        if order is not None:
            self._pool.leave(order)
        if future.cancelled():
            with self._change:
                self._cancelled.append((decoder, job))
                self._change.notify_all()

    def _finish(self, job: Job, outcome: Result | Exception) -> None:
        """Hand over what became of a request, once; afterwards nothing is known of it."""
        with self._change:
            if not self._admission.remove(job):
                return
            self._outlets.pop(id(job), None)
            self._trials.pop(id(job), None)
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
        while self._turn():
            pass
        with self._change:
            left = self._admission.jobs
        for job in left:
            self._finish(job, ShuttingDownError())

    def _turn(self) -> bool:
        """Wait for work, let requests come and go, and take a step of each model; False once stopped."""
        with self._change:
            while not (late := self._admission.late(perf_counter())) and not self._has_work():
                self._change.wait(self._admission.remaining_s(perf_counter()))
            arrived, self._arrived = self._arrived, deque()
            cancelled, self._cancelled = self._cancelled, deque()
            verdicts, self._verdicts = self._verdicts, deque()
            if self._stopping:
                return False
        for decoder, job in arrived:
            self._begin(decoder, job)
        for decoder, row, verdict in verdicts:
            self._go_on(decoder, row, verdict)
        for decoder, job in cancelled:
            decoder.scheduler.drop(job)
            self._finish(job, CancelledError())
        for decoder, job in late:
            decoder.scheduler.drop(job)
            self._finish(job, DeadlineExceededError(job.request.deadline_s or 0.0))
        busy = [decoder for decoder in self._decoders.values() if not decoder.scheduler.idle]
        may_wait = all(decoder.stalled for decoder in busy)
        for decoder in busy:
            self._step(decoder, may_wait)
        return True

    def _has_work(self) -> bool:
        idle = all(decoder.scheduler.idle for decoder in self._decoders.values())
        return bool(self._stopping or self._arrived or self._cancelled or self._verdicts or not idle)

    def _begin(self, decoder: Decoder, job: Job) -> None:
        if job not in self._admission:  # cancelled while it was compiled
            return
        try:
            job.sequences = self._sequences(job, decoder.context_length)
        except Exception as error:
            logger.exception("a request could not begin")
            self._finish(job, EngineFailedError(f"{type(error).__name__}: {error}"))
            return
        job.unfinished = len(job.sequences)
        decoder.scheduler.add(job.sequences)

    def _sequences(self, job: Job, context_length: int) -> list[Sequence]:
        """What a request begins with."""
        if job.request.retry is None:
            return list(sequences_of(job, context_length))
        trial = Trial(job, context_length)
        with self._change:
            self._trials[id(job)] = trial
        return trial.first

    def _step(self, decoder: Decoder, may_wait: bool) -> None:
        try:
            over = decoder.step(may_wait)
        except Exception as error:
            logger.exception("a step failed")
            over = decoder.abandon(EngineFailedError(f"{type(error).__name__}: {error}"))
        with self._change:
            outlets = [outlet for key, outlet in self._outlets.items() if key not in self._trials]
        done = set(map(id, over))
        for outlet in outlets:
            outlet.deliver(done)
        for row in over:
            self._collect(decoder, row)

    def _collect(self, decoder: Decoder, row: Sequence) -> None:
        job = row.job
        if job not in self._admission:  # another of its sequences failed
            return
        if row.error is None and id(job) in self._trials:
            self._judge(decoder, row)
            return
        job.unfinished -= 1
        if row.error is not None:
            decoder.scheduler.drop(job)
            self._finish(job, row.error)
        elif job.unfinished == 0:
            now_s = perf_counter()
            if job.started_s is not None:
                self._admission.took(now_s - job.started_s)
            self._finish(job, result_of(job, map(choice_of, job.sequences), now_s))

    def _judge(self, decoder: Decoder, row: Sequence) -> None:
        """Have an attempt judged on another thread, which takes longer than a step."""

        def note(verdict: Future[Verdict]) -> None:
            with self._change:
                self._verdicts.append((decoder, row, verdict))
                self._change.notify_all()

        with suppress(RuntimeError):  # stopped meanwhile: all that is left fails anyway
            self._judging.submit(judged, row).add_done_callback(note)

    def _go_on(self, decoder: Decoder, row: Sequence, verdict: Future[Verdict]) -> None:
        """Begin further attempts at an answer, or have done with it."""
        job, trial = row.job, self._trials.get(id(row.job))
        if trial is None or verdict.cancelled():  # the request is over, or the engine
            return
        error = verdict.exception()
        if error is not None:
            decoder.scheduler.drop(job)
            self._finish(job, error if isinstance(error, KatagamiError) else EngineFailedError(f"judging: {error}"))
            return
        move = trial.take(row, verdict.result(), decoder.scheduler.slots_free)
        decoder.scheduler.withdraw(move.needless)
        job.sequences += move.new
        decoder.scheduler.add(move.new)
        outlet = self._outlets.get(id(job))
        if outlet is not None and move.choice is not None:
            outlet.post(events_of(move.choice))
        if trial.over:
            decoder.scheduler.drop(job)
            self._finish(job, result_of(job, trial.choices, perf_counter()))


def _by_name(loaded_models: Iterable[LoadedModel]) -> dict[str, LoadedModel]:
    """Models by the names that requests call them; raises `ValueError` where two have the same."""
    models: dict[str, LoadedModel] = {}
    for loaded in loaded_models:
        if loaded.name in models:
            raise ValueError(f"two models are named {loaded.name!r}: give the file or folder of one another name")
        models[loaded.name] = loaded
    return models


def _too_long(prompt_tokens: int, model: Model) -> Exception:
    """The reason why a prompt is too long for a model."""
    cached = caching(model)
    if cached is not None and prompt_tokens >= cached.cache.capacity_tokens:
        size = cached.cache.token_bytes
        return CacheTooSmallError(prompt_tokens, (prompt_tokens + 1) * size, cached.cache.capacity_tokens * size)
    return ContextLengthError(prompt_tokens, model.context_length)
