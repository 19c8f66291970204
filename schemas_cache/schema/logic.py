"""Complements: `not`, and `if` with `then` and `else`, as subschemas that say what is allowed.

In: subschemas by position. Out: the same, with `^not` and `^if` beside `not` and `if`, and with derived positions for
all complements that those need; `Complements.of` gives more of them later, where `oneOf` asks. Merging knows the `^`
words and no negation. Cost: linear in the negated subschemas: a complement is made once, its children are references.

A subschema is a conjunction of keywords, so its complement is an alternation of `complements` of keywords, each with
the type that the keyword is about: not `{minimum: 5}` is a number below 5. `if` is `anyOf` of [if and then] and [not if
and else]. Objects and arrays take part: not `{properties: {a: S}}` is an object with an `a` that is not S, not
`{items: S}` has an element that is not S. What has no such complement (`uniqueItems`, ...) is refused by name.

Rejected: one complement per place of use (a recursive subschema has no end then), and subtracting grammars
(context-free languages are not closed under it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from schemas_cache.errors import Finding
from schemas_cache.schema.complements import COMPLEMENTS, NoComplementError
from schemas_cache.schema.loops import has_loop_in_place
from schemas_cache.schema.nodes import ANYTHING, COMPLEMENT, NOTHING, UNEVALUATED
from schemas_cache.schema.reading import Keywords


@dataclass(slots=True)
class Complements:
    """Subschemas by position, and a growing number of derived ones.

    Attributes
    ----------
    schemas : dict
        By position; grows. A derived position has a `^` in its name.
    refused : dict
        What has no complement, and why.
    """

    schemas: dict[str, Keywords | bool]
    refused: dict[str, NoComplementError] = field(default_factory=dict)
    made: dict[str, Keywords | bool] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    has_loop: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_loop = has_loop_in_place(self.schemas)
        self.schemas |= {NOTHING: False, ANYTHING: True}

    def of(self, pointer: str) -> str:
        """The position of the complement.

        Raises
        ------
        NoComplementError
            When there is none, or only one that has no end.
        """
        if pointer in self.refused:
            raise self.refused[pointer]
        self.made.clear()
        name = self.no(pointer)
        try:
            while self.pending:
                self._make(self.pending.pop())
        except NoComplementError as error:
            self.pending.clear()
            self.refused[pointer] = error
            raise
        self.schemas |= self.made
        return name

    def no(self, pointer: str) -> str:
        """The name of a complement, made later where it is new."""
        schema = self._at(pointer)
        if isinstance(schema, bool) or not schema:
            return NOTHING if schema is not False else ANYTHING
        name = pointer + COMPLEMENT
        if name not in self.schemas and name not in self.made:
            self.made[name] = True
            self.pending.append(pointer)
        return name

    def put(self, name: str, schema: Keywords | bool) -> str:
        """A derived position with these keywords."""
        self.made[name] = schema
        return name

    def either(self, name: str, choices: list[Keywords]) -> Keywords | bool:
        """One of these."""
        if len(choices) < 2:
            return choices[0] if choices else False
        return {"anyOf": [self.put(f"{name}^{i}", choice) for i, choice in enumerate(choices)]}

    def number(self) -> int:
        """One that no name has yet."""
        return next(self.numbers)

    def _at(self, pointer: str) -> Keywords | bool:
        return self.made[pointer] if pointer in self.made else self.schemas[pointer]

    def _make(self, pointer: str) -> None:
        schema = self._at(pointer)
        keywords = schema if isinstance(schema, dict) else {}
        if self.has_loop:
            raise NoComplementError(pointer, "", "some subschema of the document leads back to itself in place")
        choices: list[Keywords] = []
        for keyword, value in keywords.items():
            if keyword not in COMPLEMENTS:
                raise NoComplementError(pointer, keyword)
            try:
                choices += COMPLEMENTS[keyword](self, value, keywords)
            except NoComplementError as error:
                raise NoComplementError(pointer, keyword, error.reason) from error
        self.made[pointer + COMPLEMENT] = self.either(pointer + COMPLEMENT, choices)


def rewrite(schemas: dict[str, Keywords | bool]) -> Complements:
    """Add to every `not` and `if` what merging understands; `schemas` itself is left alone."""
    complements = Complements(dict(schemas))
    needed = {"then", "else"}
    if any(isinstance(schema, dict) and not UNEVALUATED.isdisjoint(schema) for schema in schemas.values()):
        needed.add("if")  # one that stands alone evaluates
    for pointer, schema in schemas.items():
        if isinstance(schema, dict):
            matters = "if" in schema and not needed.isdisjoint(schema)
            rewritten = _rewritten(complements, pointer, schema, {"not"} | ({"if"} if matters else set()))
            complements.schemas[pointer] = schema | rewritten
    return complements


def _rewritten(complements: Complements, pointer: str, schema: Keywords, words: set[str]) -> Keywords:
    rewritten: Keywords = {}
    for keyword in sorted(schema.keys() & words):
        try:
            otherwise = complements.of(schema[keyword])
        except NoComplementError as error:
            hint = "list what is allowed" if keyword == "not" else "write anyOf, with the condition in each branch"
            finding = Finding(pointer, keyword, f'"{keyword}" cannot be enforced: {error}', hint)
            rewritten["^refused"] = [*rewritten.get("^refused", ()), finding]
            continue
        if keyword == "not":
            rewritten["^not"] = otherwise
        else:
            rewritten["^if"] = [
                (schema["if"], *([schema["then"]] if "then" in schema else ())),
                (otherwise, *([schema["else"]] if "else" in schema else ())),
            ]
    return rewritten
