"""The pipeline in order: source, grammar, NFA, alphabet, lazy automaton, tokens.

In: a `Source` and a `Vocabulary`. Out: `CompiledSchema`, ready to give masks, or a `SchemaError` with every finding.
Cost: linear in the schema; states and mask rows come later, when they are visited, but for small finite automata on
small vocabularies, which are explored whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from schemas_cache.alphabet import build_alphabet
from schemas_cache.automaton import START, STATE_BYTES, Automaton
from schemas_cache.codec import Arrays, Bytes, CorruptEntryError, pack, unpack
from schemas_cache.errors import (
    Finding,
    PatternError,
    SchemaError,
    SchemaTooComplexError,
    UnsatisfiableSchemaError,
)
from schemas_cache.fewest_tokens import NO_WAY
from schemas_cache.grammar import Grammar
from schemas_cache.limits import DEFAULT_LIMITS, MAX_SHORTEST_BYTES, Limits
from schemas_cache.matcher import Matcher
from schemas_cache.pattern import full_language
from schemas_cache.schema import SchemaOptions, choice_grammar, json_object_grammar, lower
from schemas_cache.schema.options import AdditionalProperties, KeyOrder, Whitespace
from schemas_cache.shared_rows import SharedRows
from schemas_cache.snapshot import capture, restore, unite
from schemas_cache.source import Source, regex_source, schema_source
from schemas_cache.spelling import utf8
from schemas_cache.thompson import build_nfa
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import token_index
from schemas_cache.vocabulary import Vocabulary
from schemas_cache.work import Work, working

_NOT_TABLES = (LookupError, ValueError, TypeError, AttributeError, RuntimeError, StopIteration, SchemaError)


class CompiledSchema:
    """A source bound to a vocabulary. Learns while it is used; may be shared between threads.

    Attributes
    ----------
    source : Source
    tokens : TokenAutomaton
        States, transitions and mask rows.
    warnings : tuple of Finding
        What was dropped, with `strict=False`.
    """

    def __init__(
        self, source: Source, tokens: TokenAutomaton, warnings: tuple[Finding, ...], fewest_tokens: int | None = None
    ) -> None:
        self.source, self.tokens, self.warnings = source, tokens, warnings
        self._fewest_tokens = fewest_tokens

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
        """Grows whenever a state, a transition or what a token can see of a state is learnt."""
        automaton, rows = self.tokens.automaton, self.tokens.rows
        return len(automaton) + automaton.expansions + rows.described

    @property
    def size_bytes(self) -> int:
        """Memory taken, roughly: the arrays, and what Python's objects take for each state and frame."""
        automaton, rows, dense = self.tokens.automaton, self.tokens.rows, self.tokens.dense
        arrays = rows.bits.nbytes + (dense.next_state.nbytes if dense else 0)
        return arrays + automaton.size_bytes + STATE_BYTES * automaton.nfa.states

    @property
    def estimated_states(self) -> int:
        """About how many states the texts of the schema visit: places of its NFA, or those found by now; counts add."""
        return max(self.tokens.automaton.nfa.states, len(self.tokens.automaton))

    @property
    def minimum_tokens(self) -> int:
        """Tokens that a shortest document takes, the end token left out; worked out when it is first asked for."""
        if self._fewest_tokens is None:
            self._fewest_tokens = _minimum_tokens(self.tokens)
        return self._fewest_tokens

    def matcher(self) -> Matcher:
        """Return a new walk from the start."""
        return Matcher(self.tokens)

    @property
    def states(self) -> int:
        """How many states are known."""
        return len(self.tokens.automaton)

    @property
    def rows(self) -> int:
        """How many mask rows are known."""
        return self.tokens.rows.distinct

    @property
    def shared_rows(self) -> SharedRows:
        """Mask rows that this has in common with all schemas of its vocabulary; not in `size_bytes`."""
        return self.tokens.index.shared_rows

    @property
    def rows_computed(self) -> int:
        """How many mask rows were computed for these tables, and not found with `find_rows`."""
        return self.tokens.rows.computed_rows

    def computed_rows(self, since: int) -> dict[bytes, bytes]:
        """Return the packed mask rows that `rows_computed` counts, from the `since`th on, by content digest."""
        return self.tokens.rows.computed(since)

    def find_rows(self, find: Callable[[bytes], bytes | None]) -> None:
        """Have packed mask rows looked up by their digests before they are computed."""
        self.tokens.rows.stored = find

    def dump(self, *, with_rows: bool = True) -> bytes:
        """Return everything learnt as bytes: self-contained, or without the mask rows that `find_rows` can find."""
        fewest = self.minimum_tokens  # may learn states
        header, arrays = capture(self.tokens, with_rows=with_rows)
        warnings = [[w.pointer, w.keyword, w.reason, w.hint, w.is_note] for w in self.warnings]
        about = {"source": self.source.digest, "vocabulary": self.vocabulary.fingerprint}
        return pack(header | about | {"warnings": warnings, "minimum_tokens": fewest}, arrays)

    def unite(self, data: Bytes) -> None:
        """Learn what another process has learnt, from the bytes of its `dump`.

        Raises
        ------
        CorruptEntryError
            When the bytes are anything else, or of another source or vocabulary.
        """
        header, arrays = _unpack_tables(data, self.source, self.vocabulary)
        try:
            unite(self.tokens, header, arrays)
        except _NOT_TABLES as error:
            raise CorruptEntryError(f"not the tables of a schema: {error}") from error

    @staticmethod
    def load(data: Bytes, source: Source, vocabulary: Vocabulary, *, limits: Limits = DEFAULT_LIMITS) -> CompiledSchema:
        """Build from the bytes of `dump`, for the same source and vocabulary; `limits` are for what is learnt next.

        Raises
        ------
        CorruptEntryError
            When the bytes are anything else.
        """
        header, arrays = _unpack_tables(data, source, vocabulary)
        try:
            tokens = restore(header, arrays, token_index(vocabulary), limits)
            warnings = tuple(Finding(*fields) for fields in header["warnings"])
            return CompiledSchema(source, tokens, warnings, int(header["minimum_tokens"]))
        except _NOT_TABLES as error:
            raise CorruptEntryError(f"not the tables of a schema: {error}") from error


