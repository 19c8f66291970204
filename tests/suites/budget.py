"""Token limits: at every one that has room for a document, a document comes out; below, the text is cut.

In: schemas of MaskBench with random logits on SmolLM2's vocabulary, and the article's schema on both shipped models.
Out: a table of counts, and every fault. Cost: half a second for each schema.

For each schema the natural text is drawn first, with a limit of `MOST_TOKENS`. Then the same request is sent with each
of some limits: those around `minimum_tokens`, and some up to the length of the natural text (all of them for the
article). A text is right when it is complete, an independent validator accepts it, and it has no more tokens than its
limit. Below the minimum it is right when it is cut; a text that happens to be complete there is counted as lucky, since
the minimum is that of a text that is shortest in bytes; and under `on_limit: error` the request is refused.

Texts are compared with the natural one. Where a token was forbidden the text may still come out the same (`[` and `]`
instead of `[]`). Where none was, it may come out different: forced text that is spelled with fewer tokens is another
context to the model.

The logits are random but for a push towards quotation marks and brackets, without which no text would come to an end.

    python -m tests.suites.budget [--limit 300] [--jobs 1] [--id NAME]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app.proof import Judge, judge
from engine.budget import check_room
from engine.errors import BudgetBelowMinimumError
from engine.models import Model
from engine.models.registry import EMBEDDED_MODELS, load_model
from engine.request import Request, Sampling
from engine.sequence import Job, choice_of, sequences_of
from engine.sequence import Sequence as Row
from engine.step import Decoder
from engine.tokenizer import Tokenizer
from schemas_cache import CompiledSchema, Lookup, SchemaError, compile_source, schema_source
from tests.suites.maskbench import read_cases
from tests.suites.running import ROOT
from tests.suites.smollm2 import smollm2
from tests.toy import ToyModel

MOST_TOKENS = 160  # of the natural text; one that is longer is cut there
LONGEST_MINIMUM = 600  # schemas whose shortest document takes more tokens are left out, and counted
EVENLY = 6  # limits between the minimum and the natural length
ROWS = 16
BANK = 61  # rows of random logits
SPREAD, PUSH = 3.0, 8.0
ARTICLE = json.loads((ROOT / "docs" / "article.json").read_text("utf-8"))
ARTICLE_SEEDS = 4


@dataclass
class Report:
    """What came of one schema."""

    id: str
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Bench:
    """A model and its tokenizer."""

    model: Model
    tokenizer: Tokenizer

    def run(self, compiled: CompiledSchema, requests: Iterable[Request], seed: int) -> list[Row]:
        """Decode requests for one compiled schema, a row each."""
        rows = []
        for request in requests:
            job = Job(request, Future(), seed, submitted_s=0.0, lookup=Lookup(compiled, "memory", 0.0))
            rows += sequences_of(job, self.model.context_length)
        decoder = Decoder(self.model, self.tokenizer.vocabulary, self.tokenizer.encode_bytes, ROWS)
        decoder.scheduler.add(rows)
        while not decoder.scheduler.idle:
            decoder.step()
        return rows


def random_model(tokenizer: Tokenizer) -> Model:
    """Logits that depend on the last tokens and look random."""
    random = np.random.default_rng(0)
    structural = [any(byte in data for byte in b'"}]') for data in tokenizer.vocabulary.token_bytes]
    bank = random.normal(0, SPREAD, (BANK, len(structural))) + PUSH * np.array(structural)
    bank = bank.astype(np.float32)
    return ToyModel(len(structural), lambda context: bank[hash((*context[-3:], len(context))) % BANK])


@cache
def smollm2_bench() -> Bench:
    """SmolLM2's vocabulary with random logits."""
    tokenizer = smollm2()
    return Bench(random_model(tokenizer), tokenizer)


def limits_of(minimum: int, natural: int) -> list[int]:
    """Limits to try."""
    near = range(max(1, minimum - 1), minimum + 4)
    spread = np.linspace(minimum, max(minimum, natural), EVENLY).astype(int).tolist()
    return sorted({*near, *spread, natural + 1})


def judge_schema(name: str, schema: Any, seed: int, bench: Bench, *, every: bool = False) -> Report:
    """Try one schema."""
    report = Report(name)
    source = schema_source(schema)
    try:
        compiled = compile_source(source, bench.tokenizer.vocabulary)
    except SchemaError:
        report.counts["schemas refused"] += 1
        return report
    if compiled.minimum_tokens > LONGEST_MINIMUM:
        report.counts["schemas left out for their length"] += 1
        return report
    report.counts["schemas"] += 1
    _judge_refusals(report, compiled)
    is_valid = judge(source)
    for jump_forward, temperature in ((True, 1.0), (False, 0.0)):
        sampling = Sampling(temperature=temperature, seed=seed)
        most = max(MOST_TOKENS, compiled.minimum_tokens + 4)
        natural = Request(((),), most, sampling=sampling, source=source, jump_forward=jump_forward, on_limit="truncate")
        (free,) = bench.run(compiled, [natural], seed)
        lengths = compiled.minimum_tokens, len(free.token_ids)
        limits = range(max(1, lengths[0] - 1), lengths[1] + 2) if every else limits_of(*lengths)
        requests = [
            Request(((),), limit, sampling=sampling, source=source, jump_forward=jump_forward) for limit in limits
        ]
        for row in bench.run(compiled, requests, seed):
            _judge(report, row, free, compiled, is_valid)
    return report


