"""Numbers: any, within bounds, multiples of a step, none of a list; as exact as the decimals that are written.

In: what the facets ask of numbers. Out: text expressions. Cost: integers between bounds are an expression, linear in
their digits (`integers`); all else is an automaton (`number_machine`), a few milliseconds, made once for equal demands.

What is written is canonical, and what `json.dumps` writes is among it:

- any number, of no demands: RFC 8259 section 6, with exponents as far as doubles go, since `1e999` is an infinity to
  most readers;
- integers: plain digits, no `-0`, and `.0` may follow, as 1.0 is an integer;
- multiples: without an exponent, and with a point of at most 15 digits, as every double has those exactly; integral
  ones as integers, and without `.0` for a step above `MAX_STEP_WITH_POINT`;
- other numbers: any digits, or one digit but 0 before the point and an exponent, within the range of doubles. With
  another mantissa (`12e-3`, `0e5`) no automaton could compare. No `-` where nothing below zero is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from schemas_cache.errors import Finding
from schemas_cache.grammar import EMPTY, NEVER, Expr, Never, alt, concat, literal, optional
from schemas_cache.machines import MachineTooLargeError, expr_of, unite
from schemas_cache.schema.decimals import Excluded, compared, exact
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.integers import integer_range, integers
from schemas_cache.schema.multiples import Faithful, Multiple, common_multiple
from schemas_cache.schema.number_machine import LETTERS, Condition, number_machine, spelled
from schemas_cache.schema.writing import Writing, owner_of

NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE]([+-]?\d{1,2}|-\d{3}))?"
INTEGER = r"0|-?[1-9]\d*"
DECIMAL = r"-?(0|[1-9]\d*)(\.\d+)?"
FRACTION = r"-?(0|[1-9]\d*)\.\d*[1-9]\d*"
SCIENTIFIC = r"-?[1-9](\.\d+)?[eE](\+?\d{1,3}|-(0{0,2}[1-9]|0?[1-9]\d|[1-9]\d\d))"
MAX_STEP_WITH_POINT = 100

BELOW, EQUAL, ABOVE = -1, 0, 1
ALLOWED = {
    "minimum": frozenset({EQUAL, ABOVE}),
    "exclusiveMinimum": frozenset({ABOVE}),
    "maximum": frozenset({BELOW, EQUAL}),
    "exclusiveMaximum": frozenset({BELOW}),
}
ANY_ORDER = frozenset({BELOW, EQUAL, ABOVE})
LEAST_DOUBLE, GREATEST_DOUBLE = exact(5e-324), exact(sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Demands:
    """What numbers have to be, without where it is written.

    `kinds` are integer, fraction or both; `letters` are those of numbers that can be spelled.
    """

    kinds: frozenset[str]
    letters: str = LETTERS
    bounds: tuple[tuple[str, Fraction], ...] = ()
    steps: tuple[Fraction, ...] = ()
    excluded: tuple[Fraction, ...] = ()

    @property
    def step(self) -> Fraction | None:
        """What all are multiples of."""
        steps = (*self.steps, Fraction(1)) if self.kinds == {"integer"} else self.steps
        return common_multiple(steps) if steps else None

    @property
    def sign(self) -> str:
        """How texts may begin, as a regular expression."""
        keyword_and_value = ((keyword, value) for keyword, value in self.bounds if keyword.endswith("inimum"))
        return "" if any(value >= 0 for _, value in keyword_and_value) else "-?"


def write_number(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Numbers of the types, within the bounds, multiples of the steps and none of those excluded."""
    del depth
    kinds = facets.types & {"integer", "fraction"}
    if not kinds:
        return NEVER
    listed = (value for value in facets.excluded_values if isinstance(value, int | float))
    demands = Demands(
        kinds,
        spelled(writing.characters).replace(".", "" if facets.is_plain_integer else "."),
        tuple(dict.fromkeys((bound.keyword, bound.value) for bound in facets.bounds)),
        tuple(dict.fromkeys(step for step, _ in facets.multiples)),
        tuple(dict.fromkeys(exact(value) for value in listed if not isinstance(value, bool))),
    )
    written = _written(writing, facets, demands)
    if isinstance(written, Never):
        _report_dead_end(writing, facets, demands)
    if written == any_number(demands.letters):
        return writing.once(FREE if demands.letters == spelled(writing.characters) else "number", written)
    return written