def _unpack_tables(data: Bytes, source: Source, vocabulary: Vocabulary) -> tuple[dict[str, Any], Arrays]:
    """Take dumped tables apart, or raise `CorruptEntryError` where they are of another source or vocabulary."""
    header, arrays = unpack(data)
    if (header.get("source"), header.get("vocabulary")) != (source.digest, vocabulary.fingerprint):
        raise CorruptEntryError("the tables of another schema or vocabulary")
    return header, arrays


def compile_source(source: Source, vocabulary: Vocabulary, *, limits: Limits = DEFAULT_LIMITS) -> CompiledSchema:
    """Compile one source for one vocabulary; no cache.

    Raises
    ------
    SchemaError
        With all findings, when the source is malformed, cannot be enforced exactly, is satisfied by nothing that the
        vocabulary can spell, or breaks a limit.
    """
    with working(Work(limits.max_work, limits.compile_timeout_s)) as work:
        compiled = _compile(source, vocabulary, limits)
        work.look()
        return compiled


def _compile(source: Source, vocabulary: Vocabulary, limits: Limits) -> CompiledSchema:
    grammar, warnings = build_grammar(source, vocabulary)
    nfa = build_nfa(grammar, vocabulary.spellable_bytes)
    automaton = Automaton(nfa, build_alphabet(nfa, vocabulary.single_bytes), limits)
    if not automaton.satisfiable:
        raise UnsatisfiableSchemaError([Finding("#", "", "no document at all satisfies this")])
    _check_length(automaton.cost(START))
    tokens = TokenAutomaton(automaton, token_index(vocabulary))
    tokens.lift(limits.max_dense_entries)
    fewest = _minimum_tokens(tokens) if vocabulary.has_holes else None  # without holes every document can be spelled
    return CompiledSchema(source, tokens, warnings, fewest)


def _minimum_tokens(tokens: TokenAutomaton) -> int:
    fewest = tokens.fewest.needed(START)
    if fewest >= NO_WAY:
        reason = "the vocabulary cannot spell any document that satisfies this"
        hint = "use a model whose tokens cover the characters of the schema"
        raise UnsatisfiableSchemaError([Finding("#", "", reason, hint)])
    return fewest


def _check_length(shortest_bytes: int) -> None:
    if shortest_bytes > MAX_SHORTEST_BYTES:
        reason = f"the shortest document has {shortest_bytes} bytes, and the limit is {MAX_SHORTEST_BYTES}"
        raise SchemaTooComplexError([Finding("#", "", reason, "ask for shorter strings and fewer elements")])


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
