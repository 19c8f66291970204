"""Decimals within bounds, multiples and numbers left out, against exact arithmetic on the same texts."""

import functools
import itertools
import json
import re
import sys
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas_cache import SchemaError, UnsatisfiableSchemaError, Vocabulary, compile_schema
from schemas_cache.automaton import START
from schemas_cache.grammar import NEVER, Alt, Expr, Machine
from schemas_cache.machines import MachineTooLargeError
from schemas_cache.schema.decimals import exact, places
from schemas_cache.schema.multiples import common_multiple
from schemas_cache.schema.numbers import LEAST_DOUBLE, MAX_STEP_WITH_POINT, Demands, any_number, number_text
from tests.schemas_cache.reference_matcher import matches

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
INTEGER = frozenset({"integer"})
FRACTION = frozenset({"fraction"})
NUMBER = INTEGER | FRACTION
JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
ONE_DIGIT_MANTISSA = re.compile(r"-?[1-9](\.\d+)?[eE](\+?\d{1,3}|-(?!0+$)\d{1,3})")
HOLDS = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
BOUNDS = ["0", "1", "5", "-1", "0.5", "-0.15", "15", "-15.5", "99.5", "10", "0.05", "9.99", "1000", "51", "-500"]
BOUNDS += ["1e-5", "5e5", "-1e9", "1e308", "1e400", "-1e-300"]
STEPS = ["1", "5", "0.5", "0.05", "2.5", "7", "10", "11", "0.1", "100", "110", "1.5", "0.0001", "1e-8"]


def asked(
    kinds: frozenset[str], *bounds: tuple[str, str], steps: tuple[str, ...] = (), excluded: tuple[str, ...] = ()
) -> Demands:
    """Demands whose numbers are given as decimals."""
    return Demands(
        kinds,
        bounds=tuple((keyword, Fraction(value)) for keyword, value in bounds),
        steps=tuple(map(Fraction, steps)),
        excluded=tuple(map(Fraction, excluded)),
    )


def random_demands() -> st.SearchStrategy[Demands]:
    """Some of everything."""
    bounds = st.lists(st.tuples(st.sampled_from(sorted(HOLDS)), st.sampled_from(BOUNDS)), max_size=3)
    some = functools.partial(st.lists, max_size=2)
    return st.builds(
        lambda kinds, bounds, steps, excluded: asked(kinds, *bounds, steps=tuple(steps), excluded=tuple(excluded)),
        st.sampled_from([NUMBER, NUMBER, INTEGER, FRACTION]),
        bounds,
        some(st.sampled_from(STEPS)),
        some(st.sampled_from(BOUNDS)),
    ).filter(lambda demands: demands != Demands(NUMBER))


def is_wanted(demands: Demands, text: str) -> bool:
    """The referee: whether a text is a number and meets the demands."""
    if not JSON_NUMBER.fullmatch(text):
        return False
    value = Fraction(text)
    return (
        ("integer" if value.denominator == 1 else "fraction") in demands.kinds
        and all(HOLDS[keyword](value, bound) for keyword, bound in demands.bounds)
        and all((value / step).denominator == 1 for step in demands.steps)
        and value not in demands.excluded
    )


def is_canonical(demands: Demands, text: str) -> bool:
    """Whether the module says that numbers which meet the demands are written in this way."""
    value, step = Fraction(text), demands.step
    no_minus = not demands.sign or (step is not None and step.denominator == 1)
    if value == 0 and text.startswith("-") and no_minus:
        return False
    if "e" in text.lower():
        in_range = LEAST_DOUBLE <= abs(value) <= Fraction(sys.float_info.max)
        return (
            step is None and in_range and ONE_DIGIT_MANTISSA.fullmatch(text) is not None and _is_below_1(demands, value)
        )
    if "." not in text or step is None:
        return True
    if step.denominator > 1:
        return step.numerator > MAX_STEP_WITH_POINT or _digits(text) <= 15
    return re.fullmatch(r"-?\d+\.0", text) is not None and (
        step == 1 or (step <= MAX_STEP_WITH_POINT and _digits(text) <= 15)
    )


def _is_below_1(demands: Demands, value: Fraction) -> bool:
    return demands.kinds != FRACTION or abs(value) < 1


def _digits(text: str) -> int:
    return len(text.replace(".", "").lstrip("-0"))


@functools.cache
def short_texts() -> tuple[str, ...]:
    """All numbers of four characters at most, and a part of what is none."""
    texts = ["".join(letters) for size in range(1, 5) for letters in itertools.product("0159.-+e", repeat=size)]
    others = [text for text in texts if not JSON_NUMBER.fullmatch(text)]
    return (*(text for text in texts if JSON_NUMBER.fullmatch(text)), *others[::23])


