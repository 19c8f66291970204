"""Objects: declared members in order, then open ones.

In: facets. Out: a text expression, braces included, linear in the number of members however many are optional. An
object is closed after merging: when no layer says what further names are and some layer has a property keyword.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.grammar import NEVER, Expr, Member, Never, concat, literal, mark, repeat
from schemas_cache.limits import MAX_NAME_NESTING
from schemas_cache.schema import free
from schemas_cache.schema.layout import Layout, layout
from schemas_cache.schema.merge import Facets
from schemas_cache.schema.names import names_other_than, nesting
from schemas_cache.schema.writing import Writing, owner_of
from schemas_cache.spelling import json_string, string_literal

QUOTE = literal('"')


def write_object(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Objects of these members."""
    if "object" not in facets.types:
        return NEVER
    if not facets.layers and not facets.required:
        return writing.free(free.OBJECT, owner_of(facets))
    around = layout(writing.options.whitespace, depth)
    names = list(dict.fromkeys([*(n for layer in facets.layers.values() for n in layer.properties), *facets.required]))
    members = [_property(writing, facets, name, around, depth) for name in names]
    return around.braced([*members, *_open_members(writing, facets, names, around, depth)])


def _property(writing: Writing, facets: Facets, name: str, around: Layout, depth: int) -> Member:
    """A declared or required name: every layer has its say, as a property or as an additional one."""
    node = [
        position
        for layer in facets.layers.values()
        if (position := layer.properties.get(name, layer.additional)) is not None
    ]
    value = writing.value(tuple(node), depth + 1, owner_of(facets))
    required = name in facets.required
    if required and isinstance(value, Never):
        writing.dead_end(
            facets.required[name], "required", f'the property "{name}" is required and cannot have a value'
        )
    text = concat(string_literal(name, writing.characters), around.colon, mark(name, value))
    return Member(text, required)


def _open_members(writing: Writing, facets: Facets, names: list[str], around: Layout, depth: int) -> Iterator[Member]:
    """Any number of further members, none of a declared name, where the object is open."""
    node = [layer.additional for layer in facets.layers.values() if layer.additional is not None]
    if not node and writing.options.additional_properties == "closed":
        return
    value = writing.value(tuple(node), depth + 1, owner_of(facets))
    if nesting(names) > MAX_NAME_NESTING:
        reason = f"more than {MAX_NAME_NESTING} declared names begin with each other, in an open object"
        raise SchemaTooComplexError([Finding(owner_of(facets), "properties", reason, "close the object")])
    key = concat(QUOTE, json_string(names_other_than(names), writing.characters), QUOTE)
    yield Member(repeat(concat(key, around.colon, value), 1, None, around.comma), required=False)
