"""Memory over many requests: resident megabytes and live objects of the engine after each tenth of them.

    python tests/benchmarks/bench_memory.py [--requests 10000] [--at-once 50]

The requests take turns: a document, a streamed one, one that its client leaves after the first text, one whose
deadline has passed, one that is refused for its limit, free text with log-probabilities, a prewarm. All have one of 20
schemas. What is flat after the first tenth is what does not leak.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine import BudgetBelowMinimumError, DeadlineExceededError, Delta, Engine, EngineConfig, Request
from engine.sequence import Job
from engine.sequence import Sequence as Row
from schemas_cache import schema_source

MODEL = "katagami-char"
SCHEMAS = [
    schema_source(
        {"type": "object", "properties": {"n": {"const": i}, "s": {"type": "string"}}, "required": ["n", "s"]}
    )
    for i in range(20)
]
TENTHS = 10


async def whole(engine: Engine, request: Request) -> None:
    """Wait for the result."""
    await engine.generate(MODEL, request)


async def streamed(engine: Engine, request: Request) -> None:
    """Read all events."""
    async for _ in engine.stream(MODEL, request):
        pass


async def left(engine: Engine, request: Request) -> None:
    """Go away after the first text."""
    async with aclosing(engine.stream(MODEL, request)) as events:
        async for event in events:
            if isinstance(event, Delta):
                return


async def late(engine: Engine, request: Request) -> None:
    """Have no time."""
    with suppress(DeadlineExceededError):
        await engine.generate(MODEL, replace(request, deadline_s=0.001))


async def refused(engine: Engine, request: Request) -> None:
    """Have no room."""
    with suppress(BudgetBelowMinimumError):
        await engine.generate(MODEL, replace(request, max_tokens=2, on_limit="error"))


async def free(engine: Engine, request: Request) -> None:
    """Ask for text without a schema, with log-probabilities."""
    await engine.generate(MODEL, replace(request, source=None, logprobs=2))


async def prewarm(engine: Engine, request: Request) -> None:
    """Ask for no tokens."""
    await engine.generate(MODEL, replace(request, max_tokens=0))


KINDS: Sequence[Callable[[Engine, Request], Awaitable[None]]] = (whole, streamed, left, late, refused, free, prewarm)


async def run(engine: Engine, numbers: range, at_once: int) -> None:
    """Send these requests, so many at the same time."""
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with places:
            await KINDS[number % len(KINDS)](engine, Request(((),), 40, source=SCHEMAS[number % len(SCHEMAS)]))

    await asyncio.gather(*map(one, numbers))


def alive(kind: type) -> int:
    """How many objects of a type there are."""
    return sum(type(thing) is kind for thing in gc.get_objects())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=50)
    options = parser.parse_args()
    table = Table("requests", "MB resident", "jobs alive", "sequences alive", "objects", title=MODEL)
    engine = Engine(EngineConfig(model=MODEL))
    engine.start()
    tenth = options.requests // TENTHS
    for number in range(TENTHS):
        asyncio.run(run(engine, range(number * tenth, (number + 1) * tenth), options.at_once))
        gc.collect()
        resident = psutil.Process().memory_info().rss / 1e6
        counts = [(number + 1) * tenth, f"{resident:.1f}", alive(Job), alive(Row), len(gc.get_objects())]
        table.add_row(*map(str, counts))
    engine.stop()
    Console().print(table)


if __name__ == "__main__":
    main()
