"""How a suite judges the compiler: valid documents are accepted to the end, invalid ones refused somewhere.

In: a `Case`, a schema with documents. Out: a `Verdict`: right, too strict (a valid one refused), too loose (an invalid
one accepted), refused (an error that names the keyword), slow (over the time given) or failed (any other exception).
Cost: one compile, one walk for each document, more where keys have to be put in order.

A schema without any solution is right where all its documents are invalid. A document whose only fault is the order of
its keys is judged in the schema's order. That order is searched for with the automaton itself, which knows it whatever
the schema looks like: of the keys that can come next, one is taken after which the others still can. Valid and invalid
documents are treated alike, so that order hides no looseness.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas_cache import (
    CompiledSchema,
    Finding,
    SchemaError,
    SchemaTooComplexError,
    UnsatisfiableSchemaError,
    Vocabulary,
    compile_schema,
)
from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.limits import Limits
from schemas_cache.schema.options import KeyOrder

Outcome = Literal["right", "too strict", "too loose", "refused", "slow", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("right", "too strict", "too loose", "refused", "slow", "failed")
LAZY = Limits(max_dense_entries=0)  # nothing is explored that no document visits
BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
ORDER_SEARCH_STEPS = 2_000
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Document:
    """One test: a value, its text, other spellings of its numbers and other orders of its keys.

    An invalid one must be refused in every form; a valid one accepted as `text`, and where the order is free, in
    every order.
    """

    text: str
    valid: bool
    description: str
    spellings: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A schema and its documents."""

    id: str
    schema: Any
    documents: tuple[Document, ...]


@dataclass
class Verdict:
    """What came of one case; `wrong` holds the descriptions of the documents that were judged wrongly."""

    id: str
    outcome: Outcome
    reasons: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    documents: int = 0
    reordered: int = 0
    took_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Judge:
    """How to compile and read: a vocabulary, its tokenizer (None: byte by byte), the order of keys, seconds a case."""

    vocabulary: Vocabulary = BYTES
    encode: Encode | None = None
    key_order: KeyOrder = "declared"
    timeout_s: float = 60.0

    def judge(self, case: Case) -> Verdict:
        """Judge one case; never raises, never hangs."""
        start_s = time.monotonic()
        verdict = Verdict(case.id, "right", documents=len(case.documents))
        try:
            with time_limit(self.timeout_s):
                self._judge(case, verdict)
        except SlowError:
            verdict.outcome = "slow"
        except SchemaTooComplexError as error:  # while walking; a bound on states
            refuse(verdict, error)
        except Exception as error:
            verdict.outcome, verdict.reasons = "failed", [f"{type(error).__name__}: {error}"]
        verdict.took_s = time.monotonic() - start_s
        return verdict

    def _judge(self, case: Case, verdict: Verdict) -> None:
        try:
            schema = compile_schema(
                case.schema,
                self.vocabulary,
                additional_properties="open",
                key_order=self.key_order,
                limits=LAZY,
            )
        except UnsatisfiableSchemaError as error:
            verdict.reasons = [str(finding) for finding in error.findings]
            verdict.wrong = [f"strict: {document.description}" for document in case.documents if document.valid]
        except SchemaError as error:
            return refuse(verdict, error)
        else:
            verdict.wrong = [fault for document in case.documents for fault in self._fault(schema, document, verdict)]
        if verdict.wrong:
            loose = any(fault.startswith("loose") for fault in verdict.wrong)
            verdict.outcome = "too loose" if loose else "too strict"
        return None

    def _fault(self, schema: CompiledSchema, document: Document, verdict: Verdict) -> Iterator[str]:
        forms = (document.text, *document.spellings, *document.orders)
        if not document.valid:
            if any(self._accepts(schema, text) for text in forms):
                yield f"loose: {document.description}"
            elif self.key_order == "declared" and any(self._accepts_reordered(schema, text) for text in forms):
                yield f"loose: {document.description} (in the order of the schema)"
        elif self.key_order == "any":
            if not all(self._accepts(schema, text) for text in (document.text, *document.orders)):
                yield f"strict: {document.description}"
        elif not self._accepts(schema, document.text):
            accepted = self._accepts_reordered(schema, document.text)
            verdict.reordered += accepted
            if not accepted:
                yield f"strict: {document.description}"

    def _accepts_reordered(self, schema: CompiledSchema, text: str) -> bool:
        value = json.loads(text, parse_float=Raw, parse_int=Raw)
        ordered = OrderSearch(schema.tokens.automaton).order(value)
        return ordered not in (None, text) and self._accepts(schema, ordered or "")

    def _accepts(self, schema: CompiledSchema, text: str) -> bool:
        data = text.encode("utf-8", "surrogatepass")
        if self.encode is None or schema.tokens.index.vocabulary.end_ids == ():
            automaton = schema.tokens.automaton
            return automaton.accepting[automaton.walk(START, data)]
        matcher = schema.matcher()
        for token_id in [*self.encode(text), schema.tokens.index.vocabulary.end_ids[0]]:
            if not matcher.allows(token_id):
                return False
            matcher.advance(token_id)
        return True


