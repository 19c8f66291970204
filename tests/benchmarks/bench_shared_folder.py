"""Processes that share one cache folder under load: errors, compiles and times.

In: schemas of `../shared/suites/maskbench_dev.jsonl.gz`. Out: how often each was compiled in all processes together, by
tier how often it was asked for, and what that took. Exits with 1 where there was an error, a warning or a wrong mask,
or where a schema was compiled twice.

    python tests/benchmarks/bench_shared_folder.py [--processes 8] [--seconds 60] [--schemas 200]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Column, Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.schemas_cache.sharing import share
from tests.suites.maskbench import read_cases


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Processes that share one cache folder under load.")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--schemas", type=int, default=200)
    options = parser.parse_args()
    schemas = [case.schema for case in read_cases(max(1, 1500 // options.schemas))[: options.schemas]]
    with tempfile.TemporaryDirectory() as folder:
        report = share(Path(folder), schemas, options.seconds, options.processes, "smollm2")
    table = Table("figure", Column("value", justify="right"), title=f"{options.processes} processes, one folder")
    for tier, count in report.tiers.most_common():
        table.add_row(f"asked for: {tier}", str(count))
    p50, p95, p99 = np.percentile(report.times_ms, (50, 95, 99))
    table.add_row("p50, p95, p99, maximum, ms", f"{p50:.2f}, {p95:.2f}, {p99:.2f}, {max(report.times_ms):.0f}")
    table.add_row("schemas compiled", str(len(report.compiles)))
    table.add_row("compiled more than once", str(sum(count > 1 for count in report.compiles.values())))
    table.add_row("walks compared with fresh tables", str(report.checked))
    table.add_row("lines of complaint", str(report.complaints.count("\n")))
    Console().print(table)
    sys.stderr.write(report.complaints)
    if report.complaints or max(report.compiles.values()) > 1:
        sys.exit(1)


if __name__ == "__main__":
    main()
