"""Probabilities of every token of an answer, forced ones too: which logits to ask the model for, and what to keep.

In: the rows of a step that want log-probabilities or diagnostics, and after the step the logits that were asked for.
Out: `Sequence.logprobs`, `prompt_logprobs` and, at the end, `diagnostics`. Cost: rows that want nothing pay nothing.
One that wants them pays for each forced token what a prompt's token costs and a row of logits.

The logits after a token say what was thought of the next one. So a forced token's come from inside the chunk that it is
fed in, one step later than the token itself; and what follows from that:

- A text that ends in forced tokens is over before their probabilities are known. Its row *listens* for one more pass,
  in which nothing is drawn for it, and keeps its slot until then.
- Before the first token of an empty prompt there is nothing to feed: the row listens to a pass without tokens.
- A long chunk, a prompt whose own log-probabilities are asked for above all, is fed in pieces, so that no step has more
  than `MOST_LOGITS` beside the last ones; the row listens until the last piece. So it does where `feeding` gives it no
  room for more.

Prompt and answer are one list of tokens here, and `scored` says how many of them are done with. Masks are taken from a
second matcher, a step behind the row's own. Rejected: probabilities of forced tokens as 1 (they are what the model says
they are), and a pass of its own for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.diagnostics import LimitWatch, Position, diagnose
from engine.logprobs import kept_mass, token_logprobs
from engine.outputs import Outputs
from engine.penalties import is_penalised, offset_of
from engine.request import Request
from engine.sampling import WORD_BITS, apply_mask, are_allowed
from engine.sequence import Sequence
from schemas_cache import KatagamiError, Matcher, Vocabulary

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]
WordArray = NDArray[np.uint32]

MOST_LOGITS = 1 << 23  # floats of inner positions in one step: 32 MB, 170 positions of 49,152 tokens


@dataclass(slots=True, eq=False)
class Record:
    """What is being kept of one sequence."""

    row: Sequence
    prompt: tuple[int, ...]
    scored: int  # of prompt and answer; the first token of a prompt counts as done with, since nothing is before it
    matcher: Matcher | None  # before the next token to be scored
    watch: LimitWatch | None  # of a JSON document whose diagnostics are wanted; moves the matcher
    positions: list[Position] = field(default_factory=list)
    fed: int = 0  # tokens that the model gets of it in this step
    wanted: int = 0  # how many rows of logits it wants in this step: the last one, and those before it

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.row.job.request

    @property
    def unscored(self) -> int:
        """Tokens that are there, and whose probabilities are not known."""
        return len(self.prompt) + len(self.row.token_ids) - self.scored

    @property
    def listens(self) -> bool:
        """Whether nothing is drawn for the row in this step."""
        return self.row.over or self.fed < len(self.row.pending)

    def tokens(self, most: int) -> list[tuple[int, int]]:
        """The next tokens to be scored, at most so many, each after its index in the answer; below 0 in the prompt."""
        start, size = self.scored, len(self.prompt)
        inside = [(place - size, self.prompt[place]) for place in range(start, min(start + most, size))]
        first = max(start - size, 0)
        return inside + list(enumerate(self.row.token_ids[first : first + most - len(inside)], first))

    def plan(self, room: int, most: int) -> None:
        """Decide what is fed in the coming step: as many tokens as have room, with at most so many rows of logits."""
        pending, unscored = len(self.row.pending), self.unscored
        if unscored and pending == unscored:  # nothing is before the first of them
            self.fed, self.wanted = 0, 1
            return
        self.fed = min(pending - 1 if self.row.over else pending, room)
        known = len(self.prompt) + len(self.row.token_ids) - pending + self.fed  # tokens that the model has seen then
        self.wanted = max(0, known + 1 - self.scored)
        if self.wanted > most:
            self.fed, self.wanted = self.fed - (self.wanted - most), most


class Plan(NamedTuple):
    """What is done with a row in a step."""

    tokens: int  # fed to the model
    listens: bool  # nothing is drawn for it
    waits: bool  # it has no part in the step at all


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One token whose probabilities are known now."""

    record: Record
    logits_row: int
    token_id: int
    place: int  # index in the answer; below 0 in the prompt
    mask: WordArray  # uint32 (W,): what might have stood there
    pointer: str

    @property
    def is_masked(self) -> bool:
        """Whether its log-probability is that under the mask."""
        return self.place >= 0 and self.record.request.logprobs_from == "masked"


