"""Sizes and times of the automata beside the article's: its schema, the `maxLength` series, the blow-up, a drawing.

In: the character vocabulary. Out: states of NFA and automaton, classes, seconds for compiling and for lifting to the
vocabulary, bytes of the table, tokens allowed in a state. Sizes are exact, times the quickest of a few runs. Cost: some
seconds, most of it for the largest blow-up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from app.bench.article.published import alone, beside, published_rows
from app.bench.article.report import Cell, Column, Drawing, Experiment, Figure, Finding, Grid, Sample
from app.bench.article.subject import CHAR, RECORD, Subject
from schemas_cache import Source, Vocabulary, regex_source
from schemas_cache.alphabet import build_alphabet
from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.compile import build_grammar
from schemas_cache.finite import FiniteAutomaton, explore
from schemas_cache.limits import MAX_DENSE_ENTRIES
from schemas_cache.show import dfa_edges, show_dfa
from schemas_cache.thompson import build_nfa
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import token_index

MAX_STATES = 20_000
# What the article compiles: its schema as a regular expression, without escapes in the title.
PATTERN = (
    r'\{"id": (0|[1-9][0-9]{0,3}), "title": "[^"\\]{1,%d}", "level": "(初級|中級|上級)", '
    r'"tags": \["(python|linux|ai|web|db|network)"(, "(python|linux|ai|web|db|network)"){0,2}\], '
    r'"draft": (true|false)\}'
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """One automaton over bytes, and lifted to tokens where it was asked for."""

    nfa_states: int
    classes: int
    byte_states: int
    compile_s: float  # source to explored automaton
    lift_s: float
    token_states: int  # between tokens
    table_bytes: int
    row_bytes: int  # of the packed mask rows, which is what masks are read from
    allowed: tuple[int, ...]  # tokens allowed in each of them


def run_automata(subject: Subject) -> Experiment:
    """All of it."""
    vocabulary = subject.engine.models[CHAR].tokenizer.vocabulary
    runs = subject.runs
    pattern = sizes(regex_source(PATTERN % 32), vocabulary, runs)
    schema = sizes(RECORD, vocabulary, runs)
    series = {maximum: sizes(regex_source(PATTERN % maximum), vocabulary, runs) for maximum in published_rows("series")}
    blow_up = {
        n: sizes(regex_source(f"(a|b)*a(a|b){{{n}}}"), vocabulary, runs, lift=False) for n in published_rows("blow_up")
    }
    drawn = whole(regex_source("true|false"), vocabulary)
    return Experiment(
        name="automata",
        title="Automata",
        about="From the schema to states, and from states to a table over the 838 tokens of the character model.",
        figures=_figures(pattern, schema),
        grids=(_pattern_and_schema(pattern, schema), series_grid(series), blow_up_grid(blow_up)),
        plots=(drawing(drawn),),
        findings=_findings(pattern, series, blow_up),
        samples=(Sample("`true|false`, each state with its transitions", tuple(show_dfa(drawn).splitlines())),),
        notes=(
            "Our automaton reads bytes, the article's reads characters: a Japanese character is three transitions, "
            "with states inside it that no whole token ends in. What compares with the article's states are those "
            "between tokens.",
            "Positions of a count are not states of our NFA but numbers in a frame, so the NFA does not grow with "
            "`maxLength`.",
            "All states are explored here to be counted, which is what the seconds are for; the server makes states as "
            "they are visited, and explores ahead only where the table is small.",
            "Ours has fewer states between tokens, and fewer with one continuation: the subset construction here keeps "
            "only NFA states that read something, so that places about to read the same are one state.",
            "A mask is read from packed bits, one for each token, and equal rows are stored once.",
            "The schema itself allows escapes in the title, which the article's expression does not: more states.",
        ),
    )


def whole(source: Source, vocabulary: Vocabulary) -> FiniteAutomaton:
    """The automaton of a source, explored; raises `ValueError` where there is no end to it."""
    finite = explore(_automaton(source, vocabulary), MAX_STATES)
    if finite is None:
        raise ValueError(f"more than {MAX_STATES} states")
    return finite


def sizes(source: Source, vocabulary: Vocabulary, runs: int = 1, *, lift: bool = True) -> Sizes:
    """Measure one source; compiling as often as `runs` says."""
    compile_s = min(_seconds(source, vocabulary) for _ in range(runs))
    automaton = _automaton(source, vocabulary)
    finite = explore(automaton, MAX_STATES)
    tokens = TokenAutomaton(automaton, token_index(vocabulary))
    started_s = time.process_time()
    if lift:
        tokens.lift(MAX_DENSE_ENTRIES)
    lift_s = time.process_time() - started_s
    table = np.zeros((0, 0), np.int32) if tokens.dense is None else tokens.dense.next_state
    return Sizes(
        nfa_states=automaton.nfa.states,
        classes=automaton.alphabet.classes,
        byte_states=0 if finite is None else finite.states,
        compile_s=compile_s,
        lift_s=lift_s,
        token_states=len(table),
        table_bytes=table.nbytes,
        row_bytes=4 * tokens.rows.words * tokens.rows.distinct,
        allowed=tuple((table != DEAD).sum(axis=1).tolist()),
    )


def _automaton(source: Source, vocabulary: Vocabulary) -> Automaton:
    grammar, _ = build_grammar(source, vocabulary)
    nfa = build_nfa(grammar, vocabulary.spellable_bytes)
    return Automaton(nfa, build_alphabet(nfa, vocabulary.single_bytes))


def _seconds(source: Source, vocabulary: Vocabulary) -> float:
    started_s = time.process_time()
    explore(_automaton(source, vocabulary), MAX_STATES)
    return time.process_time() - started_s


def _figures(pattern: Sizes, schema: Sizes) -> tuple[Figure, ...]:
    return (
        beside("automaton.nfa_states", pattern.nfa_states),
        beside("automaton.dfa_states", pattern.token_states),
        beside("automaton.classes", pattern.classes),
        beside("automaton.compile_s", pattern.compile_s),
        beside("automaton.lift_s", pattern.lift_s),
        beside("automaton.table_bytes", pattern.table_bytes),
        beside("automaton.allowed_least", min(pattern.allowed)),
        beside("automaton.allowed_most", max(pattern.allowed)),
        beside("automaton.singles", pattern.allowed.count(1)),
        alone("automaton.row_bytes", "packed mask rows, equal ones once", "bytes", pattern.row_bytes),
        alone("automaton.schema_states", "states between tokens of the schema itself", "count", schema.token_states),
    )


def _pattern_and_schema(pattern: Sizes, schema: Sizes) -> Grid:
    names = ("NFA states", "classes of bytes", "states over bytes", "states between tokens", "with one token only")
    both = [
        (it.nfa_states, it.classes, it.byte_states, it.token_states, it.allowed.count(1)) for it in (pattern, schema)
    ]
    columns = (Column("size"), Column("the article's expression", "count"), Column("the schema", "count"))
    return Grid("The same records as an expression and as a schema", columns, tuple(zip(names, *both, strict=True)))


def series_grid(series: dict[int, Sizes]) -> Grid:
    """The article's expression at its values of `maxLength`."""
    columns = (
        *(Column("maxLength", "count"), Column("NFA, article", "count"), Column("NFA", "count")),
        *(Column("DFA, article", "count"), Column("between tokens", "count"), Column("over bytes", "count")),
        *(Column("compiled, article", "s"), Column("compiled", "s")),
        *(Column("table, article", "bytes"), Column("table", "bytes"), Column("mask rows", "bytes")),
    )
    rows: list[tuple[Cell, ...]] = []
    article = published_rows("series")
    for maximum, it in series.items():
        nfa, dfa, seconds, kilobytes = article[maximum]
        states = (maximum, nfa, it.nfa_states, dfa, it.token_states, it.byte_states)
        rows.append((*states, seconds, it.compile_s, 1024 * kilobytes, it.table_bytes, it.row_bytes))
    return Grid("The `maxLength` series", columns, tuple(rows))


