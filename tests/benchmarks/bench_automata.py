"""Sizes and times of the automata, beside the article's: the blow-up series, its own pattern, the traps of recursion.

Run `make bench`, or `python tests/benchmarks/bench_automata.py`. Sizes are exact; times are medians of several runs.
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

from schemas_cache import Vocabulary, compile_regex, compile_schema
from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.finite import explore
from schemas_cache.grammar import Ref, alt, concat, literal, repeat
from tests.schemas_cache.machines import ARTICLE_PATTERN, automaton_of, pattern_automaton

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


def blow_up() -> Table:
    """`(a|b)*a(a|b){n}`: states by plain subset construction in the article, and over important states here."""
    table = Table("n", "article", "ours", "ms", title="(a|b)*a(a|b){n}: states")
    for count, article in ((4, 33), (8, 513), (12, 8193)):
        pattern = f"(a|b)*a(a|b){{{count}}}"
        finite = explore(pattern_automaton(pattern), 10_000)
        states = "-" if finite is None else str(finite.states)
        table.add_row(
            str(count), str(article), states, f"{timed(lambda p=pattern: explore(pattern_automaton(p), 10_000)):.1f}"
        )
    return table


def article_series(vocabulary: Vocabulary) -> Table:
    """The article's pattern at its values of `maxLength`, lifted to the character vocabulary."""
    table = Table(
        "maxLength",
        "article",
        "ours",
        "one continuation",
        "least",
        "most allowed",
        "NFA",
        "classes",
        "ms",
        title="States",
    )
    for maximum, article in ((12, 175), (32, 195), (64, 227), (128, 291), (256, 419)):
        pattern = ARTICLE_PATTERN % maximum
        tokens = compile_regex(pattern, vocabulary).tokens
        if tokens.dense is None:
            continue
        allowed = (tokens.dense.next_state != DEAD).sum(axis=1)
        figures = (len(allowed), (allowed == 1).sum(), allowed.min(), allowed.max())
        sizes = (tokens.automaton.nfa.states, tokens.automaton.alphabet.classes)
        ms = timed(lambda p=pattern: compile_regex(p, vocabulary))
        table.add_row(str(maximum), str(article), *map(str, (*figures, *sizes)), f"{ms:.0f}")
    return table


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
    """Print the tables."""
    console = Console()
    vocabulary = Vocabulary.from_tokenizer_json(EMBEDDED / "katagami-char" / "tokenizer.json", end_ids=[0])
    for table in (blow_up(), article_series(vocabulary), traps(vocabulary)):
        console.print(table)


if __name__ == "__main__":
    main()
