"""A choice of texts: a grammar without a schema. Cost: linear in the texts."""

from __future__ import annotations

from collections.abc import Sequence

from schemas_cache.errors import Finding, SchemaError, SchemaTooComplexError, UnsatisfiableSchemaError
from schemas_cache.grammar import Grammar, Never, alt, char_class, concat
from schemas_cache.limits import MAX_ENUM_VALUES
from schemas_cache.spelling import Characters, utf8


def choice_grammar(choices: Sequence[str], characters: Characters) -> Grammar:
    """One of these texts as it is, without quotes or escapes.

    Raises
    ------
    SchemaError
        For a choice that is empty or no string, or none at all.
    UnsatisfiableSchemaError
        When the vocabulary can spell none of them.
    """
    if len(choices) > MAX_ENUM_VALUES:
        reason = f"there are {len(choices)} choices, the limit is {MAX_ENUM_VALUES}"
        raise SchemaTooComplexError([Finding("#", "", reason)])
    findings = [Finding(f"#/{i}", "", reason) for i, choice in enumerate(choices) if (reason := _fault(choice))]
    if not choices:
        findings = [Finding("#", "", "expected one choice at least")]
    if findings:
        raise SchemaError(findings)
    rule = alt(*(concat(*(utf8(char_class([(ord(c), ord(c))]), characters) for c in text)) for text in choices))
    if isinstance(rule, Never):
        raise UnsatisfiableSchemaError([Finding("#", "", "the vocabulary lacks characters of every choice")])
    return Grammar("#", {"#": rule})


def _fault(choice: object) -> str:
    if not isinstance(choice, str):
        return f"expected a string, found a {type(choice).__name__}"
    if not choice:
        return "an empty choice leaves nothing to generate"
    alone = any("\ud800" <= character <= "\udfff" for character in choice)
    return "half of a surrogate pair, which no UTF-8 text can hold" if alone else ""
