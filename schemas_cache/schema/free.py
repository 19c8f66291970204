"""Free JSON: any value, array or object, as three rules that call each other.

In: the layout and the characters. Out: rules by name. Cost: constant. Keys may repeat, which JSON allows; the last one
counts, and all are free. Source: RFC 8259.
"""

from __future__ import annotations

from schemas_cache.grammar import Expr, Ref, alt, concat, literal, mark, repeat
from schemas_cache.schema import numbers, strings
from schemas_cache.schema.layout import Layout
from schemas_cache.schema.number_machine import spelled
from schemas_cache.schema.numbers import any_number
from schemas_cache.schema.strings import QUOTE
from schemas_cache.spelling import Characters, free_string

VALUE, ARRAY, OBJECT = Ref("json.value"), Ref("json.array"), Ref("json.object")
NUMBER, STRING = Ref(numbers.FREE), Ref(strings.FREE)


def free_rules(layout: Layout, characters: Characters) -> dict[str, Expr]:
    """The rules behind `VALUE`, `ARRAY` and `OBJECT`; the layout may not depend on the depth."""
    scalars = (literal("null"), literal("true"), literal("false"), NUMBER, STRING)
    elements = repeat(mark(None, VALUE), 1, None, layout.comma)
    members = repeat(concat(STRING, layout.colon, VALUE), 1, None, layout.comma)
    return {
        NUMBER.rule: any_number(spelled(characters)),
        STRING.rule: concat(QUOTE, free_string(0, None, characters), QUOTE),
        VALUE.rule: alt(*scalars, ARRAY, OBJECT),
        ARRAY.rule: layout.bracketed("[]", elements, may_be_empty=True),
        OBJECT.rule: layout.bracketed("{}", members, may_be_empty=True),
    }
