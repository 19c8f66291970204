"""Times and sizes of the traps of recursion, counts and dead ends, at the sizes of the design.

Run `make bench`, or `python tests/benchmarks/bench_automata.py`. Sizes are exact; times are medians of several runs.
The article's series are in `katagami bench article`.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from schemas_cache import Vocabulary, compile_schema
from schemas_cache.automaton import START, Automaton
from schemas_cache.finite import explore
from schemas_cache.grammar import Ref, alt, concat, literal, repeat
from tests.schemas_cache.machines import automaton_of, pattern_automaton

RUNS = 5
EMBEDDED = Path(__file__).parents[2] / "engine" / "embedded"


def timed(work: Callable[[], object]) -> float:
    """Median milliseconds of a few runs."""
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        times.append((time.perf_counter() - begin) * 1000)
    return median(times)


def traps(vocabulary: Vocabulary) -> Table:
    """Recursion, counts and dead ends at the sizes of the design: milliseconds, peak memory, configurations, frames."""
    table = Table("trap", "ms", "peak MB", "states", "most configurations", "frames", title="Traps")
    for name, work in TRAPS.items():
        ms = timed(work)
        tracemalloc.start()
        automaton = work()
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        widest = max(map(len, automaton.configurations))
        table.add_row(name, f"{ms:.1f}", f"{peak:.1f}", str(len(automaton)), str(widest), str(len(automaton.frames)))
    nested = {"type": "string", "maxLength": 1_000_000}
    table.add_row("maxLength 1,000,000, compiled", f"{timed(lambda: compile_schema(nested, vocabulary)):.1f}")
    return table


def two_recursive_alternatives() -> Automaton:
    """Two hundred levels, both alternatives open at each."""
    ends = ("}", ', "b": 1}')
    node = alt(literal("1"), *(concat(literal('{"a": '), Ref("n"), literal(end)) for end in ends))
    automaton = automaton_of(Ref("n"), {"n": node})
    automaton.walk(START, b'{"a": ' * 200 + b"1" + b"}" * 200)
    return automaton


def ambiguous_counts() -> Automaton:
    """`(a|aa){0,800}` explored whole."""
    automaton = automaton_of(repeat(alt(literal("a"), literal("aa")), 0, 800))
    explore(automaton, 10_000)
    return automaton


def nullable_counts() -> Automaton:
    """`(a?){0,800}`, whose body may be empty."""
    automaton = pattern_automaton("(a?){0,800}")
    explore(automaton, 10_000)
    return automaton


def requires_itself() -> Automaton:
    """A rule that requires itself, beside one that does not."""
    rules = {"n": concat(literal('{"n": '), Ref("n"), literal("}"))}
    return automaton_of(alt(literal("null"), Ref("n")), rules)


TRAPS: dict[str, Callable[[], Automaton]] = {
    "two recursive alternatives, depth 200": two_recursive_alternatives,
    "(a|aa){0,800}": ambiguous_counts,
    "(a?){0,800}": nullable_counts,
    "a rule that requires itself": requires_itself,
}


def main() -> None:
    """Print the table."""
    vocabulary = Vocabulary.from_tokenizer_json(EMBEDDED / "katagami-char" / "tokenizer.json", end_ids=[0])
    Console().print(traps(vocabulary))


if __name__ == "__main__":
    main()
