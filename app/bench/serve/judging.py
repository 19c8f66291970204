"""What records are worth: answers and their prompts in, counts out.

Valid is what an independent validator takes. Whether the fields say what the prompt does is counted too, so that a
server cannot win by writing nonsense fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema_rs

from app.bench.serve.client import Answer
from app.bench.serve.tasks import Schema, Task


def count_valid(schema: Schema, answers: Iterable[Answer]) -> int:
    """How many texts are documents of the schema."""
    validator = jsonschema_rs.validator_for(schema)
    return sum(_document(answer.text, validator.is_valid) is not None for answer in answers)


def count_right(answered: Iterable[tuple[Task, Answer]]) -> Mapping[str, int]:
    """Field -> how many records have what the prompt says, for the fields that prompts speak of."""
    counts = dict[str, int]()
    for task, answer in answered:
        document = _document(answer.text, lambda value: isinstance(value, dict)) or {}
        for name, value in task.expected.items():
            counts[name] = counts.get(name, 0) + (document.get(name) == value)
    return counts


def _document(text: str, is_wanted: Any) -> Any:
    """What a text holds, None where it is no JSON or not what is wanted."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if is_wanted(value) else None