class Recorder:
    """Keeps the records of the rows of one model that want any; used by one thread.

    Parameters
    ----------
    vocabulary : Vocabulary
        V tokens.
    drawable : uint32, shape (W,)
        What free text is drawn from.
    """

    def __init__(self, vocabulary: Vocabulary, drawable: WordArray) -> None:
        self._token_bytes, self._drawable = vocabulary.token_bytes, drawable
        self._records: dict[int, Record] = {}  # by slot

    @property
    def active(self) -> bool:
        """Whether any row wants something."""
        return bool(self._records)

    def open(self, row: Sequence) -> None:
        """Begin with a row that has got a slot, and has taken what is forced."""
        self._records.pop(row.slot, None)  # of a sequence that was dropped
        request = row.job.request
        if request.logprobs is not None or request.diagnostics:
            self._records[row.slot] = record_of(row)
            if request.prompt_logprobs and row.prompt:
                row.prompt_logprobs.append(None)

    def owes(self, row: Sequence) -> bool:
        """Whether a row has tokens whose probabilities it still has to wait for."""
        record = self._records.get(row.slot)
        return record is not None and record.row is row and row.error is None and record.unscored > 0

    def most_logits(self, rows: Ordered[Sequence], width: int) -> int:
        """How many rows of logits, each so wide, a row of the step may have."""
        return max(2, MOST_LOGITS // (width * max(1, sum(row.slot in self._records for row in rows))))

    def plan(self, row: Sequence, room: int, most_logits: int) -> Plan:
        """Decide what is fed of a row in the coming step: at most `room` tokens."""
        record = self._records.get(row.slot)
        if record is None:
            return Plan(room, room < len(row.pending), waits=room == 0 and bool(row.pending))
        record.plan(room, most_logits)
        return Plan(record.fed, record.listens, waits=record.fed == record.wanted == 0)

    def inner(self, rows: Ordered[Sequence], row_offsets: IntArray) -> IntArray:
        """Indices of the packed tokens after which logits are wanted, beside the last of each row: `Batch.inner`."""
        inner = [np.zeros(0, np.int32)]
        for row, end in zip(rows, row_offsets[1:].tolist(), strict=True):
            record = self._records.get(row.slot)
            if record is not None:
                inner.append(np.arange(end - record.wanted, end - 1, dtype=np.int32))
        return np.concatenate(inner)

    def score(self, rows: Ordered[Sequence], outputs: Outputs) -> None:
        """Keep the probabilities of all tokens that are known now.

        Parameters
        ----------
        rows : sequence of Sequence, length B
            Those of the step, as they were fed, after what was drawn for them was taken.
        outputs : Outputs, length B + M
            Of the model: those after the last tokens of the rows, then the inner ones in the order of the rows.
        """
        scored: list[Scored] = []
        inner = len(rows)
        for number, row in enumerate(rows):
            record = self._records.get(row.slot)
            if record is not None and record.wanted:
                numbers = [*range(inner, inner + record.wanted - 1), number]
                inner += record.wanted - 1
                scored += [] if row.error is not None else self._collect(record, numbers)
        if scored:
            picked = outputs.logits([one.logits_row for one in scored])
            self._keep_logprobs(scored, picked)
            self._keep_positions(scored, picked)

    def score_late(self, row: Sequence, outputs: Outputs) -> None:
        """Keep the probabilities of a token that was taken after its step, from the one output of then."""
        record = self._records.get(row.slot)
        if record is not None:
            record.wanted = 1
            self.score([row], outputs)

    def close(self, row: Sequence) -> None:
        """Sum up a row that is over and owes nothing."""
        record = self._records.get(row.slot)
        if record is None or record.row is not row:  # another's, where it never got a slot
            return
        del self._records[row.slot]
        if row.error is None and record.request.diagnostics:
            limited = () if record.watch is None else record.watch.limited
            row.diagnostics = diagnose(record.positions, row.forced_tokens, limited)

    def _collect(self, record: Record, logits_rows: list[int]) -> list[Scored]:
        """Walk over the tokens that stand where these rows of logits look at."""
        found: list[Scored] = []
        tokens = record.tokens(len(logits_rows))
        try:
            for logits_row, (place, token_id) in zip(logits_rows, tokens, strict=False):  # the end token is no token
                mask, pointer = self._step(record, token_id) if place >= 0 else (self._drawable, "")
                found.append(Scored(record, logits_row, token_id, place, mask, pointer))
        except KatagamiError as error:  # a mask inside forced text that outgrew the schema's limits, say
            record.row.error = error
        record.scored += len(found)
        return found

    def _step(self, record: Record, token_id: int) -> tuple[WordArray, str]:
        """Mask and pointer at a token of the answer; the record's matcher moves on over it."""
        matcher, data = record.matcher, self._token_bytes[token_id]
        if matcher is None:
            return self._drawable, ""
        mask = matcher.mask()
        if record.watch is None:
            matcher.advance_bytes(data)
            return mask, ""
        pointer = record.watch.pointer(data[0])
        record.watch.take(data)
        return mask, pointer

    def _keep_logprobs(self, scored: list[Scored], logits: FloatArray) -> None:
        wanted = [one.record.request.logprobs is not None for one in scored]
        masked = [one.is_masked for one in scored]
        raw_rows = [number for number in range(len(scored)) if wanted[number] and not masked[number]]
        masked_rows = [number for number in range(len(scored)) if wanted[number] and masked[number]]
        if raw_rows:
            keep([scored[number] for number in raw_rows], logits[raw_rows, : len(self._token_bytes)])
        if masked_rows:
            bound = [scored[number] for number in masked_rows]
            keep(bound, self._masked_scores(bound, logits[masked_rows]))

    def _masked_scores(self, scored: list[Scored], logits: FloatArray) -> FloatArray:
        """Scores (R, 32 W) as a draw at these positions would begin with."""
        masks = np.stack([one.mask for one in scored])
        scores = np.empty((len(masks), masks.shape[1] * WORD_BITS), np.float32)
        apply_mask(logits, masks, scores)
        for one, row in zip(scored, scores, strict=True):
            sampling = one.record.request.sampling
            if is_penalised(sampling):
                row += offset_of(sampling, one.record.row.token_ids[: one.place], len(row))
        return scores

    def _keep_positions(self, scored: list[Scored], logits: FloatArray) -> None:
        rows = [n for n, one in enumerate(scored) if one.place >= 0 and one.record.request.diagnostics]
        if not rows:
            return
        logits, masks = logits[rows, : len(self._token_bytes)], np.stack([scored[number].mask for number in rows])
        masses, best = kept_mass(logits, masks), logits.argmax(axis=1).astype(np.int32)
        intervened = ~are_allowed(masks, best)
        for number, mass, wanted_id, bent in zip(
            rows, masses.tolist(), best.tolist(), intervened.tolist(), strict=True
        ):
            one = scored[number]
            one.record.positions.append(Position(one.pointer, mass, wanted_id, bent, one.token_id))


def record_of(row: Sequence) -> Record:
    """The record of a row at its beginning."""
    request = row.job.request
    matcher = watch = None
    if row.matcher is not None and (request.diagnostics or request.logprobs_from == "masked"):
        matcher = row.matcher.fork()
        matcher.reset()
        is_json = request.source is not None and request.source.kind in ("json_schema", "json_object")
        watch = LimitWatch(matcher) if is_json and request.diagnostics else None
    size = len(row.prompt)
    return Record(row, row.prompt, min(size, 1) if request.prompt_logprobs else size, matcher, watch)


def keep(scored: list[Scored], scores: FloatArray) -> None:
    """Add to each record the log-probabilities of its tokens under these scores, float32 (R, N)."""
    counts = [one.record.request.logprobs or 0 for one in scored]
    for one, logprobs in zip(scored, token_logprobs(scores, [one.token_id for one in scored], counts), strict=True):
        (one.record.row.logprobs if one.place >= 0 else one.record.row.prompt_logprobs).append(logprobs)
