"""Between the engine and a slow reader: nothing is lost, nothing changes places, and little is kept."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.outbox import JOIN_FROM, JOINED_TOKENS, Outbox
from engine import Delta, StreamEvent, TokenLogprobs


def taken(outbox: Outbox) -> list[StreamEvent]:
    """All that waits."""
    return asyncio.run(outbox.take())


def delta(index: int, number: int) -> Delta:
    """The number as text, as token and as log-probability."""
    return Delta(index, f"{number};", (number,), (TokenLogprobs(number, -1.0, ()),))


def test_a_reader_who_keeps_up_sees_each_event() -> None:
    """A few events are handed over as they came."""
    outbox = Outbox()
    events = [delta(0, number) for number in range(JOIN_FROM)]
    for event in events:
        outbox.put(event)
    assert events == taken(outbox)


@given(st.lists(st.integers(0, 3), max_size=1000))
def test_joined_deltas_hold_everything(indices: list[int]) -> None:
    """Whatever the order of choices, each has its own text, tokens and log-probabilities in order, and no others."""
    outbox = Outbox()
    for number, index in enumerate(indices):
        outbox.put(delta(index, number))
    outbox.close()
    events = [event for event in taken(outbox) if isinstance(event, Delta)]
    assert len(events) <= JOIN_FROM + 4
    for index in range(4):
        numbers = [number for number, other in enumerate(indices) if other == index]
        own = [event for event in events if event.index == index]
        assert "".join(f"{number};" for number in numbers) == "".join(event.text for event in own)
        assert numbers == [token for event in own for token in event.token_ids]
        assert numbers == [known.token_id for event in own for known in event.logprobs or ()]


def test_joined_deltas_have_a_bound() -> None:
    """Joining copies what is there, so it ends somewhere."""
    outbox = Outbox()
    for number in range(5 * JOINED_TOKENS):
        outbox.put(delta(0, number))
    sizes = [len(event.token_ids) for event in taken(outbox) if isinstance(event, Delta)]
    assert (JOINED_TOKENS, JOIN_FROM + 4) == (max(sizes), len(sizes))


def test_the_prompt_comes_first() -> None:
    """What is known of the prompt stays with the delta that it came with."""
    outbox = Outbox()
    for _ in range(JOIN_FROM):
        outbox.put(delta(1, 0))
    outbox.put(Delta(0, "", (), prompt_logprobs=(None,)))
    outbox.put(delta(0, 5))
    last = taken(outbox)[-1]
    assert isinstance(last, Delta)
    assert ((None,), (5,)) == (last.prompt_logprobs, last.token_ids)


def test_an_error_comes_after_what_was_before_it() -> None:
    """The events first, then the error, each time it is asked."""
    outbox = Outbox()
    outbox.put(delta(0, 1))
    outbox.close(ValueError("made up"))
    assert [delta(0, 1)] == taken(outbox)
    with pytest.raises(ValueError, match="made up"):
        taken(outbox)


def test_the_end_is_an_empty_list() -> None:
    """As often as it is asked."""
    outbox = Outbox()
    outbox.close()
    assert [[], []] == [taken(outbox), taken(outbox)]
