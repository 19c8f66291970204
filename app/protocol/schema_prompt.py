"""What the model is told of the format that binds it: appended to the system turn, or a system turn of its own.

In: turns and a source. Out: turns. Cost: linear in the schema's text. The mask enforces the format without it; a model
that reads the schema wastes less of its probability on what the mask forbids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from app.protocol.messages import Turn
from schemas_cache import Source

_WORDS = {
    "json_schema": "Answer with a JSON document that satisfies this JSON Schema, and with nothing else:\n{}",
    "json_object": "Answer with a JSON object, and with nothing else.",
    "regex": "Answer with a text that this regular expression matches as a whole, and with nothing else:\n{}",
    "choice": "Answer with one of these texts, and with nothing else:\n{}",
}


def with_source(turns: Sequence[Turn], source: Source | None) -> tuple[Turn, ...]:
    """The turns, the first system turn naming the format; a new one in front where there is none."""
    if source is None:
        return tuple(turns)
    told = instruction(source)
    place = next((number for number, turn in enumerate(turns) if turn.role == "system"), None)
    if place is None:
        return (Turn("system", told), *turns)
    longer = replace(turns[place], content=f"{turns[place].content}\n\n{told}")
    return (*turns[:place], longer, *turns[place + 1 :])


def before_first_turn(turns: Sequence[Turn], source: Source) -> tuple[Turn, ...]:
    """The turns, the first one beginning with the format: for templates that take no system turn."""
    first, *others = turns
    return (replace(first, content=f"{instruction(source)}\n\n{first.content}"), *others)


def instruction(source: Source) -> str:
    """The format in words: a schema, an expression or the choices as they were given."""
    content = source.content if source.kind == "regex" else json.dumps(source.content, ensure_ascii=False)
    return _WORDS[source.kind].format(content)
