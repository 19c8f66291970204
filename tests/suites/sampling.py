"""Random schemas: outputs under the mask by random logits, judged by two validators, and valid values the other way.

In: numbers, each of which is the seed of a schema, of its options and of all that is drawn for it. Out: a table, and
verdicts: too loose (an invalid output, or an invalid value accepted), too strict (a valid value is refused and no
stated rule explains it), failed (a mask or the slow matcher disagrees). Cost: a fifth of a second for each schema.

For each schema that compiles strictly, on the shipped BPE vocabulary with its usual tables and on single bytes lazily:

- outputs by the masks alone, up to `MAX_TOKENS` by random logits, then the shortest way to the end: all are valid;
- values: those outputs read and written canonically, their neighbours, small values out of the schema's own constants
  and bounds. Invalid ones are refused; valid ones are accepted, or one of the rules of `explaining` is why not;
- for each `REFEREE_EVERY`th schema: the referees of `refereeing`, on outputs and on damaged ones.

A schema that is called unsatisfiable is judged by values too. The schemas take turns with the options.

    python -m tests.suites.sampling [--limit 400] [--id 17] [--jobs 1]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from schemas_cache import (
    CompiledSchema,
    SchemaError,
    SchemaOptions,
    UnsatisfiableSchemaError,
    Vocabulary,
    compile_source,
    schema_source,
)
from schemas_cache.automaton import START
from schemas_cache.limits import DEFAULT_LIMITS
from schemas_cache.schema.options import AdditionalProperties, KeyOrder, Whitespace
from tests.suites.explaining import Explainer, canonical
from tests.suites.judging import LAZY, Case, Judge, Outcome, Verdict, refuse
from tests.suites.random_schemas import random_schema
from tests.suites.random_values import neighbour, scalars_of, small_values
from tests.suites.refereeing import damaged, mask_faults, matcher_faults, unpacked
from tests.suites.running import ROOT, print_table, run, write_details
from tests.suites.validators import Validators

BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), b""], [256])
BPE = Vocabulary.from_tokenizer_json(ROOT / "engine" / "embedded" / "katagami-bpe" / "tokenizer.json", end_ids=[0])
WHITESPACE: tuple[Whitespace, ...] = ("spaced", "compact")
READINGS: tuple[AdditionalProperties, ...] = ("closed", "open")
ORDERS: tuple[KeyOrder, ...] = ("declared", "any")
OPTIONS = tuple(SchemaOptions(True, *some) for some in product(WHITESPACE, READINGS, ORDERS))
OUTPUTS_PER_VOCABULARY = 6
MAX_TOKENS = 60
NEIGHBOURS = 4
SMALL_VALUES = 30
REFEREE_EVERY, REFEREE_TEXTS, REFEREE_BYTES, REFEREE_STATES = 8, 4, 80, 6
FAULTS: dict[str, Outcome] = {"loose": "too loose", "mask": "failed", "referee": "failed", "strict": "too strict"}


@dataclass(frozen=True)
class Output:
    """A text that came out under the masks, and the states that were met between its tokens."""

    text: bytes
    states: tuple[int, ...]


@dataclass(frozen=True)
class Sampler(Judge):
    """Judges a schema by what comes out under its masks; the case's id is the seed, it needs no documents."""

    def _judge(self, case: Case, verdict: Verdict) -> None:
        trial = Trial(int(case.id), case.schema, verdict)
        try:
            trial.by_bytes = trial.compiled(BYTES)
        except UnsatisfiableSchemaError:
            trial.count("unsatisfiable")
        except SchemaError as error:
            return refuse(verdict, error)
        else:
            trial.count("compiled")
            trial.sample()
        trial.judge_values()
        found = {fault.split(":")[0] for fault in verdict.wrong}
        verdict.outcome = next((outcome for fault, outcome in FAULTS.items() if fault in found), "right")
        return None