def _written(writing: Writing, facets: Facets, demands: Demands) -> Expr:
    """As far as automata reach; what is beyond is reported and left out."""
    try:
        return number_text(demands)
    except MachineTooLargeError as error:
        if demands.steps:
            pointer = facets.multiples[0][1]
            hint = "ask for multiples of a rounder number"
            writing.cannot(Finding(pointer, "multipleOf", str(error), hint, is_limit=True))
            return _written(writing, facets, replace(demands, steps=()))
        reason = f"to leave out {len(demands.excluded)} numbers, {error}"
        writing.cannot(Finding(owner_of(facets), "not", reason, "exclude fewer numbers"))
        return _written(writing, facets, replace(demands, excluded=()))


def _report_dead_end(writing: Writing, facets: Facets, demands: Demands) -> None:
    at = [(bound.pointer, bound.keyword) for bound in facets.bounds]
    at += [(pointer, "multipleOf") for _, pointer in facets.multiples]
    if not at:
        return
    low, high = integer_range(demands.bounds)
    if demands.kinds == {"integer"} and low is not None and high is not None and low > high:
        writing.dead_end(*at[0], f"no integer is at least {low} and at most {high}")
    else:
        writing.dead_end(*at[0], "no number satisfies all that is asked of it here")


FREE = "json.number"
"""The rule of all numbers."""


@lru_cache(maxsize=256)
def number_text(demands: Demands) -> Expr:
    """All numbers that meet the demands, as text; raises `MachineTooLargeError`."""
    step = demands.step
    if step is None and not demands.bounds and not demands.excluded and len(demands.kinds) == 2:
        return any_number(demands.letters)
    if step is None:
        return alt(_decimals(demands, ()), _with_exponents(demands))
    if step.denominator > 1:
        few = step.numerator <= MAX_STEP_WITH_POINT
        return _decimals(demands, (Multiple(step), *((Faithful(),) if few else ())))
    if "integer" not in demands.kinds:
        return NEVER
    if step == 1 and not demands.excluded:
        point = optional(literal(".0")) if "." in demands.letters else EMPTY
        return concat(integers(*integer_range(demands.bounds)), point)
    return _integral(demands, step)


@lru_cache(maxsize=8)
def any_number(letters: str = LETTERS) -> Expr:
    """All numbers of these letters."""
    return expr_of(unite(number_machine(NUMBER, (), letters), number_machine(SCIENTIFIC, _range_of_doubles(), letters)))


def _decimals(demands: Demands, conditions: Iterable[Condition]) -> Expr:
    shape = DECIMAL if "integer" in demands.kinds else FRACTION
    shape = demands.sign + shape.removeprefix("-?")
    return expr_of(number_machine(shape, (*_comparisons(demands, has_exponent=False), *conditions), demands.letters))


def _with_exponents(demands: Demands) -> Expr:
    """Those that have an exponent, where nothing has to be divided; with a fraction left, if that is asked."""
    conditions = [*_comparisons(demands, has_exponent=True), *_range_of_doubles()]
    if "integer" not in demands.kinds:
        conditions.append(compared(Fraction(1), ALLOWED["exclusiveMaximum"], has_exponent=True, absolute=True))
    return expr_of(number_machine(SCIENTIFIC, conditions, demands.letters))


def _integral(demands: Demands, step: Fraction) -> Expr:
    conditions = [*_comparisons(demands, has_exponent=False), *((Multiple(step),) if step > 1 else ())]
    if step > MAX_STEP_WITH_POINT:
        return expr_of(number_machine(INTEGER, conditions, demands.letters))
    conditions += [Faithful()] if step > 1 else []
    return expr_of(number_machine(rf"({INTEGER})(\.0)?", conditions, demands.letters))


def _comparisons(demands: Demands, *, has_exponent: bool) -> list[Condition]:
    found: list[Condition] = [compared(v, ALLOWED[keyword], has_exponent=has_exponent) for keyword, v in demands.bounds]
    if demands.excluded:
        values = (compared(value, ANY_ORDER, has_exponent=has_exponent) for value in demands.excluded)
        found.append(Excluded(tuple(values)))
    return found


def _range_of_doubles() -> tuple[Condition, ...]:
    """What rounds neither to an infinity nor to zero."""
    return (
        compared(GREATEST_DOUBLE, ALLOWED["maximum"], has_exponent=True, absolute=True),
        compared(LEAST_DOUBLE, ALLOWED["minimum"], has_exponent=True, absolute=True),
    )
