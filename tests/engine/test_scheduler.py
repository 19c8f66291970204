"""Who is in the next batch."""

from __future__ import annotations

from concurrent.futures import Future

from engine.request import Request
from engine.scheduler import Scheduler
from engine.sequence import Job, Sequence, sequences_of
from engine.slots import Slots


def job_of(count: int) -> Job:
    """A request of so many sequences, ready to be queued."""
    job = Job(Request(prompts=((),), max_tokens=5, n=count), Future(), seed=0, submitted_s=0.0)
    job.sequences = list(sequences_of(job, context_length=100))
    return job


def scheduler_of(slots: int) -> Scheduler:
    """A scheduler with so many slots, of a model that keeps nothing."""
    return Scheduler(Slots(slots, lambda _slot: None))


def slots(rows: list[Sequence]) -> list[int]:
    """Slot of each."""
    return [row.slot for row in rows]


def test_first_come_first_served_up_to_the_slots() -> None:
    """Only as many run as there are slots, in the order of arrival."""
    scheduler, job = scheduler_of(2), job_of(3)
    scheduler.add(job.sequences)
    schedule = scheduler.schedule()
    assert job.sequences[:2] == schedule.rows == schedule.joined
    assert (1, 2) == (scheduler.waiting, scheduler.slots_taken)


def test_a_row_joins_when_one_leaves() -> None:
    """The slot that was given back goes to the next in line; who ran before stays where it was."""
    scheduler, job = scheduler_of(2), job_of(3)
    scheduler.add(job.sequences)
    first, second = scheduler.schedule().rows
    scheduler.release(first)
    schedule = scheduler.schedule()
    assert [second, job.sequences[2]] == schedule.rows
    assert [job.sequences[2]] == schedule.joined


def test_slots_are_distinct_and_reused() -> None:
    """Over many joins and leaves no two running rows share a slot, and no slot is lost."""
    scheduler = scheduler_of(3)
    scheduler.add(job_of(20).sequences)
    for _ in range(20):
        rows = scheduler.schedule().rows
        assert len(set(slots(rows))) == len(rows)
        assert set(slots(rows)) <= {0, 1, 2}
        if rows:
            scheduler.release(rows[len(rows) // 2])
    assert scheduler.idle


def test_releasing_twice_is_harmless() -> None:
    """A slot that another row has by now stays with it."""
    scheduler, job = scheduler_of(1), job_of(2)
    scheduler.add(job.sequences)
    (first,) = scheduler.schedule().rows
    scheduler.release(first)
    (second,) = scheduler.schedule().rows
    scheduler.release(first)
    assert [second] == scheduler.running


def test_drop_takes_a_request_out_of_line_and_slots() -> None:
    """All sequences of one request go, waiting or running; those of others move up."""
    scheduler, gone, stays = scheduler_of(2), job_of(3), job_of(2)
    scheduler.add([*gone.sequences, *stays.sequences])
    scheduler.schedule()
    scheduler.drop(gone)
    assert stays.sequences == scheduler.schedule().rows


def test_withdrawing_takes_some_sequences_out() -> None:
    """Running or waiting; others of the same request stay, and the slots go to who is next."""
    scheduler, job = scheduler_of(2), job_of(5)
    scheduler.add(job.sequences)
    scheduler.schedule()
    scheduler.withdraw([job.sequences[0], job.sequences[2]])
    assert [job.sequences[1], job.sequences[3]] == scheduler.schedule().rows
    assert (1, 0) == (scheduler.waiting, scheduler.slots_free)


def test_free_slots_are_those_that_nobody_waits_for() -> None:
    """Who waits has them as good as taken."""
    scheduler, job = scheduler_of(4), job_of(3)
    assert 4 == scheduler.slots_free
    scheduler.add(job.sequences)
    assert 1 == scheduler.slots_free
    scheduler.schedule()
    assert 1 == scheduler.slots_free
    scheduler.add(job_of(3).sequences)
    assert 0 == scheduler.slots_free
