"""The order between a number and a bound, digit by digit, in exact decimal arithmetic.

In: numbers of a schema. Out: their exact values, and conditions for `number_machine`: that a number is below, equal to
or above a bound (`Compared`), that it is none of a list (`Excluded`). Cost: linear in the digits of a bound. The digits
of a text are never capped: once the order is known, the rest may be anything.

A text is `-` and a magnitude. Without an exponent the number of digits before the point decides first, then the first
digit that differs. With one, the text is a mantissa with one digit, not 0, before the point, so the exponents decide
first, then the mantissas: only then is the order regular.

What a number of a schema means: the decimal that is written there, so 0.1 is a tenth and not the double nearest to it.
`json.loads` keeps integers and makes doubles of the rest, and the shortest decimal of a double, `repr`, is the one that
was written wherever that had at most 15 digits. Rejected: comparing in doubles (`maximum: 9007199254740993` would allow
one number too many, `multipleOf: 0.01` would refuse 0.07).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from schemas_cache.schema.number_machine import State


def exact(value: float) -> Fraction:
    """The number that a JSON number of a schema stands for; see the module."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def places(value: Fraction) -> int:
    """Digits after the point of a number that has finitely many."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives)


class Magnitude(Protocol):
    """The order between a text without its sign and a number from 0: -1, 0 or 1."""

    @property
    def start(self) -> State:
        """Where every text starts."""

    def step(self, state: State, letter: str) -> State:
        """Read one more character."""

    def order(self, state: State) -> int:
        """The order if the text ends here."""

    def is_decided(self, state: State) -> bool:
        """Whether the order stays as it is, whatever follows."""

    def differs(self, state: State) -> bool:
        """Whether the two will never be equal."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Order of texts without an exponent; a state is (0 or 1 after the point, digits read there, order of those)."""

    whole: str
    fraction: str
    start: ClassVar[State] = (0, 0, 0)

    def step(self, state: State, letter: str) -> State:
        """See `Magnitude`."""
        after_point, count, order = state
        if letter == ".":
            return (1, 0, _natural_order(self.whole, count, order))
        if not after_point:
            return (0, *_natural_step(self.whole, count, order, letter))
        expected = self.fraction[count] if count < len(self.fraction) else "0"
        following = order or _sign(letter, expected)
        return (1, 0 if following else min(count + 1, len(self.fraction)), following)

    def order(self, state: State) -> int:
        """See `Magnitude`."""
        after_point, count, order = state
        found = order if after_point else _natural_order(self.whole, count, order)
        missing = self.fraction[count:] if after_point else self.fraction
        return found or (-1 if missing else 0)

    def is_decided(self, state: State) -> bool:
        """See `Magnitude`."""
        after_point, count, order = state
        return bool(order) if after_point else count > len(self.whole)

    def differs(self, state: State) -> bool:
        """See `Magnitude`."""
        return bool(state[2])


@dataclass(frozen=True, slots=True)
class Scientific:
    """Order of texts with an exponent; `exponent` is None for zero, which is below all of them.

    A state is (0, that of the mantissa) or (1, order of mantissas, sign of the exponent or 0, digits read of it, order
    of those).
    """

    mantissa: Plain
    exponent: int | None
    digits: str  # of the exponent, without its sign and zeros in front
    start: ClassVar[State] = (0, *Plain.start)

    def step(self, state: State, letter: str) -> State:
        """See `Magnitude`."""
        if letter in "eE":
            return (1, self.mantissa.order(state[1:]), 0, 0, 0)
        if state[0] == 0:
            return (0, *self.mantissa.step(state[1:], letter))
        if letter in "+-":
            return (1, state[1], -1 if letter == "-" else 1, 0, 0)
        _, mantissas, sign, count, order = state
        return (1, mantissas, sign or 1, *_natural_step(self.digits, count, order, letter))

    def order(self, state: State) -> int:
        """See `Magnitude`; only asked behind an exponent, in which no `-0` stands."""
        if state[0] == 0 or self.exponent is None:
            return 1
        _, mantissas, sign, count, order = state
        if (sign < 0) != (self.exponent < 0):
            return int(sign)
        return sign * _natural_order(self.digits, count, order) or int(mantissas)

    def is_decided(self, state: State) -> bool:
        """See `Magnitude`."""
        if self.exponent is None or state[0] == 0:
            return self.exponent is None
        _, _, sign, count, _ = state
        sign_decides = sign != 0 and (sign < 0) != (self.exponent < 0)
        return bool(sign_decides or count > len(self.digits))

    def differs(self, state: State) -> bool:
        """See `Magnitude`."""
        return self.exponent is None or bool(state[-1]) or (state[0] == 1 and bool(state[1]))


