"""How many characters a value may have: bounds on the texts of an expression or of an automaton.

In: a value-level expression or a `FiniteAutomaton`, and the bounds. Out: an expression of the texts within the bounds,
exact, and without a way that cannot be finished within them. Four ways, the cheapest that serves:

- texts that keep the bounds anyway are left alone;
- where one repeat alone varies, the bounds become its counts (`bounded`): nothing to pay, however large they are;
- a small product with a counter is made in full;
- else the automaton stays as it is and the count is in the frame (`of_length`): each state is given the counts with
  which it can still be finished. That is exact where one bound alone matters, or where the lengths left from each
  state have no gaps (`^(ab)*$` has); otherwise the product is made in full, or refused where it is too large.

Cost: linear in the automaton. Rejected: the full product alone (a URI of at most 2,048 characters has 500,000 states).
"""

from __future__ import annotations

from collections import deque

import numpy as np

from schemas_cache.escapes import ESCAPES
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import (
    NEVER,
    Alt,
    CharClass,
    Concat,
    Empty,
    Expr,
    Machine,
    Never,
    Repeat,
    alt,
    concat,
    repeat,
)
from schemas_cache.machines import MachineTooLargeError, expr_of, is_empty, with_length

_SMALL_PRODUCT = 64
_MANY = 2**30  # characters; stands for no bound, as no text has so many
_IS_CONTINUATION = [byte & 0xC0 == 0x80 for byte in range(256)]

Lengths = tuple[int, int | None]
_Moves = list[list[tuple[int, int]]]  # for each state: (characters begun, state that follows), each once


def length_range(expr: Expr) -> Lengths:
    """Fewest and most characters of a text (None: no bound); of an automaton, a range that holds them all."""
    match expr:
        case CharClass():
            return 1, 1
        case Empty():
            return 0, 0
        case Concat(parts):
            ranges = [length_range(part) for part in parts]
            longest = [high for _, high in ranges if high is not None]
            return sum(low for low, _ in ranges), sum(longest) if len(longest) == len(ranges) else None
        case Alt(choices):
            ranges = [length_range(choice) for choice in choices]
            longest = [high for _, high in ranges if high is not None]
            return min(low for low, _ in ranges), max(longest) if len(longest) == len(ranges) else None
        case Repeat(body, minimum, maximum):
            low, high = length_range(body)
            return low * minimum, None if high is None or maximum is None else high * maximum
        case Machine(minimum=minimum, maximum=maximum):
            return minimum, maximum
        case _:
            raise TypeError(f"not an expression about characters: {expr!r}")


def bounded(expr: Expr, minimum: int, maximum: int | None) -> Expr | None:
    """The texts of so many characters, where counts alone can say it; None where that needs an automaton."""
    if isinstance(expr, Never):
        return NEVER
    low, high = length_range(expr)
    if low >= minimum and (maximum is None or (high is not None and high <= maximum)):
        return expr
    if (maximum is not None and low > maximum) or (high is not None and high < minimum):
        return NEVER
    match expr:
        case Alt(choices):
            found = [bounded(choice, minimum, maximum) for choice in choices]
            possible = [choice for choice in found if choice is not None]
            return alt(*possible) if len(possible) == len(found) else None
        case Concat(parts):
            return _bounded_part(parts, minimum, maximum)
        case Repeat():
            return _bounded_repeat(expr, minimum, maximum)
        case _:
            return None


def _bounded_part(parts: tuple[Expr, ...], minimum: int, maximum: int | None) -> Expr | None:
    """A row in which one part alone varies in length."""
    ranges = [length_range(part) for part in parts]
    varying = [at for at, (low, high) in enumerate(ranges) if low != high]
    if len(varying) != 1:
        return None
    at = varying[0]
    fixed = sum(low for low, _ in ranges) - ranges[at][0]
    part = bounded(parts[at], max(minimum - fixed, 0), None if maximum is None else maximum - fixed)
    return None if part is None else concat(*parts[:at], part, *parts[at + 1 :])