class Raw(str):
    """A number as it was written."""


@dataclass
class OrderSearch:
    """Puts the keys of a document into an order that an automaton takes."""

    automaton: Automaton
    steps: int = 0

    def order(self, value: Any) -> str | None:
        """The text of the document in such an order; None where none was found in `ORDER_SEARCH_STEPS`."""
        found = self._value(value, START)
        return found[0] if found and self.automaton.accepting[found[1]] else None

    def _value(self, value: Any, state: int) -> tuple[str, int] | None:
        """A text of a value that can stand at a state, and the state after it."""
        self.steps += 1
        if isinstance(value, dict) and value:
            return self._members(dict(value), "{", state)
        if isinstance(value, list) and value:
            return self._elements(value, state)
        text = str(value) if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)
        after = self._walk(state, text)
        return None if after == DEAD else (text, after)

    def _members(self, rest: dict[str, Any], lead: str, state: int) -> tuple[str, int] | None:
        """The members that are still to come; goes back on a choice that leads nowhere."""
        if not rest:
            after = self._walk(state, "}")
            return None if after == DEAD else ("}", after)
        for name, text, after in self._next_members(rest, lead, state):
            tail = self._members({key: value for key, value in rest.items() if key != name}, ", ", after)
            if tail:
                return text + tail[0], tail[1]
        return None

    def _next_members(self, rest: dict[str, Any], lead: str, state: int) -> list[tuple[str, str, int]]:
        """Members that can come next, with their texts and the states after them; first those that pass none over."""
        starts = {name: f"{lead}{json.dumps(name, ensure_ascii=False)}: " for name in rest}
        inside = {name: at for name, start in starts.items() if (at := self._walk(state, start)) != DEAD}
        found: list[tuple[int, str, str, int]] = []
        for name, at in inside.items():
            member = None if self.steps > ORDER_SEARCH_STEPS else self._value(rest[name], at)
            if member:
                passed = sum(key != name and not self._can_follow(key, member[1]) for key in inside)
                found.append((passed, name, starts[name] + member[0], member[1]))
                if not passed:
                    break
        return [(name, text, after) for _, name, text, after in sorted(found, key=lambda entry: entry[0])]

    def _can_follow(self, name: str, state: int) -> bool:
        return self._walk(state, f", {json.dumps(name, ensure_ascii=False)}: ") != DEAD

    def _elements(self, values: list[Any], state: int) -> tuple[str, int] | None:
        texts = []
        for i, value in enumerate(values):
            inside = self._walk(state, ", " if i else "[")
            element = None if inside == DEAD else self._value(value, inside)
            if element is None:
                return None
            texts.append(element[0])
            state = element[1]
        after = self._walk(state, "]")
        return None if after == DEAD else (f"[{', '.join(texts)}]", after)

    def _walk(self, state: int, text: str) -> int:
        return self.automaton.walk(state, text.encode("utf-8", "surrogatepass"))


class SlowError(Exception):
    """A case took longer than it may."""


@contextmanager
def time_limit(timeout_s: float) -> Iterator[None]:
    """Raise `SlowError` in the main thread when the time is over."""

    def give_up(number: int, frame: object) -> None:
        raise SlowError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refuse(verdict: Verdict, error: SchemaError) -> None:
    """Note a refusal by the keywords that it names."""
    verdict.outcome = "refused"
    verdict.reasons = [str(finding) for finding in error.findings]
    verdict.keywords = sorted({_blamed(finding, error) for finding in error.findings})


def _blamed(finding: Finding, error: SchemaError) -> str:
    return "(unknown words)" if "no JSON Schema keyword" in finding.reason else finding.keyword or error.code


def tally(verdicts: Iterable[Verdict]) -> dict[Outcome, int]:
    """How many cases of each outcome."""
    counts: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
    for verdict in verdicts:
        counts[verdict.outcome] += 1
    return counts


def refusals(verdicts: Iterable[Verdict]) -> Mapping[str, int]:
    """How many refused cases name each keyword, the commonest first."""
    counts: dict[str, int] = {}
    for verdict in verdicts:
        for keyword in verdict.keywords:
            counts[keyword] = counts.get(keyword, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