@dataclass(eq=False)
class Trial:
    """One schema and what has come of it so far; `by_bytes` is None where nothing satisfies it."""

    seed: int
    schema: Any
    verdict: Verdict
    by_bytes: CompiledSchema | None = None
    outputs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng, self.options = Random(self.seed), OPTIONS[self.seed % len(OPTIONS)]
        self.validators = Validators(self.schema)

    def compiled(self, vocabulary: Vocabulary) -> CompiledSchema:
        """Compile for a vocabulary; raises `SchemaError`."""
        limits = LAZY if vocabulary is BYTES else DEFAULT_LIMITS
        return compile_source(schema_source(self.schema, self.options), vocabulary, limits=limits)

    def count(self, figure: str, by: int = 1) -> None:
        """Add to a figure of the table."""
        self.verdict.counts[figure] = self.verdict.counts.get(figure, 0) + by

    def sample(self) -> None:
        """Draw outputs on both vocabularies."""
        if self.by_bytes:
            self._sample_on(self.by_bytes)
        try:
            self._sample_on(self.compiled(BPE))
        except UnsatisfiableSchemaError:
            self.count("not spelled by the BPE vocabulary")

    def _sample_on(self, compiled: CompiledSchema) -> None:
        outputs = [
            draw(compiled, np.random.default_rng(self.rng.getrandbits(64))) for _ in range(OUTPUTS_PER_VOCABULARY)
        ]
        self.verdict.documents += len(outputs)
        for output in outputs:
            self._judge_output(output.text.decode("utf-8"))
        if self.seed % REFEREE_EVERY == 0:
            self._ask_referees(compiled, outputs)

    def _judge_output(self, text: str) -> None:
        ruling = self.validators.rule(text)
        self.count("outputs that a validator misjudges on doubles", ruling.rounded)
        if not ruling.valid:
            self.verdict.wrong.append(f"loose: {text}" + (" (one validator says)" if ruling.disputed else ""))
        if not self._accepts(text):
            self.verdict.wrong.append(f"strict: {text} (of one vocabulary only)")
        self.outputs.append(text)

    def _accepts(self, text: str) -> bool:
        if self.by_bytes is None:
            return False
        automaton = self.by_bytes.tokens.automaton
        return automaton.accepting[automaton.walk(START, text.encode("utf-8"))]

    def _ask_referees(self, compiled: CompiledSchema, outputs: list[Output]) -> None:
        short = [output.text for output in outputs if len(output.text) <= REFEREE_BYTES][:REFEREE_TEXTS]
        texts = [*short, *(damaged(text, self.rng) for text in short for _ in range(3))]
        met = sorted({state for output in outputs for state in output.states})
        states = self.rng.sample(met, min(len(met), REFEREE_STATES))
        self.verdict.wrong += [*matcher_faults(compiled, texts), *mask_faults(compiled, states)]
        self.count("texts by the slow matcher", len(texts))
        self.count("masks by brute force", len(states))

    def judge_values(self) -> None:
        """Judge values by their canonical texts."""
        explainer = Explainer(self.schema, self.options, BYTES)
        for value in self._values():
            text = canonical(value, self.options.whitespace)
            ruling = self.validators.rule(text)
            self.count("values that a validator misjudges on doubles", ruling.rounded)
            self.count("values about which the validators differ", ruling.disputed)
            self.count("valid values", ruling.valid)
            if self._accepts(text):
                self.count("valid values accepted", ruling.valid)
                self.verdict.wrong += [] if ruling.valid else [f"loose: {text} (a value)"]
            elif ruling.valid:
                self._explain(explainer, value, text)

    def _explain(self, explainer: Explainer, value: Any, text: str) -> None:
        rule = explainer.rule(value)
        if rule is None:
            self.verdict.wrong.append(f"strict: {text}")
        self.count(f"valid values refused: {rule or 'UNEXPLAINED'}")

    def _values(self) -> Iterator[Any]:
        """Different ones, all of them finite."""
        read = [json.loads(text) for text in self.outputs]
        scalars = scalars_of(self.schema)
        near = (neighbour(value, scalars, self.rng) for value in read for _ in range(NEIGHBOURS))
        known = set[str]()
        for value in [*read, *near, *small_values(self.schema, self.rng, SMALL_VALUES)]:
            text = json.dumps(value)
            if text not in known and "Infinity" not in text and "NaN" not in text:
                known.add(text)
                yield value


