"""Figures for Prometheus: what was asked, how long it took, what the engine and the schema cache hold now.

In: exchanges as they end, and the engine whenever somebody asks. Out: Prometheus's text. Cost: a few microseconds for
each exchange; a scrape reads the engine's counters and lists the schemas in memory. Labels are bounded: routes are
templates, methods are the usual ones, models are those that are loaded, and only answers of ours give statuses.

Rejected: the library's registry for the whole process, which two apps in one process (tests) would share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from app.errors import CLIENT_GONE_STATUS, code_of
from app.exchange import Exchange
from engine import EngineStats, Result
from schemas_cache import SchemaCache, SchemaError

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
STEP_FIGURES = {
    "steps": "Forward passes",
    "rows": "Rows of all forward passes",
    "forced_tokens": "Tokens without a choice",
    "interventions": "Draws whose best token the mask forbade, of those that had the logits of all tokens",
}
STAGES = ("forward", "mask", "sample", "advance")
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH"})


class Measured(Protocol):
    """What a scrape reads of an engine."""

    @property
    def stats(self) -> EngineStats:
        """Counters at this moment."""

    @property
    def cache(self) -> SchemaCache:
        """Compiled schemas."""


class Metrics:
    """All figures of one server."""

    def __init__(self, engine: Measured) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests by route and status", "route", "method", "status")
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts", "model")
        self.completion_tokens = self._counter("completion_tokens", "Tokens of answers, forced ones included", "model")
        self.closed_early = self._counter("closed_early", "Documents that were closed to fit their budget", "model")
        self.lookups = self._counter("schema_lookups", "Schemas by where their tables came from", "tier")
        self.failures = self._counter("compile_failures", "Schemas that were refused, by reason", "reason")
        self.queue_s = self._histogram("queue_seconds", "From a compiled schema to a place in the batch")
        self.compile_s = self._histogram("compile_seconds", "Until a schema's tables were there")
        self.first_token_s = self._histogram("first_token_seconds", "Until the first token, compiling included")
        self.total_s = self._histogram("total_seconds", "From a request's head to the end of its answer")
        self.registry.register(EngineFigures(engine))
        ProcessCollector(registry=self.registry)

    def observe(self, exchange: Exchange) -> None:
        """Count an exchange that is over."""
        method = exchange.method if exchange.method in METHODS else "other"
        self.requests.labels(exchange.route, method, exchange.status or CLIENT_GONE_STATUS).inc()
        if isinstance(exchange.error, SchemaError):
            self.failures.labels(code_of(exchange.error)).inc()
        if exchange.result and exchange.model:
            self.total_s.labels(exchange.model).observe(exchange.elapsed_s)
            self._observe_result(exchange.model, exchange.result)

    def render(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(self.registry)

    def _observe_result(self, model: str, result: Result) -> None:
        timings, schema = result.timings, result.schema
        compile_ms = schema.compile_ms if schema else 0.0
        if schema:
            self.lookups.labels(schema.cache).inc()
            self.compile_s.labels(model).observe(compile_ms / 1000)
        self.queue_s.labels(model).observe(timings.queue_ms / 1000)
        self.first_token_s.labels(model).observe((compile_ms + timings.queue_ms + timings.prefill_ms) / 1000)
        self.prompt_tokens.labels(model).inc(result.prompt_tokens)
        self.completion_tokens.labels(model).inc(result.completion_tokens)
        self.closed_early.labels(model).inc(sum(choice.closed_early for choice in result.choices))

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(f"katagami_{name}", told, labels, registry=self.registry)

    def _histogram(self, name: str, told: str) -> Histogram:
        return Histogram(f"katagami_{name}", f"{told}, in seconds", ("model",), registry=self.registry, buckets=SECONDS)


class EngineFigures(Collector):
    """The engine's own counters, read when they are asked for."""

    def __init__(self, engine: Measured) -> None:
        self.engine = engine

    def collect(self) -> Iterator[Metric]:
        """The figures at this moment."""
        stats = self.engine.stats
        yield GaugeMetricFamily("katagami_running", "Sequences that have a place in a batch", stats.running)
        yield GaugeMetricFamily("katagami_queued", "Requests of which no sequence has begun", stats.queued)
        for name in ("submitted", "completed", "failed", "cancelled", "refused"):
            told = f"Requests to the engine that were {name}"
            yield CounterMetricFamily(f"katagami_{name}", told, getattr(stats, name))
        yield from self._steps(stats)
        yield from self._cache()

    def _steps(self, stats: EngineStats) -> Iterator[Metric]:
        for name, words in STEP_FIGURES.items():
            family = CounterMetricFamily(f"katagami_{name}", words, labels=("model",))
            for model, counters in stats.steps.items():
                family.add_metric((model,), getattr(counters, name))
            yield family
        spent = CounterMetricFamily("katagami_step_seconds", "Time of steps, by stage", labels=("model", "stage"))
        for model, counters in stats.steps.items():
            for stage in STAGES:
                spent.add_metric((model, stage), getattr(counters, f"{stage}_s"))
        yield spent

    def _cache(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily("katagami_schema_cache_entries", "Schemas in the cache", labels=("tier",))
        size = GaugeMetricFamily("katagami_schema_cache_bytes", "What they take, by the nearest tier", labels=("tier",))
        stored = self.engine.cache.entries()
        for tier in ("memory", "disk"):
            sizes = [entry.size_bytes for entry in stored if entry.tier == tier]
            entries.add_metric((tier,), len(sizes))
            size.add_metric((tier,), sum(sizes))
        yield entries
        yield size
