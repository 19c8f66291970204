"""Who is taken, who is late, and when the refused had better come again."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from engine.admission import LONGEST_WAIT_S, SHORTEST_WAIT_S, Admission
from engine.errors import QueueFullError
from engine.request import Request
from engine.sequence import Job

DECODERS = ("one", "other")


def job(n: int = 1, max_tokens: int = 10, deadline_s: float | None = None, submitted_s: float = 0.0) -> Job:
    """A request of so many rows."""
    return Job(Request(((),), max_tokens, n, deadline_s=deadline_s), Future(), 0, submitted_s)


def admission(running: int, queued: int, max_running: int = 2, max_queued: int = 3) -> Admission[str]:
    """With so many requests of a row each for the first decoder."""
    line = Admission[str](max_running, max_queued)
    for _ in range(running + queued):
        line.add("one", job())
    return line


def is_taken(line: Admission[str], decoder: str = "one") -> bool:
    """Whether there is a place."""
    try:
        line.check(decoder, DECODERS, 0.0)
    except QueueFullError:
        return False
    return True


def test_as_many_wait_as_may() -> None:
    """Two run and three wait; the next one is refused, but not for a decoder with a free slot."""
    assert is_taken(admission(2, 2))
    assert not is_taken(admission(2, 3))
    assert is_taken(admission(2, 3), "other")


def test_who_is_gone_leaves_a_place() -> None:
    """A request that was done, and one that was cancelled and is not yet taken out."""
    line, leaver = admission(2, 2), job()
    line.add("one", leaver)
    assert not is_taken(line)
    leaver.future.cancel()
    assert is_taken(line)
    assert line.remove(leaver)
    assert not line.remove(leaver)
    assert is_taken(line)


def test_prewarms_take_no_slots() -> None:
    """However many there are, a request that wants tokens has both slots."""
    line = Admission[str](2, 1)
    for _ in range(5):
        line.add("one", job(max_tokens=0, n=2))
    assert is_taken(line)
    line.add("one", job(n=2))
    line.add("one", job())
    assert not is_taken(line)


def refused_s(line: Admission[str], now_s: float) -> float:
    """When the refused one shall come again, seconds from now."""
    with pytest.raises(QueueFullError) as caught:
        line.check("one", DECODERS, now_s)
    return caught.value.retry_after_s


def test_the_refused_come_again_one_after_another() -> None:
    """A request takes 4 s and two run, so that a place comes free every 2 s: each is told of another one."""
    line = admission(2, 3)
    for _ in range(200):
        line.took(4.0)
    assert [2.0, 4.0, 6.0] == pytest.approx([refused_s(line, 100.0) for _ in range(3)], rel=1e-6)
    assert pytest.approx(5.0, rel=1e-6) == refused_s(line, 103.0)
    assert pytest.approx(2.0, rel=1e-6) == refused_s(line, 1000.0)


def test_estimates_stay_within_what_is_of_use() -> None:
    """Neither at once nor after the time at which clients give up, however many come or fast requests are."""
    line = admission(2, 3)
    assert LONGEST_WAIT_S == max(refused_s(line, 0.0) for _ in range(500))
    quick = admission(2, 3)
    for _ in range(200):
        quick.took(0.001)
    assert SHORTEST_WAIT_S == refused_s(quick, 0.0)


def test_late_ones_are_listed_once_their_time_is_over() -> None:
    """Each by its own deadline; `remaining_s` says when the next one is due."""
    line = Admission[str](2, 2)
    assert line.remaining_s(0.0) is None
    soon, later, never = job(deadline_s=1.0, submitted_s=5.0), job(deadline_s=3.0, submitted_s=5.0), job()
    for one in (later, soon, never):
        line.add("one", one)
    assert ([], 0.5) == (line.late(5.5), line.remaining_s(5.5))
    assert [("one", soon)] == line.late(6.0)
    line.remove(soon)
    assert [] == line.late(7.0)
    assert 1.0 == line.remaining_s(7.0)
    line.remove(later)
    assert [] == line.late(1e9)
    assert line.remaining_s(9.0) is None
    assert never in line


def test_waiting_are_those_that_have_not_begun() -> None:
    """Whatever they wait for."""
    line = admission(1, 1)
    line.jobs[0].started_s = 1.0
    assert (1, 2) == (line.waiting, len(line))
