"""Names of open keys: every string but the declared names.

In: the declared names. Out: a value-level expression of all other strings, whatever their spelling will be. Cost:
nearly linear in the characters of the names: a common prefix is walked once, and the ways to leave a run of characters
are halved, so that the expression nests no deeper than names branch.

Rejected: one trie node per character (nests as deep as the longest name is long).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from schemas_cache.code_points import ANY, complement
from schemas_cache.grammar import EMPTY, NEVER, CharClass, Expr, alt, char_class, concat, repeat

ANY_TEXT = repeat(CharClass(ANY), 0, None)


def names_other_than(names: Iterable[str]) -> Expr:
    """All strings that are none of `names`."""
    return _other(sorted(set(names)))


def names_among(names: Iterable[str]) -> Expr:
    """These strings and no others."""
    return alt(*map(_text, names))


def nesting(names: Iterable[str]) -> int:
    """How many of the names begin with each other, at most: as deep the expression nests, but for a logarithm."""
    deepest, path = 0, list[str]()
    for name in sorted(set(names)):
        while path and not name.startswith(path[-1]):
            path.pop()
        path.append(name)
        deepest = max(deepest, len(path))
    return deepest


def _other(names: list[str]) -> Expr:
    choices: list[Expr] = [NEVER if "" in names else EMPTY]
    groups = {first: list(group) for first, group in groupby(filter(None, names), lambda name: name[0])}
    choices.append(_escaping(groups))
    for group in groups.values():
        prefix = _common_prefix(group[0], group[-1])
        choices.append(concat(_text(prefix[0]), _leaving(prefix[1:])))
        choices.append(concat(_text(prefix), _other([name[len(prefix) :] for name in group])))
    return alt(*choices)


def _leaving(text: str) -> Expr:
    """All strings that do not begin with `text`."""
    if len(text) < 2:
        return alt(EMPTY, _escaping(text)) if text else NEVER
    half = len(text) // 2
    return alt(_leaving(text[:half]), concat(_text(text[:half]), _leaving(text[half:])))


def _escaping(characters: Iterable[str]) -> Expr:
    """All strings that begin with none of these characters, but the empty one."""
    return concat(char_class(complement((ord(char), ord(char)) for char in characters)), ANY_TEXT)


def _common_prefix(first: str, last: str) -> str:
    """The common prefix of all names between two in sorted order."""
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:shared]


def _text(text: str) -> Expr:
    return concat(*(char_class([(ord(char), ord(char))]) for char in text))