def _judge_refusals(report: Report, compiled: CompiledSchema) -> None:
    """`on_limit: error` refuses one token below the minimum, and takes a request at the minimum."""
    for limit in {max(1, compiled.minimum_tokens - 1), compiled.minimum_tokens} - {0}:
        request = Request(((),), limit, source=compiled.source, on_limit="error")
        job = Job(request, Future(), 0, submitted_s=0.0, lookup=Lookup(compiled, "memory", 0.0))
        try:
            check_room(job, context_length=1 << 20)
            refused = False
        except BudgetBelowMinimumError:
            refused = True
        report.counts["refused under error"] += refused
        if refused != (limit < compiled.minimum_tokens):
            report.faults.append(f"limit {limit} of {compiled.minimum_tokens} under `error`: refused is {refused}")


def _judge(report: Report, row: Row, natural: Row, compiled: CompiledSchema, is_valid: Judge) -> None:
    report.counts["texts"] += 1
    fault = _fault(report.counts, row, natural, compiled, is_valid)
    if fault:
        jump = row.job.request.jump_forward
        report.faults.append(
            f"limit {row.limit} of {compiled.minimum_tokens}, jump {jump}: {fault}: {bytes(row.data)!r}"
        )


def _fault(counts: Counter[str], row: Row, natural: Row, compiled: CompiledSchema, is_valid: Judge) -> str | None:
    if row.error is not None:
        return f"{type(row.error).__name__}: {row.error}"
    choice = choice_of(row)
    if len(row.token_ids) > row.limit:
        return f"{len(row.token_ids)} tokens"
    if row.limit < compiled.minimum_tokens:
        counts["below the minimum: lucky" if row.complete else "below the minimum: cut"] += 1
        return "closed early" if row.closed_early else None
    verdict = is_valid(choice.text) if row.complete else False
    if not verdict:
        counts["not judged"] += verdict is None
        if verdict is not None:
            return "not valid" if row.complete else "not complete"
    natural_text = choice_of(natural).text
    same = choice.text == natural_text if natural.complete else natural_text.startswith(choice.text)
    kind = "closed early" if row.closed_early else "as without a limit" if same else "other tokens, nothing forbidden"
    counts[f"{kind}, to the same text" if row.closed_early and same else kind] += 1
    return None


def _judge_in_process(case: tuple[str, Any, int]) -> Report:
    return judge_schema(*case, smollm2_bench())


def judge_maskbench(limit: int, jobs: int, only: Sequence[str] = ()) -> list[Report]:
    """Try about `limit` schemas of MaskBench, evenly spread over its collections."""
    cases = [(case.id, case.schema, seed) for seed, case in enumerate(read_cases(max(1, 1500 // limit)))]
    cases = [case for case in cases if not only or case[0] in only]
    if jobs == 1:
        return list(map(_judge_in_process, cases))
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.map(_judge_in_process, cases, chunksize=4)


def judge_article() -> dict[str, list[Report]]:
    """Try the article's schema at every limit on both shipped models."""
    reports: dict[str, list[Report]] = {}
    for name, seed in product(EMBEDDED_MODELS, range(ARTICLE_SEEDS)):
        loaded = load_model(name)
        report = judge_schema(f"{name} {seed}", ARTICLE, seed, Bench(loaded.model, loaded.tokenizer), every=True)
        reports.setdefault(name, []).append(report)
    return reports


def print_reports(runs: dict[str, list[Report]]) -> None:
    """One column for each run, and all faults."""
    table = Table(title="Token limits")
    table.add_column("")
    totals = [sum((report.counts for report in reports), Counter[str]()) for reports in runs.values()]
    for name in runs:
        table.add_column(name, justify="right")
    for count in dict.fromkeys(key for total in totals for key in total):
        table.add_row(count, *(str(total[count]) for total in totals))
    table.add_row("faults", *(str(sum(len(report.faults) for report in reports)) for reports in runs.values()))
    Console().print(table)
    for reports in runs.values():
        for report in reports:
            for fault in report.faults:
                print(report.id, fault, sep="\n    ")


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Try token limits.")
    parser.add_argument("--limit", type=int, default=300, help="about so many schemas, evenly spread")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--id", action="append", default=[], help="these schemas only")
    options = parser.parse_args()
    runs = {"maskbench": judge_maskbench(options.limit, options.jobs, options.id)}
    print_reports(runs if options.id else {**runs, **judge_article()})


if __name__ == "__main__":
    main()
