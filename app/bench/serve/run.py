"""Turns of all servers, one after another: addresses and a schema in, a `Report` out.

In each turn every server gets the same prompts, `RECORDS_PER_CLIENT` for each client, and begins in its place of an
order that rotates; so what else the machine does falls on all alike. A ratio is the median over the turns. Cost: at
1,000 ms a record, a minute for 60 records of one server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median
from typing import TypeVar
from urllib.parse import urlsplit

from app.bench.article.run import machine
from app.bench.serve.client import Body, Server, Turn, find_server, take_turn
from app.bench.serve.judging import count_right, count_valid
from app.bench.serve.report import FreeText, Records, Report
from app.bench.serve.server import stage_seconds
from app.bench.serve.tasks import Schema, Task, Tasks

RECORDS_PER_CLIENT = 2  # of a turn
MOST_TOKENS = 512
FREE_TOKENS = 48
FREE_REQUESTS, LEAST_FREE_TURNS = 8, 2

T = TypeVar("T")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes
    ----------
    url : str
        Our server's address.
    rival_urls : tuple of str
        Those of others.
    whitespace : str
        How our documents are written.
    clients : tuple of int
        Numbers of clients, one after another.
    records : int
        Of each server and number of clients, at least; rounded up to whole turns.
    shared_prefix : bool
        Prompts begin alike, so that servers which keep prefixes show what they gain.
    """

    url: str
    rival_urls: tuple[str, ...]
    schema: Schema
    whitespace: str
    clients: tuple[int, ...]
    records: int
    seed: int
    shared_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The turns of one server, and the prompts of each."""

    server: Server
    tasks: list[list[Task]]
    turns: list[Turn]
    stages_s: Counter[str]  # seconds of its steps; empty for servers that do not say


async def measure(plan: Plan, tell: Tell) -> Report:
    """Measure; `tell` hears what is about to be done.

    Raises
    ------
    ServerError
        When a server does not answer.
    """
    servers, tasks = await _find_all(plan), Tasks(plan.schema, plan.seed, plan.shared_prefix)
    for server in servers:  # compiles the schema, and fetches the weights from disk
        tell(f"{server.name}: the first record")
        await take_turn(server, [record_body(server, plan.schema, tasks.record())], 1)
    records, free = list[Records](), list[FreeText]()
    for clients in plan.clients:
        asked = await _ask_records(plan, servers, tasks, clients, tell)
        records += [_records_of(plan.schema, clients, one, asked) for one in asked]
        free += await _free_text(servers, tasks, clients, tell)
    asked_of = {server.name: f"{server.url} {server.model}" for server in servers}
    return Report(machine(), asked_of, tuple(records), tuple(free))


async def _find_all(plan: Plan) -> list[Server]:
    """Ours first; others are called by their host and port."""
    options = {"whitespace": plan.whitespace, "schema_in_prompt": False}  # nobody else shows the model the schema
    ours = replace(await find_server("katagami", plan.url), extra={"structured_options": options})
    return [ours, *[await find_server(urlsplit(url).netloc or url, url) for url in plan.rival_urls]]


def record_body(server: Server, schema: Schema, task: Task) -> Body:
    """What asks for a record."""
    named = {"name": "record", "schema": schema, "strict": True}
    return {
        **_body(task, MOST_TOKENS),
        "response_format": {"type": "json_schema", "json_schema": named},
        **server.extra,
    }


def _body(task: Task, max_tokens: int) -> Body:
    return {"messages": [{"role": "user", "content": task.prompt}], "max_tokens": max_tokens, "temperature": 0}


async def _ask_records(plan: Plan, servers: Sequence[Server], tasks: Tasks, clients: int, tell: Tell) -> list[Asked]:
    per_turn = RECORDS_PER_CLIENT * clients
    turns = -(-plan.records // per_turn)
    asked = [Asked(server, [], [], Counter()) for server in servers]
    for number in range(turns):
        tell(f"{clients} clients, turn {number + 1} of {turns}")
        batch = [tasks.record() for _ in range(per_turn)]
        for one in _rotated(asked, number):
            bodies = [record_body(one.server, plan.schema, task) for task in batch]
            before = stage_seconds(one.server)
            one.turns.append(await take_turn(one.server, bodies, clients))
            one.stages_s.update({stage: end - before[stage] for stage, end in stage_seconds(one.server).items()})
            one.tasks.append(batch)
    return asked


def _records_of(schema: Schema, clients: int, one: Asked, asked: Sequence[Asked]) -> Records:
    answers = list(chain.from_iterable(turn.answers for turn in one.turns))
    return Records(
        server=one.server.name,
        clients=clients,
        turns_ms=tuple(turn.ms_per_record for turn in one.turns),
        records=len(answers),
        valid=count_valid(schema, answers),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        completion_tokens=sum(answer.completion_tokens for answer in answers),
        right=count_right(zip(chain.from_iterable(one.tasks), answers, strict=True)),
        elapsed_s=sum(turn.elapsed_s for turn in one.turns),
        ratios={other.server.name: _ratio(one.turns, other.turns) for other in asked if other is not one},
        stages_s=dict(one.stages_s),
    )


def _ratio(turns: Sequence[Turn], others: Sequence[Turn]) -> float:
    return median(turn.elapsed_s / other.elapsed_s for turn, other in zip(turns, others, strict=True))


async def _free_text(servers: Sequence[Server], tasks: Tasks, clients: int, tell: Tell) -> list[FreeText]:
    tell(f"{clients} clients, free text")
    decode, prefill = ({server.name: list[float]() for server in servers} for _ in range(2))
    for number in range(max(LEAST_FREE_TURNS, FREE_REQUESTS // clients)):
        short, long = ([make() for _ in range(clients)] for make in (tasks.free, tasks.long))
        for server in _rotated(servers, number):
            written = await take_turn(server, [_body(task, FREE_TOKENS) for task in short], clients)
            read = await take_turn(server, [_body(task, 1) for task in long], clients)
            decode[server.name].append(sum(answer.completion_tokens for answer in written.answers) / written.elapsed_s)
            prefill[server.name].append(sum(answer.prompt_tokens for answer in read.answers) / read.elapsed_s)
    return [FreeText(name, clients, median(decode[name]), median(prefill[name])) for name in decode]


def _rotated(items: Sequence[T], number: int) -> list[T]:
    start = number % len(items)
    return [*items[start:], *items[:start]]