def blow_up_grid(blow_up: dict[int, Sizes]) -> Grid:
    """`(a|b)*a(a|b){n}`, whose states double with n whoever builds them."""
    columns = (
        *(Column("n", "count"), Column("NFA, article", "count"), Column("NFA", "count")),
        *(Column("DFA, article", "count"), Column("DFA", "count"), Column("s, article", "s"), Column("s", "s")),
    )
    rows: list[tuple[Cell, ...]] = []
    article = published_rows("blow_up")
    for n, it in blow_up.items():
        nfa, dfa, seconds = article[n]
        rows.append((n, nfa, it.nfa_states, dfa, it.byte_states, seconds, it.compile_s))
    return Grid("The blow-up: `(a|b)*a(a|b){n}`", columns, tuple(rows))


def drawing(finite: FiniteAutomaton) -> Drawing:
    """The picture of a small automaton."""
    accepting = tuple(np.flatnonzero(finite.accepting).tolist())
    return Drawing("automaton", "The automaton of true|false", START, accepting, tuple(dfa_edges(finite)))


def _findings(pattern: Sizes, series: dict[int, Sizes], blow_up: dict[int, Sizes]) -> tuple[Finding, ...]:
    lengths = sorted(series)
    steps = [(series[b].token_states - series[a].token_states) / (b - a) for a, b in pairwise(lengths)]
    singles = pattern.allowed.count(1) / len(pattern.allowed)
    growth = blow_up[12].byte_states / blow_up[8].byte_states
    return (
        Finding(
            "Most states leave one token only",
            "152 of 195",
            f"{pattern.allowed.count(1)} of {len(pattern.allowed)}",
            singles > 0.5,
            "Keys and separators of this schema are shorter.",
        ),
        Finding(
            "`maxLength` adds one state for each character",
            "195 to 419 states from 32 to 256",
            f"{series[32].token_states} to {series[256].token_states}",
            all(step == 1 for step in steps),
            "Tokens of several characters end at fewer places.",
        ),
        Finding(
            "The blow-up doubles the states with each n",
            "33, 513, 8,193",
            ", ".join(f"{it.byte_states:,}" for it in blow_up.values()),
            growth == 16,
            "The construction found equal states.",
        ),
    )
