"""Prompts for records, each with its own facts.

In: a schema and a seed. Out: `Task`. About 105 tokens each for SmolLM2, its chat template included. Each begins with a
number of its own, so that no server can take more than the template from another prompt; or, where a `shared` beginning
is asked for, all begin with the same instruction, 70 tokens, as where one program asks for many records. For another
schema than the article's the prompt shows the schema. Prompts for free text differ from their beginning on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import count
from random import Random
from typing import Any

Schema = dict[str, Any] | bool

SUBJECTS = {
    "python": ("Generators", "Type hints", "Decorators", "Context managers", "Data classes"),
    "linux": ("Systemd timers", "File permissions", "Shell pipes", "Swap space", "Cron jobs"),
    "ai": ("Embeddings", "Decision trees", "Attention", "Prompt design", "Vector search"),
    "web": ("Dark mode", "Form checks", "Lazy images", "Service workers", "Web fonts"),
    "db": ("Deadlocks", "Indexes", "Row locking", "Migrations", "Query plans"),
    "network": ("Sockets", "DNS caching", "Port scans", "TLS handshakes", "Load balancing"),
}
ENDINGS = ("explained", "in practice", "step by step", "for teams", "without pain", "under load")
LEVELS = ("beginner", "intermediate", "advanced")
TASK = (
    "Turn this heading of an article into JSON with the keys id, title, level, tags and draft. The tags are a list, id "
    "is a number, and draft is true or false. Write nothing else.\n"
    "id: {id}\ntitle: {title}\nlevel: {level}\ntags: {tags}\ndraft: {draft}"
)
FREE_TASK = "Story {number}: {subject} {ending}. Tell it at length, with many details."
FILLER = "The {number}th note on {subject} {ending} says what was tried and what came of it. "
FILLERS = 12  # about 280 tokens


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt; `expected` is the record that it describes, empty where it leaves that to the model."""

    prompt: str
    expected: Mapping[str, object] = field(default_factory=dict)


def heading_schema() -> Schema:
    """The article's schema with levels in English."""
    text = resources.files("app").joinpath("bench", "serve", "heading.json").read_text("utf-8")
    schema: Schema = json.loads(text)
    return schema


class Tasks:
    """An endless supply of prompts, equal for equal seeds; with a `shared` beginning, or each with its own."""

    def __init__(self, schema: Schema, seed: int, shared: bool = False) -> None:
        self._random, self._numbers, self._schema, self._shared = Random(seed), count(seed), schema, shared
        self._is_heading = schema == heading_schema()

    def record(self) -> Task:
        """One that asks for a record."""
        task = self._heading() if self._is_heading else self._document()
        return task if self._shared else replace(task, prompt=f"{next(self._numbers)}. {task.prompt}")

    def free(self) -> Task:
        """One that asks for free text."""
        subject, ending = self._about()
        return Task(FREE_TASK.format(number=next(self._numbers), subject=subject, ending=ending))

    def long(self) -> Task:
        """One with much to read, different from its beginning on."""
        notes = []
        for _ in range(FILLERS):
            subject, ending = self._about()
            notes.append(FILLER.format(number=next(self._numbers), subject=subject, ending=ending))
        return Task("".join(notes))

    def _heading(self) -> Task:
        tags = self._random.sample(sorted(SUBJECTS), self._random.randint(1, 3))
        title = f"{self._random.choice(SUBJECTS[tags[0]])} {self._random.choice(ENDINGS)}"
        draft, level = self._random.random() < 0.5, self._random.choice(LEVELS)
        record = {"id": self._random.randrange(1000, 10000), "title": title, "level": level, "tags": tags}
        words = {"draft": str(draft).lower(), "tags": ", ".join(tags)}
        return Task(TASK.format(**record | words), record | {"draft": draft})

    def _document(self) -> Task:
        schema = json.dumps(self._schema, ensure_ascii=False)
        return Task(f"Write a made-up JSON document that satisfies this schema: {schema}")

    def _about(self) -> tuple[str, str]:
        return self._random.choice(SUBJECTS[self._random.choice(sorted(SUBJECTS))]), self._random.choice(ENDINGS)
