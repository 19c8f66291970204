"""The referee: does an expression match a text, by the definition of each kind of node and nothing else.

In: any `Expr` and a text, `str` for value level and `bytes` for text level. Out: yes or no, or the positions where
a match may end. Cost: polynomial, slow, no automaton: sets of positions, and rules as a least fixed point, so that
left-recursive and self-referring rules need no special case.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from schemas_cache.grammar import (
    Alt,
    ByteClass,
    CharClass,
    Concat,
    Empty,
    Expr,
    Joined,
    Literal,
    Machine,
    Mark,
    Never,
    Other,
    Picks,
    Ref,
    Repeat,
    nullable,
)

NO_RULES: Mapping[str, Expr] = MappingProxyType({})


def matches(expr: Expr, text: bytes | str, rules: Mapping[str, Expr] = NO_RULES) -> bool:
    """Whether `expr` matches the whole of `text`."""
    return len(text) in ends(expr, text, 0, rules)


def ends(expr: Expr, text: bytes | str, start: int, rules: Mapping[str, Expr] = NO_RULES) -> set[int]:
    """Every position where a match of `expr` that begins at `start` may end."""
    referee = _Referee(text, rules)
    while True:
        before = referee.known_size()
        referee.visited.clear()
        found = referee.ends(expr, start)
        if referee.known_size() == before:
            return found


class _Referee:
    """One text and what is known so far of each rule at each position; known sets only grow from pass to pass."""

    def __init__(self, text: bytes | str, rules: Mapping[str, Expr]) -> None:
        self.text = text
        self.rules = rules
        self.known: dict[tuple[str, int], set[int]] = {}
        self.visited: set[tuple[str, int]] = set()

    def known_size(self) -> int:
        return sum(map(len, self.known.values()))

    def ends(self, expr: Expr, start: int) -> set[int]:
        match expr:
            case Never():
                return set()
            case Empty():
                return {start}
            case Literal(data):
                return {start + len(data)} if self._bytes().startswith(data, start) else set()
            case ByteClass(ranges):
                return self._one(self._bytes()[start : start + 1], ranges, start)
            case CharClass(ranges):
                return self._one([ord(char) for char in self._string()[start : start + 1]], ranges, start)
            case _:
                return self._composite(expr, start)

    def _composite(self, expr: Expr, start: int) -> set[int]:
        match expr:
            case Concat(parts):
                return self._concat(parts, start)
            case Alt(choices):
                return set().union(*(self.ends(choice, start) for choice in choices))
            case Repeat():
                return self._repeat(expr, start)
            case Joined():
                return self._joined(expr, start)
            case Picks():
                return self._picks(expr, start)
            case Ref(rule):
                return self._rule(rule, start)
            case Mark(_, body):
                return self.ends(body, start)
            case Machine():
                return self._machine(expr, start)
            case Other(texts):
                return {end for end in range(start, len(self.text) + 1) if self._other(texts, start, end)}
            case _:
                raise TypeError(f"not an expression: {expr!r}")

    def _other(self, texts: tuple[bytes, ...], start: int, end: int) -> bool:
        """Whether this is the inside of a string as `json.dumps` writes it, and none of the texts."""
        inside = self._bytes()[start:end]
        try:
            written = json.dumps(json.loads(b'"' + inside + b'"'), ensure_ascii=False).encode()
        except ValueError:
            return False
        return written == b'"' + inside + b'"' and inside not in texts

    def _concat(self, parts: tuple[Expr, ...], start: int) -> set[int]:
        here = {start}
        for part in parts:
            here = self._from_all(part, here)
        return here

    def _from_all(self, expr: Expr, starts: set[int]) -> set[int]:
        return set().union(*(self.ends(expr, start) for start in starts))

    def _one(self, found: Iterable[int], ranges: tuple[tuple[int, int], ...], start: int) -> set[int]:
        return {start + 1 for value in found if any(low <= value <= high for low, high in ranges)}

    def _repeat(self, expr: Repeat, start: int) -> set[int]:
        count, here = 0, {start}
        found = {start} if expr.minimum == 0 else set()
        while here and (expr.maximum is None or count < expr.maximum):
            here = self._from_all(expr.body, here if count == 0 else self._from_all(expr.separator, here))
            count += 1
            if count >= expr.minimum:
                here -= found  # reached before with a smaller count, from where more is possible
                found |= here
        return found

    def _machine(self, machine: Machine, start: int) -> set[int]:
        """State by state; at value level each character is its bytes. Characters are counted where one begins."""
        state, count, found = 1, 0, {start} if nullable(machine) else set()
        for at in range(start, len(self.text)):
            piece = self.text[at : at + 1]
            for byte in piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece:
                count += int(machine.between is not None and machine.between[state])
                state = int(machine.next_state[state, machine.class_of[byte]])
            if machine.accepting[state] and _within(machine, count):
                found.add(at + 1)
        return found

    def _joined(self, expr: Joined, start: int) -> set[int]:
        here = {(start, 0)}  # positions, with how many members stand before them
        for member in expr.members:
            with_it = {(end, count + 1) for at, count in here for end in self._next(expr, member.body, at, count)}
            here = with_it if member.required else here | with_it
        fresh = here
        while fresh:
            further = {(end, count + 1) for at, count in fresh for end in self._next(expr, expr.more, at, count)}
            fresh = further - here
            here |= fresh
        return {at for at, count in here if _within(expr, count)}

    def _picks(self, expr: Picks, start: int) -> set[int]:
        here = fresh = {(start, frozenset[int](), 0)}  # positions, which members stand before them, how many others
        while fresh:
            further = set()
            for at, used, others in fresh:
                count = len(used) + others
                for number, member in enumerate(expr.members):
                    if number not in used:
                        ends = self._next(expr, member.body, at, count)
                        further |= {(end, used | {number}, others) for end in ends}
                further |= {(end, used, others + 1) for end in self._next(expr, expr.more, at, count)}
            fresh = further - here
            here = here | fresh
        required = {number for number, member in enumerate(expr.members) if member.required}
        return {at for at, used, others in here if required <= used and _within(expr, len(used) + others)}

    def _next(self, expr: Joined | Picks, body: Expr, at: int, count: int) -> set[int]:
        return self._from_all(body, self.ends(expr.separator, at) if count else {at})

    def _rule(self, rule: str, start: int) -> set[int]:
        known = self.known.setdefault((rule, start), set())
        if (rule, start) not in self.visited:
            self.visited.add((rule, start))
            known |= self.ends(self.rules[rule], start)
        return set(known)

    def _bytes(self) -> bytes:
        if isinstance(self.text, bytes):
            return self.text
        raise TypeError("a text-level expression needs bytes")

    def _string(self) -> str:
        if isinstance(self.text, str):
            return self.text
        raise TypeError("a value-level expression needs a string")


def _within(expr: Joined | Picks | Machine, count: int) -> bool:
    return expr.minimum <= count and (expr.maximum is None or count <= expr.maximum)
