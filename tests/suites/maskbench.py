"""MaskBench: 1,500 schemas of the real world with documents, valid and invalid.

In: `../shared/suites/maskbench_dev.jsonl.gz`. Out: a table of right, too strict, too loose and refused schemas. Judged
by tokens of SmolLM2 as its tokenizer cuts them, with the end token, objects open; `--bytes` judges byte by byte, which
says the same of a text and needs no tokenizer. In declared key order a document whose only fault is the order of its
keys is judged in the schema's order; the table says how many were.

    python -m tests.suites.maskbench [--limit 300] [--bytes] [--key-order any] [--id NAME] [--update]

`--update` takes the result of a whole run into the baseline, which may only improve.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from schemas_cache.schema.options import KeyOrder
from tests.suites.judging import Case, Document, Judge, Verdict
from tests.suites.running import SUITES, print_table, run, update, write_details
from tests.suites.smollm2 import smollm2

FILE = SUITES / "maskbench_dev.jsonl.gz"
TIMEOUT_S = 60.0


def read_cases(every: int = 1) -> list[Case]:
    """All cases, or each `every`th of them: the file is ordered by collection, so that is a fair sample."""
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        return [_case(json.loads(line)) for i, line in enumerate(filter(str.strip, lines)) if i % every == 0]


def _case(line: dict[str, Any]) -> Case:
    return Case(line["id"], line["schema"], tuple(_document(i, test) for i, test in enumerate(line["tests"])))


def _document(index: int, test: dict[str, Any]) -> Document:
    text = json.dumps(test["data"], ensure_ascii=False)
    return Document(text, test["valid"], f"{index} {test.get('description', '')}")


def by_bytes(key_order: KeyOrder) -> Judge:
    """Judge byte by byte."""
    return Judge(key_order=key_order, timeout_s=TIMEOUT_S)


def by_tokens(key_order: KeyOrder) -> Judge:
    """Judge by tokens of SmolLM2."""
    tokenizer = smollm2()
    return Judge(tokenizer.vocabulary, tokenizer.encode, key_order, TIMEOUT_S)


def judge_all(cases: list[Case], key_order: KeyOrder, *, tokens: bool, jobs: int | None = None) -> list[Verdict]:
    """Verdicts of these cases."""
    if tokens:
        smollm2()  # fetched once, not by each process
    return run(cases, partial(by_tokens if tokens else by_bytes, key_order), jobs)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Judge the compiler by MaskBench.")
    parser.add_argument("--limit", type=int, help="about so many cases, evenly spread")
    parser.add_argument("--bytes", action="store_true", help="byte by byte, without a tokenizer")
    parser.add_argument("--key-order", choices=["declared", "any"], default="declared")
    parser.add_argument("--id", action="append", help="these cases only, in this process, with reasons")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--update", action="store_true", help="take the result into the baseline")
    options = parser.parse_args()
    cases = read_cases(max(1, 1500 // options.limit) if options.limit else 1)
    if options.id:
        cases = [case for case in cases if case.id in options.id]
    jobs = 1 if options.id else options.jobs
    verdicts = judge_all(cases, options.key_order, tokens=not options.bytes, jobs=jobs)
    print_table("MaskBench", {options.key_order: verdicts})
    name = f"maskbench {options.key_order}"
    print(write_details(name, verdicts, Path(tempfile.gettempdir()) / "katagami-suites"))
    for verdict in verdicts:
        if options.id or verdict.outcome in ("too loose", "slow", "failed"):
            print(verdict.id, verdict.outcome, *verdict.reasons, *verdict.wrong, sep="\n    ")
    if options.update:
        update(name, verdicts)


if __name__ == "__main__":
    main()
