"""What a request adds to the logits before the mask: its logit bias, and penalties on what its text already has.

In: the settings of each slot and the tokens of each text. Out: the scores of a batch, changed in place. A token that
occurred c times in the text so far gets `bias - c * frequency_penalty - (c > 0) * presence_penalty` on its logit, which
is OpenAI's formula. The order of a draw is: bias and penalties, mask, temperature, top-k, top-p, min-p.

What counts is the text that was generated, forced tokens included, the prompt not: the text is what would repeat itself
to a reader, and jump-forward on or off must not change what is penalised.

The sum is taken on scores that are masked already: adding to -inf lifts nothing, so no bias reaches a forbidden token,
and the structure of a document is out of reach of repetition controls: they only reorder what the schema allows. A bias
of -100 or less bans: the token is taken only where all that is allowed is banned, whatever the model says. So a ban is
`BANNED`, far below any logit, but finite, so that several banned tokens keep their order to a thousandth of a nat.

Cost: nothing where no slot uses any of it; else one addition over those rows, and a few
microseconds for the tokens since the last draw. The tables take memory for slots that use them alone: zeros that are
never touched are no pages. Source: OpenAI's API reference. Rejected: penalties on the prompt's tokens, as some engines
have them (a prompt that shows the schema would forbid its keys), and sparing structural tokens, which is another
formula.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np
from numpy.typing import NDArray

from engine.request import Sampling
from engine.sequence import Sequence

FloatArray = NDArray[np.float32]

BAN_AT = -100.0  # a bias from here down bans
BANNED = -1e4  # nats: no model's logits are so far apart


def offset_of(sampling: Sampling, generated: Ordered[int], width: int) -> FloatArray:
    """What is added to each logit after these tokens, float32 (width,)."""
    counts = np.bincount(np.asarray(generated, np.int64), minlength=width)[:width]
    offset = _bias_of(sampling, width)
    offset -= sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
    return offset.astype(np.float32)


def is_penalised(sampling: Sampling) -> bool:
    """Whether these settings change any logit at all."""
    return bool(sampling.presence_penalty or sampling.frequency_penalty or sampling.logit_bias)


class Penalties:
    """Bias and penalties of all slots; used by one thread.

    Parameters
    ----------
    slots : int
        How many there are.
    width : int
        Scores of a row, 32 W.
    """

    def __init__(self, slots: int, width: int) -> None:
        self._used = np.zeros(slots, bool)  # by the slot's last text, which may be over
        self._any_used = False
        self._presence = np.zeros(slots, np.float64)
        self._frequency = np.zeros(slots, np.float64)
        self._counted = np.zeros(slots, np.int64)  # how many tokens of its text are in `counts`
        self._counts = np.zeros((slots, width), np.int32)
        self._bias = np.zeros((slots, width), np.float32)
        self._offset = np.zeros((slots, width), np.float32)

    def open(self, slot: int, sampling: Sampling) -> None:
        """Take over a slot for a new text."""
        self._used[slot] = is_penalised(sampling)
        self._any_used = bool(self._used.any())
        if not self._used[slot]:
            return
        self._presence[slot], self._frequency[slot] = sampling.presence_penalty, sampling.frequency_penalty
        self._counted[slot] = 0
        self._counts[slot] = 0
        self._bias[slot] = _bias_of(sampling, self._bias.shape[1])
        self._offset[slot] = self._bias[slot]

    def apply(self, scores: FloatArray, rows: Ordered[Sequence]) -> None:
        """Add to the masked scores of these rows, float32 (B, 32 W), in place."""
        if not self._any_used:
            return
        used = [number for number, row in enumerate(rows) if self._used[row.slot]]
        users = [rows[number] for number in used]
        self._count(users)
        scores[used] += self._offset[[row.slot for row in users]]

    def _count(self, rows: list[Sequence]) -> None:
        """Take in what the texts got since they were here last."""
        new = [row.token_ids[self._counted[row.slot] :] for row in rows]
        slots = np.repeat(np.array([row.slot for row in rows], np.int64), [len(ids) for ids in new])
        token_ids = np.array([token_id for ids in new for token_id in ids], np.int64)
        np.add.at(self._counts, (slots, token_ids), 1)
        penalty = self._frequency[slots] * self._counts[slots, token_ids] + self._presence[slots]
        self._offset[slots, token_ids] = self._bias[slots, token_ids] - penalty
        for row in rows:
            self._counted[row.slot] = len(row.token_ids)


def _bias_of(sampling: Sampling, width: int) -> NDArray[np.float64]:
    bias = np.zeros(width, np.float64)
    for token_id, value in sampling.logit_bias:
        bias[token_id] = BANNED if value <= BAN_AT else value
    return bias
