"""Cuts out of a grammar what can never be finished: rules without a finite text, and bytes that cannot be spelled.

In: a grammar, and the characters that the vocabulary has (None: all). Out: a grammar in which every rule matches some
text; the start rule alone may be `NEVER`. Cost: linear in the grammar; a rule is looked at again once for each rule
that it waits for.

Only ASCII is judged here: a byte below 0x80 is a character by itself. Other characters are `spelling`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from schemas_cache.grammar import (
    NEVER,
    Alt,
    ByteClass,
    Concat,
    Expr,
    Grammar,
    Joined,
    Literal,
    Mark,
    Never,
    Picks,
    Ref,
    Repeat,
    alt,
    byte_class,
    concat,
    joined,
    mark,
    picks,
    repeat,
)
from schemas_cache.spelling import Characters
from schemas_cache.work import spend

_ASCII_END = 0x80


def prune(grammar: Grammar, characters: Characters) -> Grammar:
    """The same texts, as far as they can be spelled, without rules that have none or are not used."""
    rules = grammar.rules
    if characters is not None:
        lacking = frozenset(code for code in range(_ASCII_END) if chr(code) not in characters)
        rules = {name: rebuild(rule, lambda leaf: _spellable(leaf, lacking)) for name, rule in rules.items()}
    uses = {name: references(rule) for name, rule in rules.items()}
    alive = productive(rules, uses)
    if len(alive) < len(rules):
        rules = {name: _without_dead(rules[name], uses[name], alive) for name in rules if name in alive}
        uses = {name: references(rule) for name, rule in rules.items()}
    if grammar.start not in rules:
        return Grammar(grammar.start, {grammar.start: NEVER})
    return Grammar(grammar.start, _used(grammar.start, rules, uses), grammar.common)


def productive(rules: Mapping[str, Expr], uses: Mapping[str, AbstractSet[str]]) -> frozenset[str]:
    """Names of the rules that match some text: the least set that is closed under its own rules."""
    waiting: dict[str, list[str]] = {name: [] for name in rules}
    for name, used_by_it in uses.items():
        for used in used_by_it:
            waiting[used].append(name)
    alive: set[str] = set()
    pending = list(rules)
    while pending:  # in rounds, so that a rule that uses many is looked at once for all that a round has found alive
        found = []
        for name in pending:
            spend(1 + len(uses[name]))
            if name not in alive and _matches_something(rules[name], alive):
                alive.add(name)
                found.append(name)
        pending = list(dict.fromkeys(user for name in found for user in waiting[name] if user not in alive))
    return frozenset(alive)


def references(expr: Expr) -> set[str]:
    """Names of the rules that an expression uses."""
    found: set[str] = set()
    todo: list[Expr] = [expr]
    while todo:
        part = todo.pop()
        match part:
            case Literal():
                pass
            case Ref(rule):
                found.add(rule)
            case Concat(parts) | Alt(parts):
                todo += parts
            case Repeat() | Mark():
                todo.append(part.body)
            case Joined(members) | Picks(members):
                todo += (member.body for member in members)
                todo.append(part.more)
            case _:
                pass
    return found


def _without_dead(rule: Expr, uses: AbstractSet[str], alive: frozenset[str]) -> Expr:
    """A rule without references to rules that match nothing."""
    return rule if uses <= alive else rebuild(rule, lambda leaf: _living(leaf, alive))


def rebuild(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """The same expression with every leaf replaced."""
    match expr:
        case Concat(parts):
            return concat(*(rebuild(part, leaf) for part in parts))
        case Alt(choices):
            return alt(*(rebuild(choice, leaf) for choice in choices))
        case Repeat(body, minimum, maximum, separator, free_text):
            inside, between = rebuild(body, leaf), rebuild(separator, leaf)
            most = maximum if not isinstance(between, Never) else 1
            between = separator if isinstance(between, Never) else between
            return repeat(inside, minimum, most, between, free_text=free_text)
        case Joined() | Picks():
            build = joined if isinstance(expr, Joined) else picks
            rebuilt = [replace(member, body=rebuild(member.body, leaf)) for member in expr.members]
            between, more = rebuild(expr.separator, leaf), rebuild(expr.more, leaf)
            if isinstance(between, Never):  # nothing can stand between two members
                most = 1 if expr.maximum is None else min(expr.maximum, 1)
                return build(rebuilt, expr.separator, more, expr.minimum, most)
            return build(rebuilt, between, more, expr.minimum, expr.maximum)
        case Mark(segment, body):
            return mark(segment, rebuild(body, leaf))
        case _:
            return leaf(expr)


def _matches_something(expr: Expr, alive: set[str]) -> bool:
    match expr:
        case Never():
            return False
        case Ref(rule):
            return rule in alive
        case Concat(parts):
            return all(_matches_something(part, alive) for part in parts)
        case Alt(choices):
            return any(_matches_something(choice, alive) for choice in choices)
        case Repeat():
            return expr.minimum == 0 or _matches_something(expr.body, alive)
        case Joined() | Picks():
            possible = [_matches_something(member.body, alive) for member in expr.members]
            required = all(can for can, member in zip(possible, expr.members, strict=True) if member.required)
            return required and (sum(possible) >= expr.minimum or _matches_something(expr.more, alive))
        case Mark(_, body):
            return _matches_something(body, alive)
        case _:
            return True


def _spellable(leaf: Expr, lacking: frozenset[int]) -> Expr:
    match leaf:
        case Literal(data):
            return NEVER if lacking.intersection(data) else leaf
        case ByteClass(ranges) if any(low <= code <= high for code in lacking for low, high in ranges):
            codes = (code for low, high in ranges for code in range(low, high + 1))
            return byte_class((code, code) for code in codes if code not in lacking)
        case _:
            return leaf


def _living(leaf: Expr, alive: frozenset[str]) -> Expr:
    return NEVER if isinstance(leaf, Ref) and leaf.rule not in alive else leaf


def _used(start: str, rules: Mapping[str, Expr], uses: Mapping[str, AbstractSet[str]]) -> dict[str, Expr]:
    used: set[str] = set()
    pending = [start]
    while pending:
        name = pending.pop()
        if name not in used:
            used.add(name)
            pending += uses[name]
    return {name: rule for name, rule in rules.items() if name in used}
