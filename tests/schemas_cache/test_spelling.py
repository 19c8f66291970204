"""Values to bytes, against Python's own encoder and JSON writer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas_cache.code_points import ANY, complement, scalars
from schemas_cache.grammar import (
    EMPTY,
    NEVER,
    Alt,
    ByteClass,
    Concat,
    Expr,
    Literal,
    Mark,
    Member,
    Never,
    Ref,
    Repeat,
    alt,
    char_class,
    concat,
    joined,
    repeat,
)
from schemas_cache.spelling import free_character, free_string, json_string, string_literal, utf8
from tests.schemas_cache.reference_matcher import ends, matches

EDGES = [
    0,
    0x1F,
    0x20,
    0x22,
    0x5C,
    0x7F,
    0x80,
    0x7FF,
    0x800,
    0xD7FF,
    0xE000,
    0xFFFF,
    0x10000,
    0x3FFFF,
    0x40000,
    0x10FFFF,
]
points = st.one_of(st.sampled_from(EDGES), st.characters(codec="utf-8").map(ord), st.integers(0, 0x10FFFF))
classes = st.lists(st.tuples(points, points).map(lambda pair: (min(pair), max(pair))), max_size=5).map(scalars)
characters = st.characters(codec="utf-8")
alphabets = st.frozensets(st.one_of(st.sampled_from('"\\/abcdefnrtu0123456789ABCDEFあ😀'), characters), max_size=40)

ANY_CHARACTER = char_class(ANY)


def one(char: str) -> Expr:
    """The value-level expression of one character."""
    return char_class([(ord(char), ord(char))])


def value(text: str) -> Expr:
    """The value-level expression of a constant."""
    return concat(*map(one, text))


def written(text: str) -> bytes:
    """The inside of the JSON string that Python writes."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def branches_overlap(expr: Expr) -> bool:
    """Whether two choices anywhere in `expr` can begin with the same byte."""
    match expr:
        case Alt(choices):
            starts = [byte for choice in choices for byte in first_bytes(choice)]
            return len(starts) != len(set(starts)) or any(map(branches_overlap, choices))
        case Concat(parts):
            return any(map(branches_overlap, parts))
        case _:
            return False


def first_bytes(expr: Expr) -> set[int]:
    """The bytes that an expression without empty parts may begin with."""
    match expr:
        case Literal(data):
            return {data[0]}
        case ByteClass(ranges):
            return {byte for low, high in ranges for byte in range(low, high + 1)}
        case Concat(parts):
            return first_bytes(parts[0])
        case Alt(choices):
            return set().union(*map(first_bytes, choices))
        case _:
            raise AssertionError(expr)


@given(classes, st.lists(points, max_size=8))
def test_a_class_is_spelled_by_the_utf8_of_its_characters_and_no_others(
    ranges: tuple[tuple[int, int], ...], some: list[int]
) -> None:
    """Ends of ranges, their neighbours and random characters: in the bytes as they are in the class."""
    spelled = utf8(char_class(ranges), None)
    for point in {near for low, high in ranges for near in (low - 1, low, high, high + 1)} | set(some):
        if 0 <= point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
            expected = any(low <= point <= high for low, high in ranges)
            assert expected == matches(spelled, chr(point).encode())


@given(st.binary(max_size=5))
def test_any_character_accepts_exactly_what_decodes(data: bytes) -> None:
    """Overlong forms, surrogates, stray continuations and code points beyond Unicode are rejected, as by `decode`."""
    try:
        expected = len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        expected = False
    assert expected == matches(utf8(ANY_CHARACTER, None), data)


ILL_FORMED = "c080 c1bf e09fbf eda080 edbfbf f08fbfbf f4908080 f5808080 80 bf e381 ff"


@pytest.mark.parametrize("data", [bytes.fromhex(data) for data in ILL_FORMED.split()])
def test_ill_formed_utf8_is_rejected(data: bytes) -> None:
    """Overlong, surrogate, too large, stray and cut-off sequences."""
    assert not matches(utf8(ANY_CHARACTER, None), data)


@given(classes)
def test_no_two_branches_begin_with_the_same_byte(ranges: tuple[tuple[int, int], ...]) -> None:
    """Spelled classes are deterministic by their first byte at every level, raw and in JSON."""
    assert not branches_overlap(utf8(char_class(ranges), None))
    assert not branches_overlap(json_string(char_class(ranges), None))


def test_equal_continuations_share_a_branch() -> None:
    """Any character at all takes the nine rows of table 3-7, of which two have the same continuations."""
    spelled = utf8(ANY_CHARACTER, None)
    assert isinstance(spelled, Alt)
    assert len(spelled.choices) == 8


