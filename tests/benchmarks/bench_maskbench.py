"""MaskBench for speed: from a schema's text to its first mask, and each mask after it, beside other engines.

In: `../shared/suites/maskbench_dev.jsonl.gz`, the tokenizer of SmolLM2 (49,152 tokens), and whichever of the extra
`bench` is installed. Out: a table of CPU times (`process_time`) for each engine and mode, with ratios to llguidance.

    python tests/benchmarks/bench_maskbench.py [--limit 300] [--engines ours,llguidance,xgrammar] [--json FILE]

Each engine has a process of its own; each schema goes to one after another, and another one begins each time, so that
what the machine does besides falls on all of them alike. `other schemas` is the first visit of every second schema by
a process that has walked through all the others before. A schema that takes longer than `--timeout` is given up, and
its engine starts anew. Documents are the valid ones, as the tokenizer cuts them; a walk ends where a token is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.suites.maskbench import read_cases
from tests.suites.smollm2 import cache_folder, smollm2

WORKER = Path(__file__).with_name("mask_engines.py")
OURS = ("ours", "disk", "others")  # the second reads what the first has written
REFERENCE = "llguidance"
MODES = {
    "ours, first visit": "ours",
    "ours, warm": "ours",
    "ours, other schemas": "others",
    "ours, from disk": "disk",
    "llguidance": "llguidance",
    "xgrammar": "xgrammar",
}


@dataclass
class Worker:
    """An engine's process; `missing` says why there is none."""

    engine: str
    python: str
    folder: Path
    timeout_s: float
    version: str = ""
    missing: str = ""
    peak_kib: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        tokenizer = cache_folder() / "smollm2-tokenizer.json"
        command = [self.python, str(WORKER), self.engine, str(tokenizer), str(self.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        said = self._reply(120.0) or {"missing": "it does not start"}
        self.version, self.missing = said.get("version", ""), said.get("missing", "")

    def ask(self, request: bytes) -> dict[str, Any] | None:
        """Measure a schema; None where it took too long, or the process ended."""
        if self.process is None:
            self.start()
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(request)
        self.process.stdin.flush()
        reply = self._reply(self.timeout_s)
        if reply is None:
            self.stop(kill=True)
        return reply

    def stop(self, *, kill: bool = False) -> None:
        """End the process; its peak memory is asked for unless it is killed."""
        process, self.process = self.process, None
        if process is None or process.stdin is None:
            return
        if kill:
            self.peak_kib = max(self.peak_kib, _peak_kib(process.pid))
            process.kill()
        else:
            process.stdin.close()
            lines = process.stdout.read().splitlines() if process.stdout else []
            self.peak_kib = max(self.peak_kib, *(json.loads(line).get("peak_kib", 0) for line in lines), 0)
        process.wait()

    def _reply(self, timeout_s: float) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return None
        line = self.process.stdout.readline()
        reply: dict[str, Any] | None = json.loads(line) if line else None
        return reply


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


@dataclass
class Figures:
    """What was measured of one mode, in nanoseconds."""

    first: list[int] = field(default_factory=list)
    first_wall: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    takes: list[int] = field(default_factory=list)
    unfinished: int = 0
    refused: int = 0
    gave_up: int = 0
    slowest: list[tuple[int, int, str]] = field(default_factory=list)

    def add(self, case_id: str, result: dict[str, Any] | None) -> None:
        """Take one schema's result; None: it took too long."""
        if result is None:
            self.gave_up += 1
        elif "refused" in result:
            self.refused += 1
        else:
            self.first.append(result["first"])
            self.first_wall.append(result["first_wall"])
            self.masks += result["masks"]
            self.takes += result["takes"]
            self.unfinished += result["unfinished"]
            self.slowest.append((result["first"], sum(result["masks"]), case_id))

    def summary(self) -> dict[str, float]:
        """Percentiles: milliseconds to the first mask, microseconds for each one after it."""
        figures: dict[str, float] = {"schemas": len(self.first), "refused": self.refused, "gave up": self.gave_up}
        figures |= {"documents not taken": self.unfinished, "masks": len(self.masks)}
        for name, values, unit in (
            ("first mask, ms", self.first, 1e6),
            ("first mask, wall ms", self.first_wall, 1e6),
            ("mask, µs", self.masks, 1e3),
            ("take a token, µs", self.takes, 1e3),
        ):
            if values:
                taken = np.array(values) / unit
                figures |= {f"{name}: p{share}": float(np.percentile(taken, share)) for share in (50, 95, 99)}
                figures |= {f"{name}: mean": float(taken.mean()), f"{name}: max": float(taken.max())}
        return figures


def requests(limit: int | None) -> Iterator[tuple[str, bytes]]:
    """Each case's name, and the line for the workers: its schema and the tokens of its valid documents."""
    encode = smollm2().encode
    for case in read_cases(max(1, 1500 // limit) if limit else 1):
        documents = [list(encode(document.text)) for document in case.documents if document.valid]
        yield case.id, json.dumps({"schema": json.dumps(case.schema), "documents": documents}).encode() + b"\n"


def run(workers: list[Worker], limit: int | None) -> dict[str, Figures]:
    """Measure every schema with every engine."""
    figures: dict[str, Figures] = {}
    cases = list(requests(limit))
    for worker in workers:
        for _, request in cases[::2] if worker.engine == "others" else ():
            worker.ask(request)
    for number, (case_id, request) in enumerate(cases):
        turns = [worker for worker in workers if worker.engine not in OURS[1:]]
        turns = turns[number % len(turns) :] + turns[: number % len(turns)]
        last = ("disk", "others") if number % 2 else ("disk",)
        for worker in turns + [worker for worker in workers if worker.engine in last]:
            reply = worker.ask(request)
            missed = [mode for mode, engine in MODES.items() if engine == worker.engine]
            for mode in missed if reply is None else reply:
                figures.setdefault(mode, Figures()).add(case_id, None if reply is None else reply[mode])
    for worker in workers:
        worker.stop()
    return figures


def table(figures: dict[str, Figures], workers: list[Worker]) -> Table:
    """One column for each mode; in brackets the ratio to llguidance."""
    shown = [mode for mode in MODES if mode in figures]
    summaries = {mode: figures[mode].summary() for mode in shown}
    peaks = {worker.engine: worker.peak_kib / 1024 for worker in workers}
    for mode in shown:
        summaries[mode]["peak memory, MiB"] = peaks.get(MODES[mode], 0)
    reference = summaries.get(REFERENCE, {})
    printed = Table("", title="MaskBench, CPU time")
    for mode in shown:
        printed.add_column(mode, justify="right")
    for name in dict.fromkeys(name for summary in summaries.values() for name in summary):
        cells = (_cell(name, summaries[mode].get(name), reference.get(name), mode) for mode in shown)
        printed.add_row(name, *cells)
    return printed


def _cell(name: str, value: float | None, reference: float | None, mode: str) -> str:
    if value is None:
        return "-"
    if ":" not in name and "," not in name:
        return f"{value:,.0f}"
    ratio = f" ({value / reference:.2f})" if reference and mode != REFERENCE else ""
    return f"{value:,.2f}{ratio}" if value < 1000 else f"{value:,.0f}{ratio}"


def machine() -> str:
    """Processor, cores, system, Python, numpy."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    clock = time.process_time_ns
    spans = sorted(-(clock() - clock()) for _ in range(1000))
    system = f"{platform.system()} {platform.release()}"
    return (
        f"{name}, {os.cpu_count()} cores, {system}, Python {platform.python_version()}, numpy {np.__version__}; "
        f"reading the clock takes {spans[500] / 1000:.2f} µs of each time"
    )


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Time the compiler and its masks on real schemas.")
    parser.add_argument("--limit", type=int, help="about so many schemas, evenly spread")
    parser.add_argument("--engines", default="ours,llguidance,xgrammar")
    parser.add_argument("--rival-python", default=sys.executable, help="an interpreter that has the rivals")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds for a schema and its documents")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--slowest", type=int, default=0, help="list so many of our slowest schemas")
    options = parser.parse_args()
    smollm2()  # fetched once
    console, named = Console(width=160), options.engines.split(",")
    with tempfile.TemporaryDirectory() as folder:
        wanted = [name for engine in named for name in (OURS if engine == "ours" else (engine,))]
        workers = [
            Worker(name, sys.executable if name in OURS else options.rival_python, Path(folder), options.timeout)
            for name in wanted
        ]
        for worker in workers:
            worker.start()
            if worker.missing:
                console.print(
                    f"{worker.engine} is left out: {worker.missing} (pip install 'katagami[bench]')", markup=False
                )
                worker.stop(kill=True)
        workers = [worker for worker in workers if not worker.missing]
        figures = run(workers, options.limit)
    console.print(machine())
    console.print("; ".join(dict.fromkeys(worker.version for worker in workers)))
    console.print(table(figures, workers))
    for mode in ("ours, first visit",) if options.slowest and "ours, first visit" in figures else ():
        for rank, name in ((0, "to the first mask"), (1, "all masks")):
            worst = sorted(figures[mode].slowest, key=lambda entry: -entry[rank])[: options.slowest]
            console.print(f"slowest {name}, ms:", *(f"\n  {entry[rank] / 1e6:8.1f} {entry[2]}" for entry in worst))
    if options.json:
        summaries = {mode: measured.summary() for mode, measured in figures.items()}
        peaks = {worker.engine: worker.peak_kib for worker in workers}
        options.json.write_text(json.dumps({"machine": machine(), "modes": summaries, "peak_kib": peaks}, indent=1))


if __name__ == "__main__":
    main()
