"""Runs a suite: cases to verdicts on several processes, a table, a file of details, and the baseline.

In: cases and how to judge them. Out: verdicts in the order of the cases. Each process builds its own judge, and a case
that takes too long is given up inside it.

The baseline, `tests/data/baseline.json`, holds what each suite reaches: the figures, and every case that is not right
with its outcome. It may only improve: `update` takes better outcomes and refuses worse ones. It is called by the
command lines under `--update`, and by the suites themselves where KATAGAMI_UPDATE_BASELINE is set:

    KATAGAMI_UPDATE_BASELINE=1 make suites
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.suites.judging import OUTCOMES, Case, Judge, Outcome, Verdict, refusals, tally

ROOT = Path(__file__).parents[2]
SUITES = ROOT.parent / "shared" / "suites"
BASELINE = ROOT / "tests" / "data" / "baseline.json"
RANK: dict[Outcome, int] = {"too loose": 0, "failed": 1, "slow": 2, "refused": 2, "too strict": 2, "right": 3}
Baseline = dict[str, Any]
MakeJudge = Callable[[], Judge]


def run(cases: Sequence[Case], make_judge: MakeJudge, jobs: int | None = None) -> list[Verdict]:
    """Judge all cases on `jobs` processes (None: one for each core); `make_judge` is called once in each."""
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        judge = make_judge()
        return list(map(judge.judge, cases))
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.starmap(_judge_in_process, [(make_judge, case) for case in cases], chunksize=4)


def _judge_in_process(make_judge: MakeJudge, case: Case) -> Verdict:
    return _judge_of_process(make_judge).judge(case)


@cache
def _judge_of_process(make_judge: MakeJudge) -> Judge:
    return make_judge()


def print_table(title: str, runs: dict[str, list[Verdict]], width: int | None = None) -> None:
    """One column for each run: outcomes, documents, and refusals by keyword."""
    table = Table(title=title)
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    tallies = [tally(verdicts) for verdicts in runs.values()]
    table.add_row("cases", *(str(len(verdicts)) for verdicts in runs.values()))
    for outcome in OUTCOMES:
        table.add_row(outcome, *(_share(counts[outcome], sum(counts.values())) for counts in tallies))
    table.add_row("documents", *(str(sum(v.documents for v in verdicts)) for verdicts in runs.values()))
    table.add_row("reordered", *(str(sum(v.reordered for v in verdicts)) for verdicts in runs.values()))
    table.add_section()
    refused = [refusals(verdicts) for verdicts in runs.values()]
    for keyword in sorted({key for counts in refused for key in counts}, key=lambda key: -refused[0].get(key, 0)):
        table.add_row(f"refused for {keyword}", *(str(counts.get(keyword, 0)) for counts in refused))
    Console(width=width).print(table)


def _share(count: int, total: int) -> str:
    return f"{count} ({count / total:.1%})" if count else "0"


def write_details(name: str, verdicts: Iterable[Verdict], folder: Path) -> Path:
    """Write one JSON line for each case that is not right; the path."""
    folder = Path(os.environ.get("KATAGAMI_SUITES_DETAILS") or folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace(' ', '_')}.jsonl"
    lines = (json.dumps(asdict(verdict), ensure_ascii=False) for verdict in verdicts if verdict.outcome != "right")
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def read_baseline() -> Baseline:
    """What each suite reached; empty before the first update."""
    baseline: Baseline = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
    return baseline


def worse(name: str, verdicts: Iterable[Verdict]) -> list[str]:
    """Cases that came out worse than the baseline says."""
    before = read_baseline().get(name)
    if before is None:
        return []
    known: dict[str, Outcome] = before["not_right"]
    return [
        f"{verdict.id}: {verdict.outcome}, was {known.get(verdict.id, 'right')}"
        for verdict in verdicts
        if RANK[verdict.outcome] < RANK[known.get(verdict.id, "right")]
    ]


def update(name: str, verdicts: Sequence[Verdict]) -> None:
    """Write what a whole suite reached; raises ValueError where a case is worse than before."""
    faults = worse(name, verdicts)
    if faults:
        raise ValueError("the baseline may only improve:\n" + "\n".join(faults))
    not_right: dict[str, str] = {verdict.id: verdict.outcome for verdict in verdicts if verdict.outcome != "right"}
    figures: dict[str, int] = {"cases": len(verdicts), **{str(k): n for k, n in tally(verdicts).items()}}
    entry: Baseline = {**figures, "not_right": not_right}
    merged: Baseline = {**read_baseline(), name: entry}
    BASELINE.write_text(json.dumps(merged, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def check(name: str, verdicts: Sequence[Verdict], folder: Path, least_right: float | None = None) -> None:
    """Hold what came out against the baseline, or with KATAGAMI_UPDATE_BASELINE take a whole run into it.

    Raises
    ------
    AssertionError
        When a case is too loose or worse than before, or fewer than `least_right` (whole runs only) are right.
    """
    print_table(name, {name: list(verdicts)})
    print(write_details(name, verdicts, folder))
    assert [verdict for verdict in verdicts if verdict.outcome == "too loose"] == []
    assert worse(name, verdicts) == []
    if least_right is not None:
        if os.environ.get("KATAGAMI_UPDATE_BASELINE"):
            update(name, verdicts)
        assert tally(verdicts)["right"] >= least_right * len(verdicts)