def _bounded_repeat(expr: Repeat, minimum: int, maximum: int | None) -> Expr | None:
    """A repeat of a body of one length."""
    size, longest = length_range(expr.body)
    if size != longest or not isinstance(expr.separator, Empty):
        return None
    least = max(expr.minimum, -(-minimum // size))
    most = [count for count in (expr.maximum, None if maximum is None else maximum // size) if count is not None]
    return repeat(expr.body, least, min(most, default=None), free_text=expr.free_text)


def of_length(machine: FiniteAutomaton, minimum: int, maximum: int | None) -> Expr:
    """What an automaton accepts of so many characters.

    Raises
    ------
    MachineTooLargeError
        Where the lengths have gaps and the product with a counter is beyond the limit; for a minimum beyond all texts.
    """
    if is_empty(machine):
        return NEVER
    if minimum >= _MANY:
        raise MachineTooLargeError
    maximum = None if maximum is None or maximum >= _MANY else maximum
    moves = _moves(machine)
    shortest, longest = _shortest(machine, moves), _longest(moves)
    most = _MANY if maximum is None else maximum
    if shortest[1] >= minimum and longest[1] <= most:
        return expr_of(machine)
    if shortest[1] > most or longest[1] < minimum:
        return NEVER
    pairs = machine.states * (minimum if maximum is None else maximum)
    both = minimum > shortest[1] and longest[1] > most  # where one bound says nothing, gaps do not matter
    if pairs <= _SMALL_PRODUCT or (both and not _has_no_gaps(machine, moves, shortest, longest)):
        return expr_of(with_length(machine, minimum, maximum))
    near, far = np.array(shortest, np.int64), np.array(longest, np.int64)
    counts = np.stack([np.maximum(minimum - far, 0), np.maximum(most - near, -1)], axis=1).astype(np.int32)
    between = np.array([any(begun for begun, _ in row) for row in moves], np.bool_)
    return Machine(machine.alphabet.class_of, machine.next_state, machine.accepting, counts, between, minimum, maximum)


def _moves(machine: FiniteAutomaton) -> _Moves:
    """The transitions of every state, without the dead one; a byte that is no continuation begins a character."""
    begun = [int(not _IS_CONTINUATION[byte]) for byte in machine.alphabet.representative.tolist()]
    return [sorted({(begun[c], to) for c, to in enumerate(row) if to}) for row in machine.next_state.tolist()]


def _shortest(machine: FiniteAutomaton, moves: _Moves) -> list[int]:
    """Fewest characters from each state to acceptance; `_MANY` from the dead one."""
    before: _Moves = [[] for _ in moves]
    for state, row in enumerate(moves):
        for begun, to in row:
            before[to].append((begun, state))
    near = [0 if final else _MANY for final in machine.accepting.tolist()]
    queue = deque(state for state, far in enumerate(near) if far == 0)
    while queue:  # as steps cost 0 or 1, those that cost 0 go first
        state = queue.popleft()
        for begun, source in before[state]:
            if near[state] + begun < near[source]:
                near[source] = near[state] + begun
                if begun:
                    queue.append(source)
                else:
                    queue.appendleft(source)
    return near


def _longest(moves: _Moves) -> list[int]:
    """Most characters from each state to acceptance; `_MANY` where there is a loop on the way."""
    before: list[list[int]] = [[] for _ in moves]
    waiting = [len(row) for row in moves]
    for state, row in enumerate(moves):
        for _, to in row:
            before[to].append(state)
    far = [_MANY] * len(moves)
    done = [state for state, count in enumerate(waiting) if count == 0]
    while done:
        state = done.pop()
        far[state] = max((begun + far[to] for begun, to in moves[state]), default=0)
        for source in before[state]:
            waiting[source] -= 1
            if waiting[source] == 0:
                done.append(source)
    return far


def _has_no_gaps(machine: FiniteAutomaton, moves: _Moves, shortest: list[int], longest: list[int]) -> bool:
    """Whether all lengths between the fewest and the most are possible, from every state and in every escape."""
    rows = [(final, row) for final, row in zip(machine.accepting.tolist(), moves, strict=True)]
    for prefix in {text[:end] for text in ESCAPES.values() for end in range(1, len(text))}:
        codes = [code for code, text in ESCAPES.items() if text.startswith(prefix)]
        targets = machine.next_state[:, machine.alphabet.class_of[codes]].tolist()
        rows += [(False, [(0, to) for to in set(row) if to]) for row in targets]
    return all(
        _is_one_span([(begun + shortest[to], begun + longest[to]) for begun, to in row] + [(0, 0)] * final)
        for final, row in rows
    )


def _is_one_span(spans: list[tuple[int, int]]) -> bool:
    reached = min(spans, default=(0, 0))[0]
    for low, high in sorted(spans):
        if low > reached + 1:
            return False
        reached = max(reached, high)
    return True
