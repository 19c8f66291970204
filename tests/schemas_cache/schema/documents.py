"""Shared by the tests of the front end: is a text in the language of a schema, by the slow referee."""

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

from schemas_cache.grammar import Grammar
from schemas_cache.schema import SchemaOptions, lower
from tests.schemas_cache.reference_matcher import matches

OPEN = SchemaOptions(additional_properties="open")


def accepts(grammar: Grammar, text: str) -> bool:
    """Whether the grammar's start rule matches the whole text."""
    return matches(grammar.rules[grammar.start], text.encode(), grammar.rules)


def grammar(schema: Any, options: SchemaOptions = OPEN) -> Grammar:
    """The grammar of a schema for a vocabulary that can spell everything."""
    return lower(schema, options, None)[0]


def orders(value: Any) -> Iterator[Any]:
    """The same value with the keys of all its objects in every order."""
    if isinstance(value, list):
        yield from map(list, product(*(list(orders(element)) for element in value)))
    elif isinstance(value, dict):
        for keys in permutations(value):
            for members in product(*(list(orders(value[key])) for key in keys)):
                yield dict(zip(keys, members, strict=True))
    else:
        yield value