def accepts(expr: Expr, text: str) -> bool:
    """Whether an expression of numbers matches a whole text."""
    return matches(expr, text.encode())


@pytest.mark.parametrize(
    ("expected", "demands"),
    [
        ("-1 -0.9 -0 0 0.5 -1.0 9e-1 -1e0", asked(NUMBER, ("minimum", "-1"), ("exclusiveMaximum", "1"))),
        ("1.5 2 2.0 1.05 1.5e0 1.51E+00", asked(NUMBER, ("exclusiveMinimum", "1"), ("maximum", "2"))),
        ("1e+16 1e-07 1.5e+300 0 0.0 17.250", asked(NUMBER, ("minimum", "0"))),
        ("-1e-07 -5e-324 -0.01", asked(NUMBER, ("exclusiveMaximum", "0"))),
        ("0.07 0.7 7 7.00 7.0000 -0.01", asked(NUMBER, steps=("0.01",))),
        ("2.5 5 -7.5 10.0 10.00 0 -0", asked(NUMBER, steps=("2.5",))),
        ("21 -21 0 21.0 210", asked(NUMBER, steps=("7", "1.5"))),
        ("3000 1000000 0", asked(INTEGER, steps=("1000",))),
        ("2 -2 0 2.0", asked(INTEGER, ("maximum", "2"), excluded=("1", "0.5", "-1"))),
        ("0.5 -12.25 0.50 1e-1 1.5e-07", asked(FRACTION)),
        ("9007199254740993 9007199254740993.0", asked(INTEGER, ("minimum", "9007199254740993"))),
    ],
)
def test_wanted_numbers_are_written(expected: str, demands: Demands) -> None:
    """Canonical and other texts of numbers that meet the demands."""
    text = number_text(demands)
    assert expected.split() == [number for number in expected.split() if accepts(text, number)]


@pytest.mark.parametrize(
    ("rejected", "demands"),
    [
        ("1 1.0 1.00 1e0 -1.01 -1.1e0 1e1 -1e1", asked(NUMBER, ("minimum", "-1"), ("exclusiveMaximum", "1"))),
        ("1 1.0 2.01 2.00001 2.1e0 1e0 20 -1.5", asked(NUMBER, ("exclusiveMinimum", "1"), ("maximum", "2"))),
        ("-1 -1e-7 -0.1 -0", asked(NUMBER, ("minimum", "0"))),
        ("0 -0 0.0 -0.0 0e0 1e-07", asked(NUMBER, ("exclusiveMaximum", "0"))),
        ("1e309 1.8e308 1e999 2e-324 1e-999", asked(NUMBER, ("exclusiveMinimum", "0"))),
        ("0.075 0.001 7.001 1e-3", asked(NUMBER, steps=("0.01",))),
        ("2 0.5 2.50001 -7.25 1.0", asked(NUMBER, steps=("2.5",))),
        ("7 10.5 1.5 14.0", asked(NUMBER, steps=("7", "1.5"))),
        ("100 999 1500 500.0", asked(INTEGER, steps=("1000",))),
        ("1 1.0 3 -1 0.5 2.5", asked(INTEGER, ("maximum", "2"), excluded=("1", "0.5", "-1"))),
        ("0.5 0.50 5e-1 5.0e-1 5E-01", asked(NUMBER, excluded=("0.5",))),
        ("3 3.0 3.00 3e0 3.0e+00", asked(NUMBER, excluded=("3",))),
        ("1 0 1.0 -0.0 1.5e1 10e-1 2.5e+16", asked(FRACTION)),
        ("9007199254740992 900719925474099", asked(INTEGER, ("minimum", "9007199254740993"))),
    ],
)
def test_unwanted_numbers_are_not(rejected: str, demands: Demands) -> None:
    """Whatever the spelling."""
    text = number_text(demands)
    assert [] == [number for number in rejected.split() if accepts(text, number)]


@settings(deadline=None)
@given(random_demands())
@example(asked(FRACTION, steps=("0.5",)))
@example(asked(NUMBER, ("minimum", "0"), ("maximum", "0")))
def test_short_texts_are_exact(demands: Demands) -> None:
    """Of all short texts exactly those that meet the demands and are canonical, by brute force."""
    text = number_text(demands)
    wanted = [short for short in short_texts() if is_wanted(demands, short) and is_canonical(demands, short)]
    assert wanted == [short for short in short_texts() if accepts(text, short)]


