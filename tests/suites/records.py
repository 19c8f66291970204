"""Records of a real model over HTTP: schemas of five kinds, many prompts, greedy and drawn, every answer judged.

In: a model and a count. Out: a table of what came of each schema at each temperature, and every answer that is not
valid. A server is started with the model, and asked by 32 clients at once; `jsonschema` judges. Cost: for SmolLM2 on
one core about 0.5 s a record, long strings 2 s: half an hour for 200 of each.

    .venv/bin/python -m tests.suites.records --model smollm2-135m-instruct --count 200
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from jsonschema import Draft202012Validator
from rich.console import Console
from rich.table import Table

from app.bench.serve.client import Answer, Body, Server, find_server, take_turn
from app.bench.serve.server import own_server
from app.bench.serve.tasks import heading_schema

CLIENTS = 32
MOST_TOKENS = 300
TEMPERATURES = (0.0, 1.0)
COLOURS = (
    "amber",
    "azure",
    "beige",
    "black",
    "brown",
    "copper",
    "coral",
    "crimson",
    "cyan",
    "gold",
    "green",
    "grey",
    "indigo",
    "ivory",
    "jade",
    "lilac",
)
ANIMALS = (
    "ant",
    "badger",
    "bear",
    "bison",
    "cat",
    "crane",
    "crow",
    "deer",
    "eagle",
    "falcon",
    "finch",
    "fox",
    "goose",
    "hare",
    "heron",
    "horse",
    "ibis",
    "jay",
)
SIZES = ("small", "middle", "large", "giant")
PRODUCTS = [f"{size} {colour} {animal}" for size, colour, animal in product(SIZES, COLOURS, ANIMALS)]
PLACES = (
    "Kyoto",
    "Lyon",
    "Oslo",
    "Quito",
    "Turin",
    "Perth",
    "Lagos",
    "Riga",
    "Cusco",
    "Hanoi",
    "Porto",
    "Bergen",
    "Nara",
    "Graz",
    "Bruges",
    "Leeds",
)

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A schema and what asks for a record of it; `{number}` and `{place}` make prompts different."""

    schema: Any
    prompt: str

    def task(self, number: int) -> str:
        """One prompt of many."""
        return self.prompt.format(number=1000 + 37 * number, place=PLACES[number % len(PLACES)])


def closed(properties: Schema) -> Schema:
    """An object with all of these members and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(least: int, most: int) -> Schema:
    """A string of so many characters."""
    return {"type": "string", "minLength": least, "maxLength": most}


ORDER = closed(
    {
        "number": {"type": "integer", "minimum": 1, "maximum": 99999},
        "customer": closed({"name": text(1, 40), "address": closed({"street": text(1, 40), "city": text(1, 30)})}),
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 4,
            "items": closed(
                {
                    "product": text(1, 30),
                    "count": {"type": "integer", "minimum": 1, "maximum": 99},
                    "price": {"type": "number", "minimum": 0, "maximum": 1000, "multipleOf": 0.25},
                }
            ),
        },
        "paid": {"type": "boolean"},
    }
)
THREAD = {
    "$ref": "#/$defs/comment",
    "$defs": {
        "comment": {
            **closed({"author": text(1, 20), "text": text(1, 60)}),
            "properties": {
                "author": text(1, 20),
                "text": text(1, 60),
                "replies": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/comment"}},
            },
        }
    },
}
KINDS: Mapping[str, Kind] = {
    "flat": Kind(
        heading_schema(),
        "Turn this heading into JSON: id {number}, title Notes from {place}, level advanced, tags db and linux.",
    ),
    "nested": Kind(
        ORDER, "Write order {number} of a customer in {place} as JSON: who, where, which products, paid or not."
    ),
    "recursive": Kind(THREAD, "Write a thread of comments about {place} as JSON: comment {number} and replies to it."),
    "long strings": Kind(
        closed({"title": text(10, 60), "story": text(200, 600), "moral": text(40, 200)}),
        "Write story {number} as JSON. It happens in {place}, is told at length, and has a moral.",
    ),
    "big enum": Kind(
        closed({"product": {"enum": PRODUCTS}, "spare": {"enum": PRODUCTS}, "place": {"enum": PLACES}}),
        "Which of our products goes to {place}, and which is its spare? Answer for order {number} as JSON.",
    ),
}


@dataclass(frozen=True)
class Report:
    """What came of one schema at one temperature."""

    kind: str
    temperature: float
    answers: Sequence[Answer]
    faults: Sequence[str]
    elapsed_s: float


def bodies_of(kind: Kind, temperature: float, count: int) -> list[Body]:
    """What is asked."""
    response_format = {"type": "json_schema", "json_schema": {"name": "record", "schema": kind.schema}}
    options = {"schema_in_prompt": False}  # a thousand products would fill the context
    common = {"max_tokens": MOST_TOKENS, "temperature": temperature, "structured_options": options}
    return [
        {
            **common,
            "response_format": response_format,
            "messages": [{"role": "user", "content": kind.task(number)}],
            "seed": number,
        }
        for number in range(count)
    ]


def fault_of(validator: Draft202012Validator, answer: Answer) -> str | None:
    """Why an answer is not valid."""
    try:
        error = next(validator.iter_errors(json.loads(answer.text)), None)
    except ValueError as no_json:
        return f"{no_json}: {answer.text}"
    return None if error is None else f"{error.message}: {answer.text}"


async def ask(server: Server, name: str, temperature: float, count: int) -> Report:
    """Have so many records of one schema, and judge them."""
    kind, console = KINDS[name], Console(stderr=True)
    console.print(f"{name}, temperature {temperature:g}")
    turn = await take_turn(server, bodies_of(kind, temperature, count), CLIENTS)
    validator = Draft202012Validator(kind.schema)
    faults = [fault for answer in turn.answers if (fault := fault_of(validator, answer)) is not None]
    return Report(name, temperature, turn.answers, faults, turn.elapsed_s)


async def ask_all(url: str, count: int, kinds: Iterable[str] = KINDS) -> list[Report]:
    """Every schema at every temperature, of the first model of a server."""
    server = await find_server("katagami", url)
    return [await ask(server, name, temperature, count) for name in kinds for temperature in TEMPERATURES]


def print_reports(reports: Sequence[Report]) -> None:
    """A row for each, and all faults."""
    head = ("schema", "temperature", "records", "valid", "different", "at the limit", "tokens", "s", "ms/record")
    table = Table(*head, title="Records")
    for report in reports:
        count = len(report.answers)
        table.add_row(
            report.kind,
            f"{report.temperature:g}",
            str(count),
            str(count - len(report.faults)),
            str(len({answer.text for answer in report.answers})),
            str(sum(answer.finish_reason == "length" for answer in report.answers)),
            str(sum(answer.completion_tokens for answer in report.answers)),
            f"{report.elapsed_s:.1f}",
            f"{1000 * report.elapsed_s / count:.0f}",
        )
    Console().print(table)
    for report in reports:
        for fault in report.faults:
            print(report.kind, report.temperature, fault)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Have records of a real model, and judge them.")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--count", type=int, default=200, help="of each schema at each temperature")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="these schemas only")
    options = parser.parse_args()
    with own_server(options.model) as url:
        reports = asyncio.run(ask_all(url, options.count, options.kind or KINDS))
    print_reports(reports)
    sys.exit(any(report.faults for report in reports))


if __name__ == "__main__":
    main()