def test_single_characters_in_a_row_become_one_literal() -> None:
    """A constant text is one node, raw and in JSON."""
    assert Literal("aあ\n".encode()) == utf8(value("aあ\n"), None)
    assert Literal('aあ\\n\\"'.encode()) == json_string(value('aあ\n"'), None)


@given(classes, st.lists(points, max_size=8))
def test_json_spells_a_class_as_dumps_does(ranges: tuple[tuple[int, int], ...], some: list[int]) -> None:
    """Every member of the class by the text that `json.dumps` writes, and no other."""
    spelled = json_string(char_class(ranges), None)
    for point in {near for low, high in ranges for near in (low - 1, low, high, high + 1)} | {*range(0x30), *some}:
        if 0 <= point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
            expected = any(low <= point <= high for low, high in ranges)
            assert expected == matches(spelled, written(chr(point)))


@given(st.text(st.sampled_from('"\\/\b\f\n\r\t\x00\x1f\x7faあ😀')))
def test_any_text_has_one_canonical_spelling(text: str) -> None:
    """An unbounded run of any characters accepts what `json.dumps` writes, but no escape that it would not write."""
    spelled = json_string(repeat(ANY_CHARACTER, 0, None), None)
    assert matches(spelled, written(text))
    expected = json.dumps(text)[1:-1] == written(text).decode()
    assert expected == matches(spelled, json.dumps(text)[1:-1].encode())


@pytest.mark.parametrize("text", ["\\/", "\\u0061", "\\u001F", "\\u000a", "\n", '"', "\\"])
def test_other_spellings_are_not_canonical(text: str) -> None:
    """JSON allows the first four; the canonical spelling is another. The rest JSON does not allow at all."""
    assert not matches(json_string(repeat(ANY_CHARACTER, 0, None), None), text.encode())


@given(st.text(st.sampled_from('\\"/bfnrtuxdDcC89aAeE01\n\x1fあ😀'), max_size=14))
def test_a_free_string_counts_the_characters_that_loads_reads(text: str) -> None:
    """Whatever JSON reads as n characters is n characters; what it does not read, or reads as half a pair, is none."""
    try:
        read = json.loads(f'"{text}"')
        read.encode()
    except (json.JSONDecodeError, UnicodeEncodeError):
        read = None
    one_character = free_character(None)
    for count in range(4):
        expected = read is not None and len(read) == count
        assert expected == matches(repeat(one_character, count, count), text.encode())


@given(characters, st.booleans())
def test_a_free_string_takes_every_escape_of_a_character(char: str, upper: bool) -> None:
    r"""`\uXXXX` in both cases, as a pair beyond the basic plane, is one character."""
    units = char.encode("utf-16-be").hex()
    digits = units.upper() if upper else units
    escaped = "".join(f"\\u{digits[i : i + 4]}" for i in range(0, len(digits), 4))
    assert {len(escaped)} == ends(free_character(None), escaped.encode(), 0)


@pytest.mark.parametrize(
    "text", ["\\ud83d", "\\ude00", "\\ud83d\\u0041", "\\ude00\\ud83d", "\\ud83dx", "\\x41", "\\u12g4"]
)
def test_half_a_pair_and_unknown_escapes_are_not_characters(text: str) -> None:
    """They stand for no Unicode text."""
    assert not matches(free_string(0, None, None), text.encode())


def test_a_free_string_is_one_counted_repeat_of_free_text() -> None:
    """The count stays a count, whatever its size, and the body is flagged for block masks."""
    assert Repeat(free_character(None), 2, 10_000, EMPTY, free_text=True) == free_string(2, 10_000, None)


@pytest.mark.parametrize("spell", [utf8, json_string])
def test_a_run_of_any_characters_is_free_text(spell) -> None:  # type: ignore[no-untyped-def]
    """The class of all characters is flagged, a smaller one is not."""
    assert spell(repeat(ANY_CHARACTER, 0, 9), None).free_text
    assert not spell(repeat(char_class(complement([(0x0A, 0x0A)])), 0, 9), None).free_text


@given(st.text(characters))
def test_a_constant_is_spelled_as_dumps_does(text: str) -> None:
    """With every character at hand the spelling is that of `json.dumps`."""
    assert Literal(json.dumps(text, ensure_ascii=False).encode()) == string_literal(text, None)