@settings(deadline=None)
@given(
    st.sampled_from([NUMBER, INTEGER, FRACTION]),
    st.sampled_from(sorted(HOLDS)),
    st.decimals(allow_nan=False, allow_infinity=False, places=40) | st.integers(-(10**60), 10**60),
    st.integers(-(10**6), 10**6).map(lambda small: Fraction(small, 10**40)),
    st.integers(0, 3),
)
def test_huge_bounds_are_exact(kinds: frozenset[str], keyword: str, bound: object, step: Fraction, zeros: int) -> None:
    """A number next to a bound of up to a hundred digits is accepted exactly if it compares so."""
    limit = Fraction(str(bound))
    demands = Demands(kinds, bounds=((keyword, limit),))
    for value in (limit + step, limit, -limit, limit + Fraction(1, 10**60), limit + 1):
        written = decimal_text(value) + "0" * zeros * (value.denominator > 1)
        expected = is_wanted(demands, written) and is_canonical(demands, written)
        assert expected == accepts(number_text(demands), written), written


def schema_of(demands: Demands) -> dict[str, object]:
    """A schema that demands this; excluded values by `enum`, fractions as numbers that are no integers."""
    one_each = [{keyword: json_number(bound)} for keyword, bound in demands.bounds]
    one_each += [{"multipleOf": json_number(step)} for step in demands.steps]
    types = {INTEGER: {"type": "integer"}, NUMBER: {"type": "number"}}
    excluded: list[dict[str, object]] = [{"enum": list(map(json_number, demands.excluded))}] if demands.excluded else []
    excluded += [{"type": "integer"}] if demands.kinds == FRACTION else []
    return {
        **types.get(demands.kinds, {"type": "number"}),
        "allOf": [{}, *one_each, *({"not": schema} for schema in excluded)],
    }


def json_number(value: Fraction) -> float:
    """As `json.loads` reads it: an integer or a double."""
    return int(value) if value.denominator == 1 else float(value)


@settings(deadline=None, max_examples=30)
@given(random_demands())
@example(asked(NUMBER, ("minimum", "0.1"), ("maximum", "0.9"), steps=("0.05", "0.1"), excluded=("0.5",)))
def test_schemas_are_exact(demands: Demands) -> None:
    """The same through keywords, merging and the real automaton, numbers of the schema as `json.loads` reads them."""
    try:
        automaton = compile_schema(schema_of(demands), BYTES).tokens.automaton
    except UnsatisfiableSchemaError:
        assert not [short for short in short_texts() if is_wanted(demands, short) and is_canonical(demands, short)]
        return
    for short in short_texts():
        expected = is_wanted(demands, short) and is_canonical(demands, short)
        assert expected == automaton.accepting[automaton.walk(START, short.encode())], short


