"""Why a text is no valid record: a reason for the histogram, and the raw text for the page.

In: texts and the judge. Out: counts by reason, the commonest first, with an example of each. A text that is no JSON has
the JSON reader's own reason; one that is JSON has the keyword that the independent validator names, or `keys` where
names are missing or superfluous, which is one slip of a character seen from two sides. Cost: linear in the texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import jsonschema_rs

from app.bench.article.subject import Judge

_ABOUT_KEYS = frozenset({"required", "additionalProperties"})


@dataclass(frozen=True, slots=True)
class Failure:
    """One reason: how often, and the first text that had it."""

    reason: str
    count: int
    message: str
    example: str


def failures(texts: Iterable[str], judge: Judge) -> tuple[Failure, ...]:
    """The reasons for which texts are not valid, the commonest first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for text in texts:
        fault = _fault(text, judge)
        if fault is not None:
            reason, message = fault
            found.setdefault(reason, []).append((message, text))
    listed = [Failure(reason, len(members), *members[0]) for reason, members in found.items()]
    return tuple(sorted(listed, key=lambda failure: -failure.count))


def _fault(text: str, judge: Judge) -> tuple[str, str] | None:
    """Reason and message; None for a valid text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}", str(error)
    errors = judge.errors(value)
    return (_reason(errors), errors[0].message) if errors else None


def _reason(errors: list[jsonschema_rs.ValidationError]) -> str:
    keywords = [str(error.schema_path[-1]) if error.schema_path else "false" for error in errors]
    if not _ABOUT_KEYS.isdisjoint(keywords):
        return "keys"
    place = "".join(f"/{'*' if isinstance(part, int) else part}" for part in errors[0].instance_path)
    return f"{place} {keywords[0]}"
