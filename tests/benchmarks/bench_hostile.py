"""Schemas made to be expensive: compile, first mask, a walk with all masks; each works or is refused within bounds.

Run `make bench`, or `python tests/benchmarks/bench_hostile.py [part of a name]`. Each case has a process of its own,
with SmolLM2's 49,152 tokens, or with the shipped model's 838 where SmolLM2's are not to be had. Times are of one run,
in processor seconds, so that a busy machine changes them little; memory is the peak above what the process took before.
The last line says how many cases took longer than `MOST_S` or more than `MOST_MB`.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from schemas_cache import Vocabulary
from schemas_cache.token_index import token_index
from tests.schemas_cache.hostile import CASES, examine
from tests.suites.smollm2 import smollm2

MOST_S, MOST_MB = 2.0, 200
TIMEOUT_S = 120
EMBEDDED = Path(__file__).parents[2] / "engine" / "embedded" / "katagami-bpe" / "tokenizer.json"


def vocabulary() -> Vocabulary:
    """SmolLM2's, else the shipped one."""
    try:
        return smollm2().vocabulary
    except OSError:
        return Vocabulary.from_tokenizer_json(EMBEDDED)


def peak_mb() -> float:
    """Peak memory of this process; on Linux since `forget_peak`."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)


def forget_peak() -> None:
    """Begin to measure the peak anew, where the system can."""
    references = Path("/proc/self/clear_refs")
    if references.exists():
        references.write_text("5")


def measure(name: str) -> None:
    """Print the outcome of one case as JSON; in a process of its own."""
    tokens = vocabulary()
    token_index(tokens)
    forget_peak()
    before_mb = peak_mb()
    outcome = examine(CASES[name], tokens)
    print(json.dumps(asdict(outcome) | {"mb": peak_mb() - before_mb}))


def measured(name: str) -> dict[str, object]:
    """The outcome of one case, from a process of its own."""
    command = [sys.executable, __file__, "--measure", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"refused": f"nothing within {TIMEOUT_S} s", "compile_s": TIMEOUT_S, "mb": 0.0}
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1], "compile_s": TIMEOUT_S, "mb": 0.0}
    outcome: dict[str, object] = json.loads(done.stdout)
    return outcome


def main(part: str) -> None:
    """Measure all cases whose names have this part, and print each when it is done."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{'case':44} {'compile s':>9} {'mask s':>7} {'walk s':>7} {'tokens':>6} {'MB':>5}  refused")
    beyond = 0
    for name in (name for name in CASES if part in name):
        outcome = measured(name)
        times = [float(str(outcome.get(field, 0.0))) for field in ("compile_s", "mask_s", "walk_s")]
        mb = float(str(outcome["mb"]))
        beyond += sum(times) > MOST_S or mb > MOST_MB
        figures = f"{times[0]:9.3f} {times[1]:7.3f} {times[2]:7.3f} {outcome.get('tokens', 0):6} {mb:5.0f}"
        print(f"{name:44} {figures}  {str(outcome['refused'])[:90]}", flush=True)
    print(f"{beyond} cases took more than {MOST_S:g} s in sum, or more than {MOST_MB} MB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
