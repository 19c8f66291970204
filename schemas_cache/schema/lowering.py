"""Writes subschemas as grammar rules.

In: the subschemas by position (`Reading`) and the options. Out: `Grammar`, and what could not be written, as findings.
Cost: linear in the schema, times the alternatives where `anyOf`s meet.

A referenced subschema is a rule, named by its position, and never written twice; so is every subschema that others are
merged into, and every conjunction that merging gives rise to, named by all of its positions. Since both are finite,
recursion needs no guard. Under `pretty` a rule also depends on its indentation, and there recursion is refused.

An object is closed after merging: when no layer says what further names are and some layer has a property keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from schemas_cache.errors import Finding, PatternError, SchemaTooComplexError
from schemas_cache.grammar import NEVER, Expr, Grammar, Member, Never, Ref, alt, concat, literal, mark, repeat
from schemas_cache.limits import LEVELS_PER_RULE, MAX_INDENTATION, MAX_MERGED, MAX_NAME_NESTING, MAX_RULES
from schemas_cache.pattern import search_language
from schemas_cache.schema import free
from schemas_cache.schema.layout import Layout, layout
from schemas_cache.schema.merge import Facets, Node, Schemas, alternatives, simplify
from schemas_cache.schema.names import names_other_than, nesting
from schemas_cache.schema.numbers import NUMBER, integer_range, integers
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.schema.values import Judge, value_text
from schemas_cache.spelling import Characters, free_string, json_string, string_literal

QUOTE = literal('"')


@dataclass
class Lowering:
    """One schema on its way to a grammar.

    Attributes
    ----------
    findings : dict of Finding
        What cannot be enforced, each once: errors under `strict`, otherwise what was dropped.
    faults : dict of Finding
        What cannot be written at all, whatever `strict` says.
    dead_ends : dict of Finding
        Subschemas that no value satisfies; a reason to report if that makes the whole schema impossible.
    """

    schemas: Schemas
    options: SchemaOptions
    characters: Characters
    findings: dict[Finding, None] = field(default_factory=dict)
    faults: dict[Finding, None] = field(default_factory=dict)
    dead_ends: dict[Finding, None] = field(default_factory=dict)
    rules: dict[str, Expr] = field(default_factory=dict)
    pending: list[tuple[str, Node, int]] = field(default_factory=list)
    level: int = 0
    merged: int = 0

    def grammar(self) -> Grammar:
        """All rules, from the root on."""
        root = simplify(("#",), self.schemas)
        start = self._rule(root, 0) if root else self._free(free.VALUE, "#")
        while self.pending:
            name, node, depth = self.pending.pop()
            self.level = 0
            self.rules[name] = self._write(node, depth)
        return Grammar(start.rule, self.rules)

    def _rule(self, node: Node, depth: int) -> Ref:
        """A reference to the rule of a node, which is written later if it is new."""
        name = " & ".join(node) + (f" @{depth}" if self._is_pretty and depth else "")
        if name not in self.rules:
            if len(self.rules) >= MAX_RULES:
                reason = f"the schema needs more than {MAX_RULES} grammar rules"
                raise SchemaTooComplexError([Finding(node[0], "", reason, "split the schema into smaller ones")])
            self.rules[name] = NEVER
            self.pending.append((name, node, depth))
        return Ref(name)

    def _value(self, node: Node, depth: int, owner: str) -> Expr:
        """A value that satisfies all of `node`, inside `depth` brackets; `owner` is where to report that it is free."""
        simple = simplify(node, self.schemas)
        if not simple:
            return self._free(free.VALUE, node[0] if node else owner)
        if any(self.schemas[pointer] is False for pointer in simple):
            return NEVER
        if self._is_pretty and depth > MAX_INDENTATION:
            reason = f"under pretty a document can nest {MAX_INDENTATION} levels at most, and here it may nest deeper"
            self.faults[Finding(simple[0], "", reason, "choose another whitespace mode")] = None
            return NEVER
        if simple != node or self._is_merged(simple) or self.level >= LEVELS_PER_RULE:
            return self._rule(simple, depth)
        return self._write(simple, depth)

    def _is_merged(self, node: Node) -> bool:
        """Whether other subschemas come in, whose children are not this one's: only rules keep those finite."""
        schema = self.schemas[node[0]]
        return len(node) > 1 or (
            isinstance(schema, dict) and ("$ref" in schema or ("anyOf" in schema and len(schema) > 1))
        )

    def _write(self, node: Node, depth: int) -> Expr:
        """The alternatives of a node; branches of an `anyOf` that stands alone need no merging."""
        self.level += 1
        only = self.schemas[node[0]]
        if len(node) == 1 and isinstance(only, dict) and only.keys() == {"anyOf"}:
            written = alt(*(self._value((branch,), depth, branch) for branch in only["anyOf"]))
        else:
            written = alt(*(self._facets(facets, depth) for facets in self._alternatives(node)))
        self.level -= 1
        if isinstance(written, Never):
            self.dead_ends.setdefault(Finding(node[0], "", "no value satisfies all that is asked for here"))
        return written

    def _alternatives(self, node: Node) -> Iterator[Facets]:
        for i, facets in enumerate(alternatives(node, self.schemas)):
            self.merged += 1 if i or len(node) > 1 else 0
            if self.merged > MAX_MERGED:
                reason = f"references and anyOf meet in more than {MAX_MERGED} combinations"
                raise SchemaTooComplexError([Finding(node[0], "", reason, "give fewer of them neighbours")])
            yield facets

    def _facets(self, facets: Facets, depth: int) -> Expr:
        if facets.enumerations:
            return self._enumeration(facets, depth)
        return alt(*(write(self, facets, depth) for write in _WRITERS))

    def _enumeration(self, facets: Facets, depth: int) -> Expr:
        listed = facets.enumerations[0]
        try:
            values = self._judge.allowed(facets)
        except ValueError as error:
            reason = f"the listed values cannot be checked by the keywords beside them: {error}"
            self.faults[Finding(listed.pointer, listed.keyword, reason)] = None
            return NEVER
        if not values:
            self._dead_end(listed.pointer, listed.keyword, "none of the values satisfies the other keywords")
        return alt(*(value_text(value, depth, self.options.whitespace, self.characters) for value in values))

    def _null(self, facets: Facets, depth: int) -> Expr:
        del depth
        return literal("null") if "null" in facets.types else NEVER

    def _boolean(self, facets: Facets, depth: int) -> Expr:
        del depth
        return alt(literal("true"), literal("false")) if "boolean" in facets.types else NEVER

    def _number(self, facets: Facets, depth: int) -> Expr:
        del depth
        if "fraction" in facets.types:
            for bound in facets.bounds:
                reason = f'"{bound.keyword}" cannot be enforced on numbers with fractions yet'
                self.findings[Finding(bound.pointer, bound.keyword, reason, 'write "type": "integer"')] = None
            return NUMBER
        if "integer" not in facets.types:
            return NEVER
        low, high = integer_range(facets.bounds)
        if low is not None and high is not None and low > high:
            bound = facets.bounds[0]
            self._dead_end(bound.pointer, bound.keyword, f"no integer is at least {low} and at most {high}")
        return integers(low, high)

    def _string(self, facets: Facets, depth: int) -> Expr:
        del depth
        if "string" not in facets.types:
            return NEVER
        if facets.patterns:
            return concat(QUOTE, self._pattern(facets), QUOTE)
        low, high = facets.min_length, facets.max_length
        if high is not None and low > high:
            pointer, keyword = facets.lengths_at[-1]
            self._dead_end(pointer, keyword, f"no string has at least {low} and at most {high} characters")
        return concat(QUOTE, free_string(low, high, self.characters), QUOTE)

    def _pattern(self, facets: Facets) -> Expr:
        (pattern, pointer), *others = facets.patterns.items()
        for _, other in others:
            reason = f"a second pattern for the same value, beside {pointer}/pattern, cannot be enforced yet"
            self.findings[Finding(other, "pattern", reason, "write both as one pattern")] = None
        for at, keyword in facets.lengths_at:
            reason = f'"{keyword}" together with "pattern" cannot be enforced yet'
            self.findings[Finding(at, keyword, reason, "put the length into the pattern: ^.{2,4}$")] = None
        try:
            return json_string(search_language(pattern), self.characters)
        except PatternError as error:
            reason = f'{error.reason}: "{error.construct}" at character {error.position}'
            self.findings[Finding(pointer, "pattern", reason, error.hint)] = None
            return free_string(0, None, self.characters)

    def _array(self, facets: Facets, depth: int) -> Expr:
        if "array" not in facets.types:
            return NEVER
        low, high, owner = facets.min_items, facets.max_items, _owner(facets)
        if not facets.items and low == 0 and high is None:
            return self._free(free.ARRAY, owner)
        if high is not None and low > high:
            self._dead_end(owner, "maxItems", f"no array has at least {low} and at most {high} elements")
            return NEVER
        around = layout(self.options.whitespace, depth)
        element = NEVER if high == 0 else mark(None, self._value(tuple(facets.items), depth + 1, owner))
        elements = repeat(element, max(low, 1), high, around.comma)
        return around.bracketed("[]", elements, may_be_empty=low == 0)

    def _object(self, facets: Facets, depth: int) -> Expr:
        if "object" not in facets.types:
            return NEVER
        if not facets.layers and not facets.required:
            return self._free(free.OBJECT, _owner(facets))
        around = layout(self.options.whitespace, depth)
        names = list(
            dict.fromkeys([*(n for layer in facets.layers.values() for n in layer.properties), *facets.required])
        )
        members = [self._property(facets, name, around, depth) for name in names]
        return around.braced([*members, *self._open_members(facets, names, around, depth)])

    def _property(self, facets: Facets, name: str, around: Layout, depth: int) -> Member:
        """A declared or required name: every layer has its say, as a property or as an additional one."""
        node = [
            position
            for layer in facets.layers.values()
            if (position := layer.properties.get(name, layer.additional)) is not None
        ]
        value = self._value(tuple(node), depth + 1, _owner(facets))
        required = name in facets.required
        if required and isinstance(value, Never):
            self._dead_end(
                facets.required[name], "required", f'the property "{name}" is required and cannot have a value'
            )
        text = concat(string_literal(name, self.characters), around.colon, mark(name, value))
        return Member(text, required)

    def _open_members(self, facets: Facets, names: list[str], around: Layout, depth: int) -> Iterator[Member]:
        """Any number of further members, none of a declared name, where the object is open."""
        node = [layer.additional for layer in facets.layers.values() if layer.additional is not None]
        if not node and self.options.additional_properties == "closed":
            return
        value = self._value(tuple(node), depth + 1, _owner(facets))
        if nesting(names) > MAX_NAME_NESTING:
            reason = f"more than {MAX_NAME_NESTING} declared names begin with each other, in an open object"
            raise SchemaTooComplexError([Finding(_owner(facets), "properties", reason, "close the object")])
        key = concat(QUOTE, json_string(names_other_than(names), self.characters), QUOTE)
        yield Member(repeat(concat(key, around.colon, value), 1, None, around.comma), required=False)

    def _free(self, rule: Ref, pointer: str) -> Ref:
        if self._is_pretty:
            reason = "free JSON has no bound on its nesting, which pretty needs"
            self.faults[Finding(pointer, "", reason, "say what the value is, or choose another whitespace mode")] = None
        elif rule.rule not in self.rules:
            self.rules |= free.free_rules(layout(self.options.whitespace, 0), self.characters)
        return rule

    def _dead_end(self, pointer: str, keyword: str, reason: str) -> None:
        self.dead_ends[Finding(pointer, keyword, reason)] = None

    @property
    def _is_pretty(self) -> bool:
        return self.options.whitespace == "pretty"

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.schemas)


Writer = Callable[[Lowering, Facets, int], Expr]
_WRITERS: tuple[Writer, ...] = (
    Lowering._null,
    Lowering._boolean,
    Lowering._number,
    Lowering._string,
    Lowering._array,
    Lowering._object,
)


def _owner(facets: Facets) -> str:
    return facets.members[0] if facets.members else "#"
