"""`katagami compile`: a schema in, any stage of the compiler out, as text or as a drawing."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from app.cli.source import (
    AdditionalProperties,
    AdditionalPropertiesOption,
    KeyOrder,
    KeyOrderOption,
    StrictOption,
    UsageError,
    Whitespace,
    WhitespaceOption,
    finding_line,
    read_source,
    read_vocabulary,
    tell_warnings,
)
from schemas_cache import Source, Vocabulary
from schemas_cache.compile import build_grammar, compile_source
from schemas_cache.finite import explore, minimize
from schemas_cache.show import show_dfa, show_grammar, show_nfa
from schemas_cache.thompson import build_nfa

MAX_SHOWN_STATES = 20_000  # beyond it nobody reads the table


class Stage(StrEnum):
    """Where to stop."""

    grammar = "grammar"
    nfa = "nfa"
    dfa = "dfa"
    min = "min"
    report = "report"


def compile_(
    schema: Annotated[str | None, typer.Argument(help="File with a JSON Schema; - for standard input.")] = None,
    regex: Annotated[str | None, typer.Option(help="A regular expression instead of a schema.")] = None,
    stage: Annotated[Stage, typer.Option(help="Which stage to show.")] = Stage.report,
    dot: Annotated[bool, typer.Option(help="Graphviz instead of text, for nfa, dfa and min.")] = False,
    vocabulary: Annotated[
        str, typer.Option(help="A shipped model's name, a model's folder, a .gguf or a tokenizer.json.")
    ] = "katagami-char",
    whitespace: WhitespaceOption = Whitespace.spaced,
    additional_properties: AdditionalPropertiesOption = AdditionalProperties.closed,
    key_order: KeyOrderOption = KeyOrder.declared,
    strict: StrictOption = True,
) -> None:
    """Compile a schema and show a stage: grammar, NFA, DFA, minimal DFA, or a report.

    For example:

        katagami compile article.json

        katagami compile --regex '(a|b)*a(a|b){4}' --stage min

        echo '{"type": "boolean"}' | katagami compile - --stage nfa --dot | dot -Tsvg > nfa.svg
    """
    if dot and stage in (Stage.grammar, Stage.report):
        raise UsageError(f"--dot draws automata, and --stage {stage} is text; add --stage nfa, dfa or min")
    source = read_source(schema, regex, whitespace, additional_properties, key_order, strict=strict)
    tokens = read_vocabulary(vocabulary)
    if stage is Stage.report:
        _report(source, tokens)
        return
    typer.echo(_stage_text(source, tokens, stage, dot=dot))


def _stage_text(source: Source, vocabulary: Vocabulary, stage: Stage, *, dot: bool) -> str:
    grammar, warnings = build_grammar(source, vocabulary)
    tell_warnings(warnings)
    if stage is Stage.grammar:
        return show_grammar(grammar)
    if stage is Stage.nfa:
        return show_nfa(build_nfa(grammar), dot=dot)
    finite = explore(compile_source(source, vocabulary).tokens.automaton, MAX_SHOWN_STATES)
    if finite is None:
        raise UsageError(
            f"the automaton has more than {MAX_SHOWN_STATES} states (recursion has no end); --stage nfa shows it whole"
        )
    return show_dfa(minimize(finite) if stage is Stage.min else finite, dot=dot)


def _report(source: Source, vocabulary: Vocabulary) -> None:
    started_s = time.perf_counter()
    compiled = compile_source(source, vocabulary)
    elapsed_ms = 1000 * (time.perf_counter() - started_s)
    finite = explore(compiled.tokens.automaton, MAX_SHOWN_STATES)
    table = Table("figure", Column("value", overflow="fold"), title="compiled")
    table.add_row("schema hash", compiled.schema_hash)
    table.add_row("compile time", f"{elapsed_ms:.1f} ms")
    table.add_row("minimum tokens", str(compiled.minimum_tokens))
    table.add_row("shortest document", compiled.matcher().shortest().decode("utf-8", "replace"))
    table.add_row("states", str(finite.states) if finite else f"no end within {MAX_SHOWN_STATES}")
    table.add_row("states after minimisation", str(minimize(finite).states) if finite else "")
    table.add_row("vocabulary", f"{len(vocabulary)} tokens")
    for warning in compiled.warnings:
        table.add_row("warning", finding_line(warning))
    Console().print(table)
