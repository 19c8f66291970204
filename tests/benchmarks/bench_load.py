"""A crowd on one server: bursts beyond the queue, the SDK's retries, memory over many requests, clients that dawdle.

Starts `katagami serve` for itself, on a free port, and prints one table for each part. `--requests` says how many the
memory part takes (10,000 by default); the whole takes some minutes on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil

CLIENTS, QUEUE, RUNNING = 200, 64, 16
MODEL = "katagami-char"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 9999},
        "title": {"type": "string", "maxLength": 20},
    },
    "required": ["id", "title"],
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "schema": SCHEMA}}
BODY: dict[str, Any] = {"model": MODEL, "prompt": "", "max_tokens": 100, "response_format": FORMAT}
LONG_FORMAT = {"type": "regex", "regex": "[a-z]{400}"}  # work enough that a queue forms at all
LONG: dict[str, Any] = BODY | {"max_tokens": 500, "response_format": LONG_FORMAT}
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=CLIENTS)


@contextmanager
def serving(*flags: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server of its own: URL and process."""
    program = [str(Path(sys.executable).with_name("katagami")), "serve", "--port", "0", "--model", MODEL, *flags]
    with tempfile.TemporaryDirectory() as home, (Path(home) / "log").open("w") as log:
        process = subprocess.Popen([*program, "--home", home], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.split()[-1].removesuffix("/v1"), psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)


async def post(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[int, float]:
    """Status and seconds of one request."""
    begun_s = time.perf_counter()
    response = await client.post("/v1/completions", json=body)
    return response.status_code, time.perf_counter() - begun_s


async def burst(url: str) -> None:
    """All at once, without retries."""
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=LIMITS) as client:
        await post(client, LONG)
        found = await asyncio.gather(*(post(client, LONG | {"seed": seed}) for seed in range(CLIENTS)))
    print(f"\n{CLIENTS} clients at once, {RUNNING} places, a line of {QUEUE}")
    for status in sorted({status for status, _ in found}):
        times = sorted(seconds for other, seconds in found if other == status)
        print(f"  {status}: {len(times):4}  median {statistics.median(times):6.2f} s  last {times[-1]:6.2f} s")


async def retries(url: str, count: int) -> None:
    """All at once, each with the SDK's own retries."""
    form = {"response_format": LONG_FORMAT}

    async def ask(client: openai.AsyncOpenAI) -> str:
        try:
            await client.completions.create(model=MODEL, prompt="", max_tokens=500, extra_body=form)
        except openai.APIError as error:
            return type(error).__name__
        return "succeeded"

    begun_s = time.perf_counter()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="local", max_retries=count, timeout=120) as client:
        outcomes = Counter(await asyncio.gather(*(ask(client) for _ in range(CLIENTS))))
    told = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common())
    print(f"  {count} retries of the SDK: {told}, in {time.perf_counter() - begun_s:.1f} s")


async def memory(url: str, process: psutil.Process, requests: int) -> None:
    """Many requests, 32 at a time; a tenth of them with a schema of their own among fifty."""
    numbers = iter(range(requests))

    async def ask(client: httpx.AsyncClient) -> None:
        for number in numbers:
            schema = SCHEMA | {"title": "x"} if number % 10 else {"const": number % 500}
            form = {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}
            status, _ = await post(client, BODY | {"seed": number, "response_format": form})
            if status != 200:
                raise RuntimeError(f"status {status}")
            if number % (requests // 10) == 0:
                print(f"  {number:6} requests: {mebibytes(process):6.1f} MiB, {len(process.open_files())} files")

    print(f"\nmemory over {requests} requests, 32 at a time")
    begun_s = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=LIMITS) as client:
        await asyncio.gather(*(ask(client) for _ in range(32)))
    seconds = time.perf_counter() - begun_s
    print(f"  the end: {mebibytes(process):16.1f} MiB; {requests / seconds:.0f} requests a second")


def mebibytes(process: psutil.Process) -> float:
    """Memory of a process."""
    return float(process.memory_info().rss) / 2**20


async def drip(address: tuple[str, int]) -> None:
    """Send a request a byte a second."""
    _, writer = await asyncio.open_connection(*address)
    body = json.dumps(BODY).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
    writer.write(b"content-length: %d\r\n\r\n" % len(body))
    for byte in body:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(1)


async def stall(address: tuple[str, int]) -> None:
    """Ask for a stream and read nothing of it."""
    reader, writer = await asyncio.open_connection(*address, limit=1)
    body = json.dumps(BODY | {"stream": True, "n": 8}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
    writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
    await reader.readexactly(1)
    await asyncio.sleep(3600)


async def dawdlers(url: str) -> None:
    """How long others wait, beside clients that dawdle and without them."""
    host, port = url.removeprefix("http://").split(":")
    address = host, int(port)
    print("\nseconds of 100 requests, one after another")
    for slow in (0, 50):
        tasks = [asyncio.create_task(work(address)) for work in (drip, stall) for _ in range(slow)]
        await asyncio.sleep(2)
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            times = sorted([(await post(client, BODY | {"seed": seed}))[1] for seed in range(100)])
        print(f"  beside {2 * slow:3} slow clients: median {times[50]:.3f}, last but one {times[98]:.3f}")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def main() -> None:
    """All parts, one after another."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    requests = parser.parse_args().requests
    with serving("--max-queued", str(QUEUE), "--max-running", str(RUNNING)) as (url, process):
        await burst(url)
        for count in (2, 5):
            await retries(url, count)
        await memory(url, process, requests)
        await dawdlers(url)


if __name__ == "__main__":
    asyncio.run(main())
