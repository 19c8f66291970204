"""`multipleOf`, for integers and decimals of any size: an automaton over remainders.

In: the steps that a number must be a multiple of. Out: their least common multiple, and a `Condition` for it. A step
with k digits after the point counts in units of 10^-k, where it is an integer p: the digits of a text up to the kth
after the point are read as one number modulo p, and all later ones are zeros.

Cost: at most p (k + 2) states. Before the point, two remainders are one state if the same digits complete both: so a
million takes 8 states and an hour in milliseconds 22. Source: ours; how many states divisibility needs is in Alexeev,
"Minimal DFA for testing divisibility" (2004).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from schemas_cache.limits import MAX_MACHINE_STATES
from schemas_cache.machines import MachineTooLargeError
from schemas_cache.schema.decimals import places
from schemas_cache.schema.number_machine import State

FAITHFUL_DIGITS = 15
"""Digits of a decimal that every double keeps, so that it is the same number to readers that know only doubles."""


def common_multiple(steps: Iterable[Fraction]) -> Fraction:
    """Least number that is a multiple of all; there is one step at least."""
    found, *rest = steps
    for step in rest:
        found = Fraction(math.lcm(found.numerator, step.numerator), math.gcd(found.denominator, step.denominator))
    return found


@dataclass(frozen=True, slots=True)
class Multiple:
    """That a number without an exponent is a multiple of `step`; a state is (digits after the point or -1, remainder).

    Raises
    ------
    MachineTooLargeError
        At once, if the states before the point alone are more than `MAX_MACHINE_STATES`.
    """

    step_size: Fraction
    places: int = field(init=False)
    modulus: int = field(init=False)
    representatives: dict[tuple[int, ...], int] = field(init=False, default_factory=dict)
    start: ClassVar[State] = (-1, 0)

    def __post_init__(self) -> None:
        """Count in units of the last digit."""
        object.__setattr__(self, "places", places(self.step_size))
        object.__setattr__(self, "modulus", int(self.step_size * 10**self.places))
        if _without_twos_and_fives(self.modulus) > MAX_MACHINE_STATES:
            raise MachineTooLargeError

    def step(self, state: State, letter: str) -> State | None:
        """See `Condition`."""
        after_point, remainder = state
        if letter == "-":
            return state
        if letter == ".":
            return (0, remainder)
        if after_point == self.places:
            return state if letter == "0" else None
        following = (10 * remainder + int(letter)) % self.modulus
        if after_point < 0:
            return (-1, self._representative(following))
        return (after_point + 1, following)

    def holds(self, state: State) -> bool:
        """See `Condition`."""
        after_point, remainder = state
        missing = self.places - max(after_point, 0)
        return bool(remainder * 10**missing % self.modulus == 0)

    def _representative(self, remainder: int) -> int:
        """One remainder for all that the same digits complete to a multiple.

        That j digits complete it says which number they are, if that has j digits at most. From 10^j >= p on it always
        has, and what is so with that j is so with all greater ones.
        """
        power, needed = 1, [0 if remainder == 0 else -1]
        while power < self.modulus:
            power *= 10
            number = -remainder * power % self.modulus
            needed.append(number if number < power else -1)
        return self.representatives.setdefault(tuple(needed), remainder)


@dataclass(frozen=True, slots=True)
class Faithful:
    """That a number with a point has at most `FAITHFUL_DIGITS` digits from the first that is not 0."""

    start: ClassVar[State] = (0, False)

    def step(self, state: State, letter: str) -> State | None:
        """See `Condition`."""
        digits, has_point = state
        if letter == "." or has_point:
            has_point = True
        if letter.isdigit() and (digits or letter != "0"):
            digits = min(digits + 1, FAITHFUL_DIGITS + 1)
        return None if has_point and digits > FAITHFUL_DIGITS else (digits, has_point)

    def holds(self, state: State) -> bool:
        """See `Condition`: what breaks it has no state."""
        del state
        return True


def _without_twos_and_fives(value: int) -> int:
    for factor in (2, 5):
        while value % factor == 0:
            value //= factor
    return value
