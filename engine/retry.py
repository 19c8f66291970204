"""Validate and draw again: free text, several attempts at once, until one is what was asked for.

In: a request with `retry`, its schema compiled. Out: for each answer the first attempt, in the order of their numbers,
that is accepted; or the last one, marked `max_attempts`. What is accepted is the model's own distribution, conditioned
on the language, which a mask bends (rejection sampling); the cost is one over the acceptance rate.

An attempt is accepted where its bytes are in the language of the compiled source, and the validator that came with the
request does not say no. The language is the mask's own: this order of keys, this whitespace, closed objects. So both
methods promise the same texts, and differ in their probabilities alone; who takes documents in any order or layout asks
for `key_order: any` and `whitespace: flexible`. Asking the validator alone would pass what the options forbid.

Attempts run in waves of 1, 1, 2, 4 and so on, as far as slots are free: never more than twice as many as it takes, in a
time that grows with their logarithm. Which one is taken does not depend on the waves: each attempt has a random stream
of its own, and one that ends first does not win over one of a lower number that is still under way. Taking the first
to end would prefer short texts.

A trial belongs to the decode thread. Judging is slower than a step, and may have the automaton learn a long text: it
belongs on another thread. Cost: a walk over the bytes of each attempt, and its validation. Rejected: ending an attempt
at its first byte outside the language, which saves part of a failure and leaves nothing whole to show when all fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.constraint import is_document
from engine.request import Attempts, Choice, Delta, StreamEvent
from engine.sequence import Job, Sequence, choice_of, sequences_of
from schemas_cache import ForbiddenBytesError


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of one attempt."""

    choice: Choice
    whole: bool  # a document of the source
    accepted: bool  # and the validator does not say no


@dataclass(slots=True, eq=False)
class Line:
    """The attempts at one answer."""

    rows: list[Sequence]  # by the number of the attempt, those that were begun
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    passed: int = 0  # attempts that failed, without a gap from the first one on
    choice: Choice | None = None  # once it is decided


@dataclass(frozen=True, slots=True)
class Move:
    """What follows from a verdict."""

    new: list[Sequence]  # attempts to begin
    needless: list[Sequence]  # attempts that nobody waits for any more
    choice: Choice | None  # the answer, where it is decided by this


NO_MOVE = Move([], [], None)


class Trial:
    """All attempts of one request; used by the decode thread."""

    def __init__(self, job: Job, context_length: int) -> None:
        if job.request.retry is None:
            raise ValueError("the request asks for no attempts")
        self._most = job.request.retry.max_attempts
        self._job, self._context_length = job, context_length
        self._lines = {row.index: Line([row]) for row in sequences_of(job, context_length)}

    @property
    def first(self) -> list[Sequence]:
        """The first attempt at each answer."""
        return [line.rows[0] for line in self._lines.values()]

    @property
    def over(self) -> bool:
        """Whether all answers are decided."""
        return all(line.choice is not None for line in self._lines.values())

    @property
    def choices(self) -> list[Choice]:
        """The answers that are decided."""
        return [line.choice for line in self._lines.values() if line.choice is not None]

    def take(self, row: Sequence, verdict: Verdict, slots_free: int) -> Move:
        """Note what is said of an attempt; new ones are one, or as many as there are free slots at the most."""
        line = self._lines[row.index]
        if line.choice is not None:
            return NO_MOVE
        line.verdicts[row.attempt] = verdict
        while (first := line.verdicts.get(line.passed)) is not None and not first.accepted:
            line.passed += 1
        if first is not None or line.passed == self._most:
            line.choice = self._decided(line, first)
            return Move([], line.rows[line.passed + 1 :], line.choice)
        if line.passed < len(line.rows):
            return NO_MOVE
        wave = min(max(1, min(len(line.rows), slots_free)), self._most - len(line.rows))
        new = [self._attempt(row.index, len(line.rows) + number) for number in range(wave)]
        line.rows += new
        return Move(new, [], None)

    def _attempt(self, index: int, attempt: int) -> Sequence:
        row = next(row for row in sequences_of(self._job, self._context_length) if row.index == index)
        row.attempt = attempt
        return row

    def _decided(self, line: Line, first: Verdict | None) -> Choice:
        """The answer: the first accepted attempt, or the last of all where none was."""
        attempts = Attempts(
            made=min(line.passed + 1, self._most),
            judged=len(line.verdicts),
            accepted=sum(verdict.accepted for verdict in line.verdicts.values()),
            tokens=sum(len(row.token_ids) for row in line.rows),
            model_calls=sum(row.model_calls for row in line.rows),
        )
        if first is None:
            last = line.verdicts[self._most - 1]
            ending = replace(last.choice, stop_reason="max_attempts", stop_sequence=None, complete=last.whole)
        else:
            reason = first.choice.stop_reason if first.choice.stop_sequence is not None else "end_turn"
            ending = replace(first.choice, stop_reason=reason, complete=True)
        return replace(ending, attempts=attempts)


def verdict_on(row: Sequence) -> Verdict:
    """Judge an attempt that is over; on any thread but the decode thread.

    Raises
    ------
    SchemaTooComplexError
        When the automaton outgrows its limits on the way.
    """
    job = row.job
    if job.lookup is None or job.request.retry is None:
        raise ValueError("there is nothing to judge by")
    choice, data = choice_of(row), bytes(row.data[: row.text_bytes])
    try:
        whole = is_document(job.lookup.compiled.matcher(), data)
    except ForbiddenBytesError:
        whole = False
    return Verdict(choice, whole, whole and job.request.retry.is_valid(choice.text) is not False)


def events_of(choice: Choice) -> list[StreamEvent]:
    """What a stream shows of an answer that was not known before it was whole."""
    return [Delta(choice.index, choice.text, choice.token_ids, choice.logprobs), choice]
