"""What binds one sequence: forced tokens, stop strings, endings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.constraint import Walk, cut_at_stop, drawable_words
from engine.forcing import Forcing, one_token_per_character, whole_characters_end
from engine.request import Request, Sampling
from engine.sequence import Sequence, choice_of
from schemas_cache import ForbiddenTokenError, Source, Vocabulary, choice_source, compile_source, regex_source
from schemas_cache import schema_source as of_schema
from tests.toy import CHARACTERS, END, SPECIAL, TOY, GreedyTokenizer, rows_for


def forcing(vocabulary: Vocabulary) -> Forcing:
    """With the greedy tokenizer."""
    return Forcing(vocabulary, GreedyTokenizer(vocabulary).encode_bytes)


def row_for(source: Source | None, vocabulary: Vocabulary = TOY, max_tokens: int = 50, **fields: object) -> Sequence:
    """One sequence."""
    request = Request(prompts=((),), max_tokens=max_tokens, source=source, **fields)  # type: ignore[arg-type]
    return rows_for(request, vocabulary)[0]


def walk_for(vocabulary: Vocabulary = TOY) -> Walk:
    """Leads rows of a vocabulary."""
    return Walk(vocabulary, forcing(vocabulary))


def ids(text: str, vocabulary: Vocabulary = TOY) -> list[int]:
    """Greedy tokens of a text."""
    return GreedyTokenizer(vocabulary).encode(text)


def test_forced_text_is_tokenised_as_a_whole_and_its_last_token_given_back() -> None:
    """`"a": ` is forced; the longest tokens spell it, and the last of them is left to be drawn."""
    source = of_schema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
    matcher = compile_source(source, TOY).matcher()
    taken = forcing(TOY).take(matcher, 50)
    assert ids('{"a": ')[:-1] == list(taken)
    assert matcher.forced()


def test_the_last_forced_token_is_kept_where_the_document_ends() -> None:
    """Nothing can follow, so there is nothing that a longer token could reach into."""
    matcher = compile_source(of_schema({"const": ["a"]}), TOY).matcher()
    assert ids('["a"]') == list(forcing(TOY).take(matcher, 50))
    assert matcher.finished


def test_the_last_forced_token_is_charged_too() -> None:
    """One token short of the document, its last token is not taken."""
    matcher = compile_source(of_schema({"const": ["a"]}), TOY).matcher()
    assert ids('["a"]')[:-1] == list(forcing(TOY).take(matcher, len(ids('["a"]')) - 1))
    assert not matcher.finished


def test_a_vocabulary_of_characters_gives_nothing_back() -> None:
    """Each character is one token and none is longer: all forced tokens are taken."""
    source = of_schema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
    matcher = compile_source(source, CHARACTERS).matcher()
    assert ids('{"a": ', CHARACTERS) == list(forcing(CHARACTERS).take(matcher, 50))
    assert matcher.forced() == b""


def test_forced_tokens_are_cut_at_the_limit() -> None:
    """Never more than are left, and the matcher stands where they end."""
    matcher = compile_source(of_schema({"const": "abcabcab"}), CHARACTERS).matcher()
    assert ids('"abc', CHARACTERS) == list(forcing(CHARACTERS).take(matcher, 4))
    assert matcher.forced() == b'abcab"'
    assert forcing(CHARACTERS).take(matcher, 0) == ()


def test_forcing_stops_before_half_a_character() -> None:
    """Two characters with the same first byte: that byte is forced, and is not taken."""
    vocabulary = Vocabulary([b"", b"x", b"\xc3", b"\xa9", b"\xa8"], [0])
    matcher = compile_source(choice_source(["xx\u00e9", "xx\u00e8"]), vocabulary).matcher()
    assert matcher.forced() == b"xx\xc3"
    assert forcing(vocabulary).take(matcher, 50) == (1,)  # the second x is given back


def test_nothing_is_forced_that_the_tokenizer_cannot_spell() -> None:
    """Tokens that spell something else, or an error, mean no jump; the model draws."""
    matcher = compile_source(of_schema({"const": "abc"}), TOY).matcher()

    def refuses(data: bytes) -> list[int]:
        raise ValueError("no")

    assert Forcing(TOY, lambda _data: [9]).take(matcher, 50) == ()
    assert Forcing(TOY, refuses).take(matcher, 50) == ()
    assert matcher.forced() == b'"abc"'


def test_one_token_per_character() -> None:
    """Longer tokens, double spellings and half characters each break it; special tokens do not."""
    assert one_token_per_character(CHARACTERS)
    assert not one_token_per_character(TOY)
    assert not one_token_per_character(Vocabulary([b"a", b"a"], []))
    assert not one_token_per_character(Vocabulary([b"a", b"\xc3"], []))
    assert one_token_per_character(Vocabulary([b"", b"", "\u00e9".encode()], [0]))


@given(st.binary(max_size=8))
def test_whole_characters_end_is_the_longest_decodable_beginning(data: bytes) -> None:
    """Against trying every length."""

    def decodes(length: int) -> bool:
        try:
            data[:length].decode()
        except UnicodeDecodeError:
            return False
        return True

    assert max(n for n in range(len(data) + 1) if decodes(n)) == whole_characters_end(data)


def test_free_text_is_drawn_from_bytes_and_end_tokens() -> None:
    """Special tokens that do not end a text have no bit; nor has the padding."""
    bits = np.unpackbits(drawable_words(TOY).view(np.uint8), bitorder="little")
    assert set(range(len(TOY))) - {SPECIAL} == set(np.flatnonzero(bits).tolist())


def test_begin_takes_the_forced_prefix_before_any_draw() -> None:
    """The forced tokens are part of the answer, and wait to be fed with the prompt."""
    row = row_for(of_schema({"const": ["a", True]}), CHARACTERS, max_tokens=3)
    walk_for(CHARACTERS).begin(row)
    assert ids('["a', CHARACTERS) == row.token_ids == row.pending
    assert (3, "max_tokens") == (row.forced_tokens, row.stop_reason)


def test_jump_forward_off_takes_nothing() -> None:
    """Every token is left to be drawn, the only possible one too."""
    row = row_for(of_schema({"const": "a"}), CHARACTERS, jump_forward=False)
    walk_for(CHARACTERS).begin(row)
    assert not row.token_ids
    assert not row.over


def test_finished_ends_at_once() -> None:
    """After the last token of a document no end token is waited for."""
    row, walk = row_for(regex_source("ab"), jump_forward=False), walk_for()
    walk.begin(row)
    for token_id in ids("a") + ids("b"):
        assert not row.over
        walk.advance(row, token_id)
    assert ("end_turn", True, "ab") == (row.stop_reason, row.complete, choice_of(row).text)


def test_accepting_is_not_finished() -> None:
    """Where more may follow, the end token and a longer text are both the model's choice."""
    row, walk = row_for(regex_source("a{1,3}")), walk_for()
    walk.advance(row, ids("a")[0])
    assert not row.over
    walk.advance(row, END)
    assert ("end_turn", True, [ids("a")[0]]) == (row.stop_reason, row.complete, row.token_ids)