def draw(compiled: CompiledSchema, rng: np.random.Generator) -> Output:
    """One output: each token is the greatest of random logits and new noise among the allowed ones."""
    matcher, text, states = compiled.matcher(), b"", list[int]()
    logits = _logits(compiled.vocabulary, rng)
    for _ in range(rng.integers(1, MAX_TOKENS + 1)):
        allowed = unpacked(compiled, matcher.state)
        if not allowed.any():
            break
        states.append(matcher.state)
        token_id = int(np.argmax(np.where(allowed, logits + rng.gumbel(size=len(logits)), -np.inf)))
        matcher.advance(token_id)
        text += compiled.vocabulary.token_bytes[token_id]
        if token_id in compiled.vocabulary.end_ids:
            return Output(text, tuple(states))
    closing = matcher.shortest()
    matcher.advance_bytes(closing)
    assert matcher.accepting, text
    return Output(text + closing, tuple(states))


def _logits(vocabulary: Vocabulary, rng: np.random.Generator) -> NDArray[np.float64]:
    """Flat or uneven, float64 (V,); where JSON's own signs are not favoured, few strings come to their end."""
    signs = np.array([any(sign in data for sign in b'"{}[],:') for data in vocabulary.token_bytes])
    noise: NDArray[np.float64] = rng.normal(0.0, rng.choice([0.0, 2.0]), len(vocabulary))
    return noise + float(rng.choice([0.0, 3.0, 6.0])) * signs


def cases(count: int) -> list[Case]:
    """So many random schemas."""
    return [Case(str(seed), random_schema(Random(seed)), ()) for seed in range(count)]


def judge_all(some: list[Case], jobs: int | None = None) -> list[Verdict]:
    """Verdicts of these cases."""
    return run(some, Sampler, jobs)


def totals(verdicts: list[Verdict]) -> dict[str, int]:
    """All figures added up."""
    names = sorted({name for verdict in verdicts for name in verdict.counts})
    return {name: sum(verdict.counts.get(name, 0) for verdict in verdicts) for name in names}


def report(verdicts: list[Verdict], folder: Path) -> None:
    """Print the tables of outcomes and figures, and every case that is wrong."""
    print_table("Random schemas", {"": verdicts})
    table = Table("", title="Random schemas: outputs and values")
    table.add_column("", justify="right")
    for name, figure in {"outputs": sum(verdict.documents for verdict in verdicts), **totals(verdicts)}.items():
        table.add_row(name, str(figure))
    Console().print(table)
    print(write_details("sampling", verdicts, folder))
    for verdict in verdicts:
        if verdict.outcome not in ("right", "refused"):
            print(verdict.id, verdict.outcome, *verdict.reasons, *verdict.wrong[:5], sep="\n    ")


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="Judge the compiler by random schemas.")
    parser.add_argument("--limit", type=int, default=400, help="so many schemas")
    parser.add_argument("--id", type=int, action="append", help="these only, in this process, with the schemas")
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    some = cases(max(options.id) + 1 if options.id else options.limit)
    some = [case for case in some if not options.id or int(case.id) in options.id]
    for case in some if options.id else ():
        print(json.dumps(case.schema, ensure_ascii=False), OPTIONS[int(case.id) % len(OPTIONS)])
    report(judge_all(some, 1 if options.id else options.jobs), Path(tempfile.gettempdir()) / "katagami-suites")


if __name__ == "__main__":
    main()
