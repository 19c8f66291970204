"""Which keys an object may have, and what the value of each has to satisfy.

In: facets. Out: `ObjectKeys`: declared names, keys of finite languages one by one, and languages of open keys, each
with the `Node` of its value. Cost: linear in the names, and the products of `keys` for `patternProperties` and
`propertyNames`. Everything is decided over values, so that no open key is a declared name, in whatever spelling.

An object is closed after merging: when no layer says what further names are and some layer has a property keyword.
Subschemas that hold because of a `not` or an `if` alone never close it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas_cache.errors import Finding, PatternError, SchemaTooComplexError
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.machines import MachineTooLargeError, any_text, intersect, unite
from schemas_cache.schema.evaluated import value_node
from schemas_cache.schema.facets import Facets, Layer
from schemas_cache.schema.key_schemas import schema_keys
from schemas_cache.schema.keys import TooManyKindsError, kinds, listed, without
from schemas_cache.schema.nodes import ANYTHING, Node
from schemas_cache.schema.strings import pattern_machine, restricted
from schemas_cache.schema.writing import Writing, note_pattern, owner_of

HINT = "declare the names as properties"
_TOO_LARGE = (MachineTooLargeError, TooManyKindsError)


@dataclass(frozen=True, slots=True, eq=False)
class OpenKeys:
    """Any key of a language: all `but` some, where it is no more than that, or else an automaton."""

    node: Node
    language: FiniteAutomaton | None
    but: tuple[str, ...] = ()

    @property
    def keys(self) -> FiniteAutomaton:
        """The language as an automaton; raises `MachineTooLargeError`."""
        return without(any_text(), self.but) if self.language is None else self.language


@dataclass(frozen=True, slots=True, eq=False)
class ObjectKeys:
    """Keys by kind; a declared name without a node can have no value."""

    declared: dict[str, Node | None]
    listed: dict[str, Node]
    open: list[OpenKeys]


def object_keys(writing: Writing, facets: Facets) -> ObjectKeys:
    """Tell the keys of an object apart; what cannot be enforced is noted and left out.

    Raises
    ------
    SchemaTooComplexError
        When an open object has too many declared names.
    """
    allowed = _allowed_keys(writing, facets)
    facets, patterns = _readable_patterns(writing, facets)
    try:
        return _Teller(writing, facets, patterns, allowed).keys()
    except _TOO_LARGE as error:
        reason = f"further keys cannot be told from the declared ones: {error}"
        if not patterns and allowed is None:
            raise SchemaTooComplexError(
                [Finding(owner_of(facets), "properties", reason, "close the object")]
            ) from error
        keyword = "patternProperties" if patterns else "propertyNames"
        writing.cannot(Finding(owner_of(facets), keyword, reason, HINT, is_limit=True))
        weaker = _without_patterns(facets, patterns)
        weaker.key_schemas = {}
        return object_keys(writing, weaker)


def _allowed_keys(writing: Writing, facets: Facets) -> FiniteAutomaton | None:
    """What `propertyNames` leaves; None: every string."""
    if not facets.key_schemas:
        return None
    try:
        return schema_keys(writing, tuple(facets.key_schemas))
    except MachineTooLargeError as error:
        pointer = next(iter(facets.key_schemas.values()))
        reason = f"the names cannot be told apart: {error}"
        writing.cannot(Finding(pointer, "propertyNames", reason, HINT, is_limit=True))
        return None


def _readable_patterns(writing: Writing, facets: Facets) -> tuple[Facets, dict[str, FiniteAutomaton]]:
    """The keys of every pattern; patterns without any are noted and left out."""
    found: dict[str, FiniteAutomaton] = {}
    broken: set[str] = set()
    for pointer, layer in facets.layers.items():
        for pattern in layer.patterns:
            try:
                found[pattern] = pattern_machine(pattern)
            except PatternError as error:
                note_pattern(writing, error, pointer, "patternProperties", f' of "{pattern}"')
                broken.add(pattern)
            except MachineTooLargeError as error:
                reason = f'the pattern "{pattern}": {error}'
                writing.cannot(Finding(pointer, "patternProperties", reason, HINT, is_limit=True))
                broken.add(pattern)
    return (_without_patterns(facets, broken) if broken else facets), found


def _without_patterns(facets: Facets, broken: Iterable[str]) -> Facets:
    """Facets that say nothing of the names that these patterns match, nor of those that they do not match."""
    weaker = facets.fork()
    weaker.unevaluated_properties = {}
    for pointer, layer in facets.layers.items():
        if not layer.patterns.keys().isdisjoint(broken):
            kept = {pattern: position for pattern, position in layer.patterns.items() if pattern not in broken}
            weaker.layers[pointer] = Layer(layer.properties, kept, ANYTHING)
    return weaker


@dataclass(frozen=True, slots=True)
class _Teller:
    """Tells keys apart, with the keys of every pattern and those that `propertyNames` allows (None: all)."""

    writing: Writing
    facets: Facets
    patterns: dict[str, FiniteAutomaton]
    allowed: FiniteAutomaton | None

    def keys(self) -> ObjectKeys:
        facets = self.facets
        layered = [name for layer in facets.layers.values() for name in layer.properties]
        declared = {name: self._declared(name) for name in dict.fromkeys([*layered, *facets.required])}
        others = [*declared, *facets.forbidden]
        if not self.patterns and self.allowed is None and self.writing.characters is None:
            node = self._open_node(frozenset())
            return ObjectKeys(declared, {}, [] if node is None else [OpenKeys(node, None, tuple(others))])
        languages: dict[Node, FiniteAutomaton] = {}
        for kind in kinds(tuple(self.patterns)):
            node = self._open_node(kind.matched)
            if node is not None:
                languages[node] = unite(languages[node], kind.keys) if node in languages else kind.keys
        languages = {node: self._possible(keys, others) for node, keys in languages.items()}
        finite = {node: names for node, keys in languages.items() if (names := listed(keys)) is not None}
        return ObjectKeys(
            declared,
            {name: node for node, names in finite.items() for name in names},
            [OpenKeys(node, keys) for node, keys in languages.items() if node not in finite],
        )

    def _declared(self, name: str) -> Node | None:
        """What a declared or required name has to satisfy; None: it cannot be there."""
        text = name.encode()
        if name in self.facets.forbidden or (self.allowed is not None and not self.allowed.accepts(text)):
            return None
        matched = frozenset(pattern for pattern, keys in self.patterns.items() if keys.accepts(text))
        return value_node(self.facets, self.writing.schemas, name, matched)

    def _open_node(self, matched: frozenset[str]) -> Node | None:
        """What keys that match these patterns have to satisfy; None: there are none."""
        node = value_node(self.facets, self.writing.schemas, None, matched)
        if any(self.writing.schemas[pointer] is False for pointer in node):
            return None
        return node if node or self._is_open() else None

    def _is_open(self) -> bool:
        """Whether keys that nobody speaks of are allowed."""
        facets = self.facets
        closing = [pointer for pointer in facets.layers if pointer not in facets.conditions]
        closing += [pointer for pointer in facets.required.values() if pointer not in facets.conditions]
        return self.writing.options.additional_properties == "open" or not closing

    def _possible(self, keys: FiniteAutomaton, others: list[str]) -> FiniteAutomaton:
        """Keys that are allowed, can be spelled and are none of `others`."""
        keys = keys if self.allowed is None else intersect(keys, self.allowed)
        return without(restricted(keys, self.writing.characters), others)