@given(st.text(st.one_of(st.sampled_from('"\\\naé😀'), characters), max_size=3), alphabets)
def test_a_constant_is_spelled_with_the_characters_at_hand_or_not_at_all(text: str, alphabet: frozenset[str]) -> None:
    """What comes out uses the alphabet only and reads back as the text."""
    spelled = string_literal(text, alphabet)
    if spelled != NEVER:
        assert isinstance(spelled, Literal)
        assert set(spelled.data.decode()) <= alphabet
        assert text == json.loads(spelled.data)
    else:
        assert not set(json.dumps(text, ensure_ascii=False)) <= alphabet
        assert not set(json.dumps(text)) <= alphabet or '"' not in alphabet


@pytest.mark.parametrize(
    ("text", "alphabet", "expected"),
    [
        ("é", '"\\u0e9', '"\\u00e9"'),
        ("é", '"\\u0E9', '"\\u00E9"'),
        ("😀", '"\\ud83de0', '"\\ud83d\\ude00"'),
        ("\n", '"\\u0a', '"\\u000a"'),
        ("a", '"\\u061', '"\\u0061"'),
    ],
)
def test_a_character_that_is_lacking_is_escaped(text: str, alphabet: str, expected: str) -> None:
    """By its code, in the case whose digits there are."""
    assert Literal(expected.encode()) == string_literal(text, frozenset(alphabet))


@pytest.mark.parametrize(("text", "alphabet"), [("é", '"abc'), ("a", "a"), ("", ""), ("\n", '"\\u'), ("\ud800", None)])
def test_a_constant_that_cannot_be_spelled_is_never(text: str, alphabet: str | None) -> None:
    """No quotes, no escape, or no character at all."""
    spelled = string_literal(text, None if alphabet is None else frozenset(alphabet))
    assert isinstance(spelled, Never)


@pytest.mark.parametrize("spell", [utf8, json_string])
@given(ranges=classes, alphabet=alphabets, text=st.text(max_size=1))
def test_with_an_alphabet_exactly_the_spellable_is_spelled(spell, ranges, alphabet, text) -> None:  # type: ignore[no-untyped-def]
    """Among texts made of the alphabet the restricted class accepts what the whole class accepts."""
    whole, restricted = spell(char_class(ranges), None), spell(char_class(ranges), alphabet)
    escapes = ["\\n", "\\t", "\\\\", '\\"', "\\u0001", "\\u001f"]
    for candidate in [*alphabet, *escapes, text]:
        if set(candidate) <= alphabet:
            assert matches(whole, candidate.encode()) == matches(restricted, candidate.encode())


@pytest.mark.parametrize("spell", [utf8, json_string])
@given(ranges=classes, alphabet=alphabets)
def test_a_restricted_class_is_never_a_dead_end(spell, ranges, alphabet) -> None:  # type: ignore[no-untyped-def]
    """Either the class is `NEVER` or one of its spellings uses the alphabet only."""
    restricted = spell(char_class(ranges), alphabet)
    candidates = [*alphabet, "\\n", "\\t", "\\r", "\\b", "\\f", "\\\\", '\\"', *(f"\\u{p:04x}" for p in range(0x20))]
    spellable = [c for c in candidates if set(c) <= alphabet and matches(restricted, c.encode())]
    assert (restricted != NEVER) == bool(spellable)


@pytest.mark.parametrize(("alphabet", "expected"), [("あい", "い"), ("い", "い"), ("xyz", ""), ("bい", "bいう")])
def test_characters_beyond_ascii_are_cut_down_unless_ascii_leads_on(alphabet: str, expected: str) -> None:
    """A class without a spellable ASCII character holds spellable characters only."""
    restricted = utf8(
        alt(char_class([(ord("い"), ord("い")), (ord("う"), ord("う")), (ord("a"), ord("b"))])), frozenset(alphabet)
    )
    assert expected == "".join(c for c in "abいう" if matches(restricted, c.encode()))


def test_structure_is_kept() -> None:
    """Marks, ordered members, counts and separators are the same on both levels."""
    expr = concat(Mark("x", one("a")), joined([Member(one("b"), False), Member(one('"'), True)], one(",")))
    expr = concat(expr, repeat(one("é"), 1, 2, one("\n")))
    spelled = json_string(expr, None)
    expected = ['a\\"é', 'ab,\\"é', 'ab,\\"é\\né']
    assert expected == [t for t in [*expected, 'a"é', "abé", 'ab,\\"éé'] if matches(spelled, t.encode())]


def test_what_is_about_bytes_already_is_refused() -> None:
    """Literals, byte classes and rules have no value level."""
    for expr in (Literal(b"a"), ByteClass(((97, 98),)), Ref("rule")):
        with pytest.raises(TypeError, match="about values"):
            utf8(concat(one("a"), expr), None)