def plain(value: Fraction) -> Plain:
    """Compare with a number from 0 that has finitely many digits."""
    after = places(value)
    digits = str(int(value * 10**after)).rjust(after, "0")
    whole = digits[: len(digits) - after]
    return Plain(whole.lstrip("0"), digits[len(whole) :].rstrip("0"))


def scientific(value: Fraction) -> Scientific:
    """Compare with a number from 0 that has finitely many digits."""
    digits = str(int(value * 10 ** places(value)))
    exponent = len(digits) - 1 - places(value)
    mantissa = plain(value / Fraction(10) ** exponent)
    return Scientific(mantissa, exponent if value else None, str(abs(exponent)).lstrip("0"))


@dataclass(frozen=True, slots=True)
class Compared:
    """That the order between the number and a bound is one of `allowed`; a state is (sign, magnitude's) or (order).

    The bound is given by its sign (-1, 0 or 1) and what compares with its magnitude. `absolute`: the number without its
    sign is meant.
    """

    sign: int
    allowed: frozenset[int]
    magnitude: Magnitude
    absolute: bool = False

    @property
    def start(self) -> State:
        """See `Condition`."""
        return (0, *self.magnitude.start)

    def step(self, state: State, letter: str) -> State | None:
        """See `Condition`."""
        if len(state) == 1:
            return state
        if letter == "-" and state[0] == 0:
            following: State = (1 if self.absolute else -1, *self.magnitude.start)
        else:
            following = (state[0] or 1, *self.magnitude.step(state[1:], letter))
        if not (self._signs_decide(following[0]) or self.magnitude.is_decided(following[1:])):
            return following
        order = self.order(following)
        return (order,) if order in self.allowed else None

    def holds(self, state: State) -> bool:
        """See `Condition`."""
        return self.order(state) in self.allowed

    def order(self, state: State) -> int:
        """-1, 0 or 1 if the text ends here."""
        if len(state) == 1:
            return int(state[0])
        sign = int(state[0])
        return sign if self._signs_decide(sign) else sign * self.magnitude.order(state[1:])

    def differs(self, state: State) -> bool:
        """Whether the two will never be equal."""
        return len(state) == 1 or (state[0] != 0 and self.magnitude.differs(state[1:]))

    def _signs_decide(self, sign: int) -> bool:
        return sign + self.sign == 0


def compared(bound: Fraction, allowed: frozenset[int], *, has_exponent: bool, absolute: bool = False) -> Compared:
    """Compare numbers of one of the two forms with a bound of any sign."""
    magnitude = scientific(abs(bound)) if has_exponent else plain(abs(bound))
    return Compared((bound > 0) - (bound < 0), allowed, magnitude, absolute)


@dataclass(frozen=True, slots=True)
class Excluded:
    """That the number is none of these; a state lists those that it still may become, with the state of each."""

    values: tuple[Compared, ...]

    @property
    def start(self) -> State:
        """See `Condition`."""
        return tuple((i, value.start) for i, value in enumerate(self.values))

    def step(self, state: State, letter: str) -> State:
        """See `Condition`."""
        following = ((i, self.values[i].step(at, letter)) for i, at in state)
        return tuple((i, at) for i, at in following if at is not None and not self.values[i].differs(at))

    def holds(self, state: State) -> bool:
        """See `Condition`."""
        return all(self.values[i].order(at) for i, at in state)


def _natural_step(digits: str, count: int, order: int, letter: str) -> tuple[int, int]:
    """Read one more digit of a natural number that is compared with `digits`; zeros in front do not count."""
    if count == 0 and letter == "0":
        return 0, 0
    if count >= len(digits):
        return len(digits) + 1, 1
    return count + 1, order or _sign(letter, digits[count])


def _natural_order(digits: str, count: int, order: int) -> int:
    return order if count == len(digits) else _sign(count, len(digits))


def _sign(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)
