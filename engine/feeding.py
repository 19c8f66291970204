"""Which new tokens of which rows the model gets in a step: long prompts come in parts, so that others go on meanwhile.

In: the rows of a step with the tokens that the model has not seen. Out: `Feed`. Cost: a look at each row.

Where a step has rows that have begun to draw, prompts share `limit` tokens between them, first come first served: the
first is done soonest, and nobody is done later than if they took turns. A row whose tokens are not all fed is only
listening: nothing is drawn for it, and no logits are computed. A step without such rows takes more at once, since
nobody waits. What a schema forces comes whole with the token before it, unless it is as long as a prompt.

Rejected: a share for each row in turn, by which all of them are done late; whole prompts between steps of the others,
which stops them for as long as a prompt takes: 10 s for 4,000 tokens of SmolLM2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter

import numpy as np

from engine.drawing import slots_of
from engine.models import Batch
from engine.recorder import Recorder
from engine.sequence import Sequence

LONG_TOKENS = 32  # from so many on what is forced after a token counts as a prompt
ALONE_TOKENS = 256  # of prompts in a step in which no row draws: from there on more at once is not faster

_PENDING = attrgetter("pending")


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """One step's work: rows to draw for, then rows that only listen, and what is fed of each."""

    drawing: list[Sequence]
    listening: list[Sequence]
    chunks: list[list[int]]

    @property
    def rows(self) -> list[Sequence]:
        """All of them, as they are fed."""
        return [*self.drawing, *self.listening] if self.listening else self.drawing


def plan_feed(rows: list[Sequence], recorder: Recorder, width: int, limit: int | None, apart: bool = False) -> Feed:
    """Decide what each row is fed.

    Parameters
    ----------
    rows : list of Sequence
        Those of the step.
    recorder : Recorder
        Which of them want logits of more than their last token.
    width : int
        Of the model's logits.
    limit : int or None
        Tokens of long prompts in one step; None: no limit.
    apart : bool
        Each long row has that limit for itself, so that what it is fed does not depend on the others.
    """
    if limit is None and not recorder.active:
        return Feed(rows, [], list(map(_PENDING, rows)))
    lengths = [len(row.pending) for row in rows]
    room = lengths if limit is None else shares(lengths, list(map(is_prompt, rows)), limit, apart)
    most_logits = recorder.most_logits(rows, width)
    drawing, listening = list[tuple[Sequence, list[int]]](), list[tuple[Sequence, list[int]]]()
    for row, tokens in zip(rows, room, strict=True):
        plan = recorder.plan(row, tokens, most_logits)
        if not plan.waits:
            (listening if plan.listens else drawing).append((row, row.pending[: plan.tokens]))
    chunks = [chunk for _, chunk in drawing + listening]
    return Feed([row for row, _ in drawing], [row for row, _ in listening], chunks)


def is_prompt(row: Sequence) -> bool:
    """Whether a row's new tokens are a prompt, or as many as one; else it has begun to draw, and goes on."""
    return len(row.token_ids) == row.forced_tokens or len(row.pending) >= LONG_TOKENS


def shares(lengths: list[int], prompts: list[bool], limit: int, apart: bool = False) -> list[int]:
    """How many of its new tokens each row is fed: prompts share the limit, or have it each; the others get all."""
    left = limit if apart or not all(prompts) else max(limit, ALONE_TOKENS)
    given = []
    for length, counts in zip(lengths, prompts, strict=True):
        share = min(length, left) if counts else length
        given.append(share)
        left -= share if counts and not apart else 0
    return given


def batch_of(feed: Feed) -> Batch:
    """Pack what each row is fed."""
    chunks, rows = feed.chunks, feed.rows
    offsets = np.fromiter(accumulate(map(len, chunks), initial=0), np.int32, len(rows) + 1)
    token_ids = np.fromiter(chain.from_iterable(chunks), np.int32, int(offsets[-1]))
    return Batch(token_ids, offsets, slots_of(rows))
