"""The official test suite of JSON Schema, draft 2020-12, optional parts and formats included.

In: `../shared/suites/json_schema_test_suite`. Out: a table of right, too strict, too loose and refused groups, a group
being a schema with its documents. Judged byte by byte, objects open, by the canonical text of each document: as
`json.dumps` writes it, integers as plain digits. In declared key order a document whose only fault is the order of its
keys is judged in the schema's order; under `any` every document is judged with its keys in reverse too.

Remote schemas are local documents that are never fetched: groups that need one are refused.

    python -m tests.suites.official [--key-order any] [--id TEXT] [--update]

`--update` takes the result into the baseline, which may only improve.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from schemas_cache.schema.options import KeyOrder
from tests.suites.judging import Case, Document, Judge, Verdict
from tests.suites.running import SUITES, print_table, run, update, write_details

FOLDER = SUITES / "json_schema_test_suite" / "tests" / "draft2020-12"
TIMEOUT_S = 60.0


def read_cases(every: int = 1) -> list[Case]:
    """All groups, or each `every`th of them, in the order of the files."""
    groups = [
        _case(f"{path.relative_to(FOLDER).with_suffix('')}: {i} {group['description']}", group)
        for path in sorted(FOLDER.rglob("*.json"))
        for i, group in enumerate(json.loads(path.read_text("utf-8")))
    ]
    return groups[::every]


def _case(name: str, group: dict[str, Any]) -> Case:
    return Case(name, group["schema"], tuple(map(_document, group["tests"])))


def _document(test: dict[str, Any]) -> Document:
    value = _canonical(test["data"])
    text, as_given, back = (json.dumps(data, ensure_ascii=False) for data in (value, test["data"], _reversed(value)))
    return Document(text, test["valid"], test["description"], (as_given,), (back,))


def _canonical(value: Any) -> Any:
    """Numbers that are integers as integers."""
    if isinstance(value, list):
        return [_canonical(element) for element in value]
    if isinstance(value, dict):
        return {key: _canonical(member) for key, member in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _reversed(value: Any) -> Any:
    """The keys of all objects in reverse."""
    if isinstance(value, list):
        return [_reversed(element) for element in value]
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return value


def by_bytes(key_order: KeyOrder) -> Judge:
    """Judge byte by byte."""
    return Judge(key_order=key_order, timeout_s=TIMEOUT_S)


def judge_all(cases: list[Case], key_order: KeyOrder, jobs: int | None = None) -> list[Verdict]:
    """Verdicts of these groups."""
    return run(cases, partial(by_bytes, key_order), jobs)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Judge the compiler by the official test suite.")
    parser.add_argument("--key-order", choices=["declared", "any"], default="declared")
    parser.add_argument("--id", help="groups whose name has this text only, with reasons")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--update", action="store_true", help="take the result into the baseline")
    options = parser.parse_args()
    cases = [case for case in read_cases() if (options.id or "") in case.id]
    verdicts = judge_all(cases, options.key_order, 1 if options.id else options.jobs)
    print_table("Official suite, draft 2020-12", {options.key_order: verdicts})
    name = f"official {options.key_order}"
    print(write_details(name, verdicts, Path(tempfile.gettempdir()) / "katagami-suites"))
    for verdict in verdicts:
        if options.id or verdict.outcome in ("too strict", "too loose", "slow", "failed"):
            print(verdict.id, verdict.outcome, *verdict.reasons, *verdict.wrong, sep="\n    ")
    if options.update:
        update(name, verdicts)


if __name__ == "__main__":
    main()
