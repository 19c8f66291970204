"""The pipeline in order: source, grammar, NFA, alphabet, lazy automaton, tokens.

In: a `Source` and a `Vocabulary`. Out: `CompiledSchema`, ready to give masks, or a `SchemaError` with every finding.
Cost: linear in the schema; states and mask rows come later, when they are visited, but for small finite automata on
small vocabularies, which are explored whole.
"""

from __future__ import annotations

import time
from typing import Any, Literal

from schemas_cache.alphabet import build_alphabet
from schemas_cache.automaton import START, Automaton
from schemas_cache.codec import CorruptEntryError, pack, unpack
from schemas_cache.errors import (
    CompileTimeoutError,
    Finding,
    PatternError,
    SchemaError,
    SchemaTooComplexError,
    UnsatisfiableSchemaError,
)
from schemas_cache.fewest_tokens import minimum_tokens
from schemas_cache.grammar import Grammar
from schemas_cache.limits import DEFAULT_LIMITS, MAX_SHORTEST_BYTES, Limits
from schemas_cache.matcher import Matcher
from schemas_cache.pattern import full_language
from schemas_cache.schema import SchemaOptions, choice_grammar, json_object_grammar, lower
from schemas_cache.schema.options import AdditionalProperties, KeyOrder, Whitespace
from schemas_cache.snapshot import capture, restore
from schemas_cache.source import Source, regex_source, schema_source
from schemas_cache.spelling import utf8
from schemas_cache.thompson import build_nfa
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import token_index
from schemas_cache.vocabulary import Vocabulary

_NOT_TABLES = (LookupError, ValueError, TypeError, AttributeError, RuntimeError, StopIteration, SchemaError)

STATE_BYTES = 500  # of Python objects for a state, a frame or an NFA state, as measured with tracemalloc


class CompiledSchema:
    """A source bound to a vocabulary. Learns while it is used; may be shared between threads.

    Attributes
    ----------
    source : Source
    tokens : TokenAutomaton
        States, transitions and mask rows.
    warnings : tuple of Finding
        What was dropped, with `strict=False`.
    minimum_tokens : int
        Tokens that a shortest document takes, the end token left out.
    """

    def __init__(
        self, source: Source, tokens: TokenAutomaton, warnings: tuple[Finding, ...], minimum_tokens: int
    ) -> None:
        self.source, self.tokens = source, tokens
        self.warnings, self.minimum_tokens = warnings, minimum_tokens

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that the masks are for."""
        return self.tokens.index.vocabulary

    @property
    def schema_hash(self) -> str:
        """SHA-256 of the canonical source."""
        return self.source.schema_hash

    @property
    def enforced(self) -> Literal["full", "partial"]:
        """Whether all of the schema is enforced, or some of it was dropped as the warnings say.

        A warning that is a note only says how the schema was read.
        """
        is_whole = self.source.options.strict or all(warning.is_note for warning in self.warnings)
        return "full" if is_whole else "partial"

    @property
    def exhausted(self) -> bool:
        """Whether so many states were made that new sequences had better start with fresh tables."""
        return self.tokens.automaton.nearly_full

    @property
    def generation(self) -> int:
        """Grows whenever something is learnt."""
        return len(self.tokens.automaton) + len(self.tokens.rows)

    @property
    def size_bytes(self) -> int:
        """Memory taken, roughly: the arrays, and what Python's objects take for each state and frame."""
        automaton, rows, dense = self.tokens.automaton, self.tokens.rows, self.tokens.dense
        arrays = automaton.next_state.nbytes + rows.bits.nbytes + (dense.next_state.nbytes if dense else 0)
        return arrays + STATE_BYTES * (len(automaton) + len(automaton.frames) + automaton.nfa.states)

    def matcher(self) -> Matcher:
        """Return a new walk from the start."""
        return Matcher(self.tokens)

    def learned_rows(self) -> dict[bytes, bytes]:
        """Return the mask rows computed so far, by content digest."""
        return self.tokens.rows.learned()

    def add_rows(self, rows: dict[bytes, bytes]) -> None:
        """Take mask rows that another process computed for the same source and vocabulary."""
        self.tokens.rows.add(rows)

    def dump(self) -> bytes:
        """Return everything learnt as self-contained bytes."""
        header, arrays = capture(self.tokens)
        warnings = [[w.pointer, w.keyword, w.reason, w.hint, w.is_note] for w in self.warnings]
        return pack(header | {"warnings": warnings, "minimum_tokens": self.minimum_tokens}, arrays)

    @staticmethod
    def load(data: bytes, source: Source, vocabulary: Vocabulary) -> CompiledSchema:
        """Build from the bytes of `dump`, for the same source and vocabulary.

        Raises
        ------
        CorruptEntryError
            When the bytes are anything else.
        """
        header, arrays = unpack(data)
        try:
            tokens = restore(header, arrays, token_index(vocabulary))
            warnings = tuple(Finding(*fields) for fields in header["warnings"])
            return CompiledSchema(source, tokens, warnings, int(header["minimum_tokens"]))
        except _NOT_TABLES as error:
            raise CorruptEntryError(f"not the tables of a schema: {error}") from error