def decimal_text(value: Fraction) -> str:
    """A number with finitely many digits, without an exponent."""
    after = places(value)
    digits = str(abs(value.numerator) * 10**after // value.denominator).rjust(after + 1, "0")
    whole = digits[: len(digits) - after]
    return "-" * (value < 0) + whole + "." * (after > 0) + digits[len(whole) :]


@settings(deadline=None)
@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(sorted(HOLDS)),
    st.floats(allow_nan=False, allow_infinity=False),
)
@example(1e23, "maximum", 1e23)
@example(0.1, "exclusiveMinimum", 0.1)
@example(5e-324, "exclusiveMinimum", 0.0)
@example(sys.float_info.max, "minimum", 1e308)
def test_what_python_writes_is_accepted(value: float, keyword: str, bound: float) -> None:
    """Every double within the bound is accepted as `json.dumps` writes it; minus zero only where `-` may stand."""
    demands = Demands(NUMBER, bounds=((keyword, exact(bound)),))
    is_kept = bool(HOLDS[keyword](value, bound)) and (str(value) != "-0.0" or bool(demands.sign))
    assert is_kept == accepts(number_text(demands), json.dumps(value))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=3).map(tuple),
    st.integers(-(10**12), 10**12),
    st.integers(0, 9),
)
def test_multiples_are_exact(steps: tuple[str, ...], units: int, after: int) -> None:
    """A number is accepted exactly if it is a multiple of all steps, and so is the multiple below it."""
    demands = asked(NUMBER, steps=steps)
    value = Fraction(units, 10**after)
    for number in (value, value // demands.step * demands.step if demands.step else value):
        written = decimal_text(number)
        expected = is_wanted(demands, written) and is_canonical(demands, written)
        assert expected == accepts(number_text(demands), written), written


@pytest.mark.parametrize(
    ("expected", "steps"),
    [("7", ("7",)), ("10.5", ("1.5", "3.5")), ("3", ("1.5", "1")), ("0.15", ("0.05", "0.03")), ("1", ("1e-8", "1"))],
)
def test_common_multiples(expected: str, steps: tuple[str, ...]) -> None:
    """Several steps are their least common multiple."""
    assert Fraction(expected) == common_multiple(map(Fraction, steps))


@pytest.mark.parametrize(("expected", "step"), [(11, "1e6"), (24, "3600000"), (145, "86400"), (1001, "997")])
def test_remainders_that_the_same_digits_complete_are_one(expected: int, step: str) -> None:
    """The automaton of a round step is far smaller than the step."""
    assert expected == states(number_text(asked(INTEGER, steps=(step,))))


def states(expr: Expr) -> int:
    """States of all automata in an expression."""
    choices = expr.choices if isinstance(expr, Alt) else (expr,)
    return sum(len(choice.accepting) for choice in choices if isinstance(choice, Machine))


def test_states_grow_linearly_with_digits() -> None:
    """Twice the digits of a bound give at most about twice the states."""
    small, large = (
        number_text(asked(NUMBER, ("minimum", "-" + "3" * size), ("maximum", "27" * size + ".5"))) for size in (20, 40)
    )
    assert states(large) < 2.2 * states(small)


def test_decimals_keep_the_digits_of_doubles() -> None:
    """Multiples with a point have 15 digits at most, integers any number."""
    text = number_text(asked(NUMBER, steps=("0.01",)))
    written = ["1234567890123.45", "12345678901234.56", "0.00", "1" * 30, "0.0000000000000000000"]
    assert written[:1] + written[2:4] + written[4:] == [number for number in written if accepts(text, number)]


@pytest.mark.parametrize("step", ["123456789", "0.123456789", "65537e3", "1048576"])
def test_too_many_remainders_are_refused(step: str) -> None:
    """A step that needs more states than the limit says so."""
    with pytest.raises(MachineTooLargeError, match="more than 20000 states"):
        number_text(asked(NUMBER, steps=(step,)))


@pytest.mark.parametrize(
    "demands",
    [
        asked(FRACTION, steps=("2",)),
        asked(NUMBER, ("exclusiveMinimum", "0"), ("exclusiveMaximum", "0.01"), steps=("0.01",)),
        asked(NUMBER, ("minimum", "2"), ("maximum", "2"), excluded=("2",)),
        asked(NUMBER, ("minimum", "3"), ("maximum", "2.9")),
        asked(INTEGER, ("minimum", "1"), ("maximum", "3"), excluded=("1", "2", "3")),
    ],
)
def test_contradictions_are_empty(demands: Demands) -> None:
    """Where no number is left, so is no text."""
    assert number_text(demands) == NEVER


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_any_number_is_what_json_writes(value: float) -> None:
    """Whatever `json.dumps` writes for a number is a number."""
    assert accepts(any_number(), json.dumps(value))


@given(st.text("0123456789+-.eE", max_size=7))
@example("1e999")
@example("12e308")
@example("1e-999")
def test_any_number_is_what_json_reads(text: str) -> None:
    """A short text with an exponent below a hundred is a number exactly if RFC 8259 says so, and none is infinite."""
    is_number = JSON_NUMBER.fullmatch(text) is not None
    if re.search(r"[eE][+-]?\d{3}", text):
        assert not accepts(any_number(), text) or (is_number and abs(float(text)) < float("inf"))
    else:
        assert is_number == accepts(any_number(), text)


def test_letters_that_cannot_be_spelled_are_never_needed() -> None:
    """Without a point and exponents integers are left."""
    for text in (any_number("0123456789-"), number_text(Demands(NUMBER, "0123456789-", (("maximum", Fraction(99)),)))):
        assert ["7", "-12"] == [number for number in ("7", "-12", "1.5", "1e5") if accepts(text, number)]


def test_what_is_refused_is_named() -> None:
    """Under `strict` an error with keyword and pointer; otherwise the bounds are kept and the rest is listed."""
    schema = {"properties": {"n": {"type": "integer", "multipleOf": 123456789, "minimum": 5}}, "required": ["n"]}
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema, BYTES)
    compiled = compile_schema(schema, BYTES, strict=False)
    assert [("#/properties/n", "multipleOf")] == [(found.pointer, found.keyword) for found in caught.value.findings]
    assert ["multipleOf"] == [warning.keyword for warning in compiled.warnings]
    automaton = compiled.tokens.automaton
    assert [False, True] == [automaton.accepting[automaton.walk(START, b'{"n": %d}' % n)] for n in (4, 5)]


@pytest.mark.parametrize("step", [0, -1, 0.0, "2", True, None])
def test_steps_are_above_zero(step: object) -> None:
    """Anything else is malformed."""
    with pytest.raises(SchemaError, match="expected a number above 0"):
        compile_schema({"multipleOf": step}, BYTES)
