"""Bounds on compiling and on what is learnt afterwards: named in the error with figure and limit, and never a hang."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from schemas_cache import (
    CompileTimeoutError,
    Finding,
    Limits,
    SchemaError,
    SchemaTooComplexError,
    UnsatisfiableSchemaError,
    Vocabulary,
    compile_regex,
    compile_schema,
    compile_source,
)
from schemas_cache.automaton import START
from schemas_cache.limits import MAX_CONFIGURATIONS, MAX_WORK
from schemas_cache.work import LOOK_EVERY, Haste, NotNowError, StoppedError, Work, at_work, spend, working
from tests.schemas_cache.hostile import CASES, examine
from tests.toy import TOY

BYTES = Vocabulary([b"", *(bytes([byte]) for byte in range(256)), b'", "', b'{"', b"ab", b"abc", b"  "], [0])
FIGURE_AND_LIMIT = r"\d.*limit.*\d"
LISTS: dict[str, Any] = {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]}
QUICK = (
    "schema nested 1,000 levels",
    "schema nested 62 levels",
    "document nested 1,000 levels",
    "references in a chain of 5,000",
    "references that double 200 times",
    "20,001 enum values",
    "minLength 1,000,000",
    "maxItems 1,000,000",
    "(a|aa){0,1000}",
    "(a|aa){0,1000} and a length",
    "(x+x+)+y",
    "500 times 200 integers",
    "overlapping recursive objects",
    "oneOf of 60",
    "dependentSchemas in a ring of 8",
)


def works_or_is_refused(name: str) -> None:
    """Look at a case: nothing but an answer, or a refusal that says how much is too much."""
    outcome = examine(CASES[name], BYTES)
    if outcome.refused:
        code, _, text = outcome.refused.partition(": ")
        assert code in ("schema_too_complex", "invalid_json_schema"), text
        assert any(letter.isdigit() for letter in text)
    else:
        assert outcome.tokens > 0


@pytest.mark.parametrize("name", QUICK)
def test_what_is_hostile_works_or_is_refused(name: str) -> None:
    """Those of the list that are quick."""
    works_or_is_refused(name)


@pytest.mark.suite
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_all_that_is_hostile_works_or_is_refused(name: str) -> None:
    """The others."""
    works_or_is_refused(name)


def test_work_beyond_the_limit_is_refused() -> None:
    """With the figure, the limit and what took so much."""
    with working(Work(1_000, subject="mine")):
        for _ in range(1_000):
            spend(1)
        with pytest.raises(SchemaTooComplexError, match=r"mine takes 1,001 steps .* limit is 1,000"):
            spend(1)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(f"x{'y' * 3_000}", id="a long pattern"),
        pytest.param({"type": "number", "minimum": 0.123456789, "maximum": 987.654321}, id="bounds of numbers"),
        pytest.param({"type": "integer", "multipleOf": 1_009}, id="multiples"),
    ],
)
def test_what_takes_long_before_there_is_an_automaton_is_counted(schema: Any) -> None:
    """Reading patterns, and working out which texts of numbers there are."""
    compile_one = compile_regex if isinstance(schema, str) else compile_schema
    compile_one(schema, BYTES, limits=Limits(max_dense_entries=0))
    with pytest.raises(SchemaTooComplexError, match=r"steps of work at least, and the limit is 5,000"):
        compile_one(schema, BYTES, limits=Limits(max_work=5_000))


def test_work_within_the_limit_is_nobodys_business() -> None:
    """To the last step."""
    with working(Work(1_000)) as work:
        for _ in range(1_000):
            spend(1)
    assert 1_000 == work.done


def test_nothing_is_counted_outside_of_work() -> None:
    """Who uses the loops for something else is not bounded."""
    spend(10**12)
    assert not at_work()


def test_the_clock_is_looked_at() -> None:
    """Between two looks work goes on."""
    with working(Work(10**9, timeout_s=-1.0)):
        spend(LOOK_EVERY - 1)
        with pytest.raises(CompileTimeoutError, match=r"took 1\.\d+ s|took 0\.\d+ s"):
            spend(1)


def test_work_that_nobody_waits_for_stops() -> None:
    """Work inside other work too, that nobody asked."""
    with working(Work(10**9, is_stopped=lambda: True)), working(Work(10**9)), pytest.raises(StoppedError):
        spend(LOOK_EVERY)


def test_haste_gives_up_without_blame() -> None:
    """It is no refusal."""
    with working(Haste(100)), pytest.raises(NotNowError):
        spend(101)


def test_a_compile_has_a_limit_on_its_work() -> None:
    """The same schema with more of it is compiled."""
    schema = {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(50)}}
    with pytest.raises(SchemaTooComplexError, match=FIGURE_AND_LIMIT):
        compile_schema(schema, BYTES, limits=Limits(max_work=1_000))
    compile_schema(schema, BYTES, limits=Limits(max_work=MAX_WORK))


def test_a_product_that_is_too_large_is_too_complex_unless_more_is_wrong() -> None:
    """With a keyword beside it that is malformed, the schema is that."""
    large = {"type": "integer", "multipleOf": 123456789}
    with pytest.raises(SchemaTooComplexError, match=r"20000 states .* the limit"):
        compile_schema(large, BYTES)
    with pytest.raises(SchemaError) as caught:
        compile_schema({"anyOf": [large, {"type": "foo"}]}, BYTES)
    assert SchemaError is type(caught.value)


def test_a_state_of_too_many_configurations_is_refused() -> None:
    """Members any of which may come next are side by side until their names tell them apart."""
    schema = {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(MAX_CONFIGURATIONS + 1)}}
    with pytest.raises(SchemaTooComplexError, match=rf"needs 120\d .*limit is {MAX_CONFIGURATIONS}"):
        compile_schema(schema, BYTES).matcher().mask()


def test_counts_that_say_nothing_more_are_left_out() -> None:
    """However the text was cut into rounds, the fewest rounds allow all that more of them do: one count is kept."""
    compiled = compile_regex("(a|aa){0,400}", BYTES, limits=Limits(max_dense_entries=0))
    automaton = compiled.tokens.automaton
    state = automaton.walk(START, b"a" * 300)
    frames = {frame for _, frame in automaton.configurations[state]}
    assert {1} == {len(automaton.frames.counts(frame)) for frame in frames}
    assert automaton.accepting[automaton.walk(START, b"a" * 800)]
    assert not automaton.accepting[automaton.walk(START, b"a" * 801)]


def test_work_is_the_same_each_time() -> None:
    """It depends on nothing but the schema: two compiles, the same count."""
    schema = {"type": "object", "properties": {"a": {"pattern": "^(a|b){2,9}$", "maxLength": 7, "type": "string"}}}
    counts = []
    for _ in range(3):
        with working(Work(10**9)) as work:
            compile_source(_source(schema), BYTES)
        counts.append(work.done)
    assert 1_000 < counts[1] == counts[2]


def _source(schema: dict[str, Any]) -> Any:
    return compile_schema(schema, BYTES).source


@pytest.mark.parametrize("limits", [{"max_states": 300}, {"max_frames": 300}, {"max_memory_bytes": 300_000}])
def test_states_frames_and_memory_are_bounded_while_decoding(limits: dict[str, int]) -> None:
    """Each by its own limit, with figure and limit; what was known stays usable."""
    matcher = compile_schema(LISTS, BYTES, limits=Limits(**limits)).matcher()
    with pytest.raises(SchemaTooComplexError, match=FIGURE_AND_LIMIT):
        matcher.advance_bytes(b"[" * 2_000)
    matcher.advance_bytes(b"[" * 20)
    assert not matcher.accepting


def test_one_state_has_a_limit_on_its_work() -> None:
    """For who uses the library alone; the next state is not blamed for it."""
    compiled = compile_schema(LISTS, BYTES, limits=Limits(max_expansion_work=20, max_dense_entries=0))
    with pytest.raises(SchemaTooComplexError, match=FIGURE_AND_LIMIT):
        compiled.matcher().mask()
    assert not at_work()


def test_tables_from_elsewhere_are_bounded_too() -> None:
    """Limits are the reader's own."""
    compiled = compile_schema(LISTS, BYTES)
    limits = Limits(max_states=200)
    loaded = type(compiled).load(compiled.dump(), compiled.source, BYTES, limits=limits)
    with pytest.raises(SchemaTooComplexError, match="limit is 200"):
        loaded.matcher().advance_bytes(b"[" * 500)


@pytest.mark.parametrize("kind", [SchemaError, UnsatisfiableSchemaError, SchemaTooComplexError, CompileTimeoutError])
def test_errors_travel_between_processes(kind: type[SchemaError]) -> None:
    """Class, findings and text."""
    error = kind([Finding("#/a", "if", "no", "yes"), Finding("#", "", "x", is_note=True)])
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert (kind, error.findings, str(error)) == (type(again), again.findings, str(again))


def test_a_deep_nest_of_arrays_is_written_once_a_level() -> None:
    """Sixty-two levels cost no more each than ten do."""
    counts = []
    for levels in (10, 20, 60):
        schema: dict[str, Any] = {"type": "null"}
        for _ in range(levels):
            schema = {"type": "array", "items": schema}
        with working(Work(10**9)) as work:
            compile_schema(schema, TOY, limits=Limits(max_dense_entries=0))
        counts.append(work.done)
    assert counts[2] < 10 * counts[0]