def compile_source(source: Source, vocabulary: Vocabulary, *, limits: Limits = DEFAULT_LIMITS) -> CompiledSchema:
    """Compile one source for one vocabulary; no cache.

    Raises
    ------
    SchemaError
        With all findings, when the source is malformed, cannot be enforced exactly, is satisfied by nothing that the
        vocabulary can spell, or breaks a limit.
    """
    deadline = Deadline(limits.compile_timeout_s)
    grammar, warnings = build_grammar(source, vocabulary)
    deadline.check("reading the schema")
    nfa = build_nfa(grammar, vocabulary.spellable_bytes)
    automaton = Automaton(nfa, build_alphabet(nfa, vocabulary.single_bytes), limits.max_states)
    if not automaton.satisfiable:
        raise UnsatisfiableSchemaError([Finding("#", "", "no document at all satisfies this")])
    _check_length(automaton.cost(START))
    deadline.check("building its automaton")
    tokens = TokenAutomaton(automaton, token_index(vocabulary))
    tokens.lift(limits.max_dense_entries)
    fewest = minimum_tokens(tokens)
    deadline.check("lifting it to tokens")
    return CompiledSchema(source, tokens, warnings, fewest)


def _check_length(shortest_bytes: int) -> None:
    if shortest_bytes > MAX_SHORTEST_BYTES:
        reason = f"the shortest document has {shortest_bytes} bytes, and the limit is {MAX_SHORTEST_BYTES}"
        raise SchemaTooComplexError([Finding("#", "", reason, "ask for shorter strings and fewer elements")])


class Deadline:
    """The moment at which compiling is given up; looked at between the stages, each of which has its own bounds."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s, self._start_s = timeout_s, time.monotonic()

    def check(self, stage: str) -> None:
        """Raise `CompileTimeoutError` when the time is over; `stage` is what has just been done."""
        taken_s = time.monotonic() - self._start_s
        if taken_s > self._timeout_s:
            reason = f"compiling took {taken_s:.1f} s up to {stage}, and the limit is {self._timeout_s:g} s"
            raise CompileTimeoutError([Finding("#", "", reason, "allow more time, or simplify the schema")])


def build_grammar(source: Source, vocabulary: Vocabulary) -> tuple[Grammar, tuple[Finding, ...]]:
    """Lower a source to a grammar over bytes, with warnings; raises `SchemaError`."""
    characters = vocabulary.characters
    if source.kind == "json_schema":
        return lower(source.content, source.options, characters)
    if source.kind == "json_object":
        return json_object_grammar(source.options, characters), ()
    if source.kind == "choice":
        return choice_grammar(list(source.content), characters), ()
    try:
        return Grammar("regex", {"regex": utf8(full_language(source.content), characters)}), ()
    except PatternError as error:
        raise SchemaError([Finding("#", "regex", str(error))]) from error


def compile_schema(
    schema: dict[str, Any] | bool,
    vocabulary: Vocabulary,
    *,
    strict: bool = True,
    whitespace: Whitespace = "spaced",
    additional_properties: AdditionalProperties = "closed",
    key_order: KeyOrder = "declared",
    limits: Limits = DEFAULT_LIMITS,
) -> CompiledSchema:
    """Compile a JSON Schema; see `SchemaOptions` for the options and `compile_source` for the errors."""
    options = SchemaOptions(strict, whitespace, additional_properties, key_order)
    return compile_source(schema_source(schema, options), vocabulary, limits=limits)


def compile_regex(pattern: str, vocabulary: Vocabulary, *, limits: Limits = DEFAULT_LIMITS) -> CompiledSchema:
    """Compile an ECMA-262 regular expression that the whole text must match; see `compile_source` for the errors."""
    return compile_source(regex_source(pattern), vocabulary, limits=limits)