@pytest.mark.parametrize(("max_tokens", "complete"), [(1, False), (2, True)])
def test_token_limit_tells_whether_the_text_is_whole(max_tokens: int, complete: bool) -> None:
    """A text that may end where the limit cuts it is complete all the same."""
    row, walk = row_for(regex_source("aa+"), max_tokens=max_tokens, jump_forward=False), walk_for()
    for _ in range(max_tokens):
        walk.advance(row, ids("a")[0])
    assert ("max_tokens", complete) == (row.stop_reason, row.complete)


def test_a_limit_of_zero_returns_nothing() -> None:
    """Not even forced tokens."""
    row = row_for(of_schema({"const": 1}), max_tokens=0)
    walk_for().begin(row)
    assert ([], "max_tokens", False) == (row.token_ids, row.stop_reason, row.complete)


def test_the_empty_document_is_finished_before_it_begins() -> None:
    """A pattern that only the empty text matches ends without a draw, complete."""
    row = row_for(regex_source("a{0}"))
    walk_for().begin(row)
    assert ("end_turn", True, "") == (row.stop_reason, row.complete, choice_of(row).text)


def test_a_forbidden_token_changes_nothing() -> None:
    """What the matcher refuses is not appended."""
    row = row_for(regex_source("[ab]"))
    with pytest.raises(ForbiddenTokenError):
        walk_for().advance(row, ids("1")[0])
    assert (row.token_ids, bytes(row.data), row.over) == ([], b"", False)


def test_half_a_character_at_the_end_is_dropped() -> None:
    """The limit cut a character; its first byte stays in the tokens and leaves the text."""
    row = row_for(None, max_tokens=2)
    for token_id in (9, 28):
        walk_for().advance(row, token_id)
    assert ("a", (9, 28)) == (choice_of(row).text, choice_of(row).token_ids)


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    """Free text may hold any bytes; the answer is Unicode."""
    row = row_for(None, max_tokens=3)
    for token_id in (9, 29, 9):
        walk_for().advance(row, token_id)
    assert choice_of(row).text == "a\ufffda"


def stopped(pieces: list[bytes], stops: tuple[bytes, ...]) -> tuple[str | None, str]:
    """Stop string and text after appending pieces one by one until one is found."""
    row = row_for(None, sampling=Sampling(stop=tuple(stop.decode() for stop in stops)))
    for piece in pieces:
        row.data += piece
        cut_at_stop(row, len(piece))
        if row.over:
            break
    return row.stop_sequence, bytes(row.data[: row.text_bytes]).decode()


@given(
    st.text("ab", max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 5), min_size=12, max_size=12),
)
def test_stop_strings_do_not_depend_on_the_cut_into_tokens(text: str, stops: list[str], cuts: list[int]) -> None:
    """The stop string that is complete first, the longest of those, wherever tokens begin and end."""
    expected: tuple[str | None, str] = None, text
    for end in range(1, len(text) + 1):
        hits = [stop for stop in stops if text[:end].endswith(stop)]
        if hits:
            longest = max(hits, key=len)
            expected = longest, text[: end - len(longest)]
            break
    pieces, start = [], 0
    for cut in cuts:
        pieces.append(text[start : start + cut].encode())
        start += cut
    assert expected == stopped(pieces, tuple(stop.encode() for stop in stops))


def test_stop_string_spans_tokens_and_forced_text() -> None:
    """It is found inside forced tokens too, and what is forced after it is not taken."""
    row = row_for(of_schema({"const": "abcabc"}), CHARACTERS, sampling=Sampling(stop=("bca",)))
    walk_for(CHARACTERS).begin(row)
    assert ("stop_sequence", "bca", '"a') == (row.stop_reason, row.stop_sequence, choice_of(row).text)
    assert ids('"abca', CHARACTERS) == row.token_ids
    assert not row.complete


def test_what_is_left_before_a_stop_string_may_be_whole() -> None:
    """Complete is judged on the text that remains."""
    row, walk = row_for(regex_source("a+b*"), sampling=Sampling(stop=("b",))), walk_for()
    for token_id in ids("a") + ids("b"):
        walk.advance(row, token_id)
    assert ("stop_sequence", True, "a") == (row.stop_reason, row.complete, choice_of(row).text)
