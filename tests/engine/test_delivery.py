"""What may be shown of an answer under way: joined it is the answer's text, and nothing of it is ever taken back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.constraint import cut_at_stop
from engine.delivery import Outlet, held_back
from engine.request import Choice, Delta, Request, Sampling, StreamEvent, TokenLogprobs
from engine.sequence import Sequence, whole_characters
from tests.toy import TOY, rows_for


def streamed(stops: tuple[str, ...] = (), n: int = 1, logprobs: int | None = None) -> list[Sequence]:
    """Rows of free text."""
    return rows_for(Request(((),), 100, n, Sampling(stop=stops), logprobs=logprobs), TOY)


def deliver(row: Sequence, pieces: list[bytes]) -> tuple[list[StreamEvent], list[bytes]]:
    """Give a row its bytes piece by piece, a step each, and return its events and what it had after each step."""
    events: list[StreamEvent] = []
    outlet, had = Outlet(row.job, events.extend), list[bytes]()
    for number, piece in enumerate(pieces):
        row.token_ids.append(number)
        row.data += piece
        cut_at_stop(row, len(piece))
        last = number + 1 == len(pieces)
        if last and not row.over:
            row.stop_reason = "max_tokens"
        outlet.deliver({id(row)} if row.over else ())
        had.append(bytes(row.data))
        if row.over:
            break
    return events, had


PIECES = st.lists(
    st.one_of(st.binary(min_size=1, max_size=3), st.sampled_from(["a", "ab", "b", "é", "日", "🐈"]).map(str.encode)),
    min_size=1,
    max_size=12,
)
STOPS = st.lists(st.one_of(st.text("ab", min_size=1, max_size=4), st.sampled_from(["é", "a日"])), max_size=3)


@given(PIECES, STOPS, st.data())
def test_joined_deltas_are_the_text(pieces: list[bytes], stops: list[str], data: st.DataObject) -> None:
    """Wherever tokens begin and end, inside characters and stop strings too; the choice comes last and once."""
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)), max_size=8)) | {len(whole)})
    pieces = [whole[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
    (row,) = streamed(tuple(stops))
    events, _ = deliver(row, pieces)
    *deltas, choice = events
    assert isinstance(choice, Choice)
    assert all(isinstance(delta, Delta) for delta in deltas)
    assert choice.text == "".join(delta.text for delta in deltas if isinstance(delta, Delta))
    assert choice.token_ids == tuple(i for delta in deltas if isinstance(delta, Delta) for i in delta.token_ids)


@given(PIECES, STOPS)
def test_as_much_is_shown_as_can_be(pieces: list[bytes], stops: list[str]) -> None:
    """After each step: all whole characters before the longest end that a stop string begins with."""
    (row,) = streamed(tuple(stops))
    events, had = deliver(row, pieces)
    shown = ""
    for event, data in zip(events, had[:-1], strict=False):
        assert isinstance(event, Delta)
        shown += event.text
        begins = [stop.encode()[:k] for stop in stops for k in range(1, len(stop.encode()))]
        held = max((len(begin) for begin in begins if data.endswith(begin)), default=0)
        assert shown == whole_characters(data[: len(data) - held])


def test_held_back_is_the_longest_beginning_of_a_stop_string() -> None:
    """A whole stop string is no beginning of itself, but may be that of a longer one."""
    assert 0 == held_back(b"abc", ())
    assert 2 == held_back(b"xab", (b"abc", b"bx"))
    assert 1 == held_back(b"xab", (b"ab", b"bx"))
    assert 2 == held_back(b"xab", (b"ab", b"abx"))


def test_a_step_without_news_sends_nothing() -> None:
    """No event for a row that got no token, none after its end."""
    (row,) = streamed()
    events: list[StreamEvent] = []
    outlet = Outlet(row.job, events.extend)
    outlet.deliver(())
    assert [] == events
    row.token_ids.append(9)
    row.data += b"a"
    row.stop_reason = "max_tokens"
    outlet.deliver({id(row)})
    outlet.deliver({id(row)})
    assert [Delta, Choice] == [type(event) for event in events]


def test_text_and_tokens_wait_for_their_probabilities() -> None:
    """Where log-probabilities were asked for, a step's tokens and text come once those of all its tokens are known."""
    (row,) = streamed(logprobs=0)
    events: list[StreamEvent] = []
    outlet = Outlet(row.job, events.extend)
    known = [TokenLogprobs(i, -1.0, ()) for i in range(4)]
    for tokens, data, logprobs in (([0, 1], b"ab", known[:1]), ([2, 3], b"cd", known[1:3]), ([], b"", known[3:])):
        row.token_ids += tokens
        row.data += data
        row.logprobs += logprobs
        outlet.deliver(())
    assert [Delta(0, "ab", (0, 1), tuple(known[:2])), Delta(0, "cd", (2, 3), tuple(known[2:]))] == events


def test_nothing_is_sent_before_the_probabilities_of_the_prompt_are_whole() -> None:
    """A long prompt is scored in pieces; they come with the first delta."""
    asked = Request(((9, 10),), 100, logprobs=0, prompt_logprobs=True)
    (row,) = rows_for(asked, TOY)
    events: list[StreamEvent] = []
    outlet = Outlet(row.job, events.extend)
    first, second = None, TokenLogprobs(10, -1.0, ())
    row.prompt_logprobs.append(first)
    outlet.deliver(())
    assert [] == events
    row.prompt_logprobs.append(second)
    row.token_ids.append(9)
    row.data += b"a"
    row.logprobs.append(TokenLogprobs(9, -2.0, ()))
    outlet.deliver(())
    assert [Delta(0, "a", (9,), tuple(row.logprobs), (first, second))] == events


def test_a_row_that_is_over_but_listens_is_not_done() -> None:
    """Its text comes at once, its choice when it has left the batch."""
    (row,) = streamed()
    events: list[StreamEvent] = []
    outlet = Outlet(row.job, events.extend)
    row.token_ids.append(9)
    row.data += b"a"
    row.stop_reason = "end_turn"
    outlet.deliver(())
    assert [Delta(0, "a", (9,))] == events
    outlet.deliver({id(row)})
    assert isinstance(events[-1], Choice)


def test_all_answers_of_a_step_come_in_one_hand_over() -> None:
    """Two rows, one post."""
    rows = streamed(n=2)
    posts: list[list[StreamEvent]] = []
    outlet = Outlet(rows[0].job, posts.append)
    for row in rows:
        row.token_ids.append(9)
        row.data += b"a"
    outlet.deliver(())
    assert [[Delta(0, "a", (9,)), Delta(1, "a", (9,))]] == posts
