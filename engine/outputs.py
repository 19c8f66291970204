"""What the model says after the positions of one step, and logits of them for whoever asks.

In: what a forward pass gave. Out: logits, of all tokens or of some. Cost: none for a model that gives logits at once;
for a `CachingModel` a product with the output matrix for the positions that are asked for, once each. That product is a
sixth of a step of SmolLM2 with one row, and a quarter with 32; a row with few allowed tokens does without it.
"""

from __future__ import annotations

import numpy as np

from engine.models import CachingModel, FloatArray, IntArray


class Outputs:
    """One step's positions: the rows' last ones, then the inner ones.

    Parameters
    ----------
    found : float32, shape (N, D)
        Hidden states where there is a model to make logits of them; else logits.
    model : CachingModel or None
        Where logits come from.
    """

    def __init__(self, found: FloatArray, model: CachingModel | None = None) -> None:
        self._found, self._model = found, model
        self._logits = found[:0]
        self._place = np.full(0 if model is None else len(found), -1, np.int32)  # in `_logits`, of those asked for

    def __len__(self) -> int:
        return len(self._found)

    def one(self, number: int) -> Outputs:
        """A copy of one position, which outlives the step."""
        return Outputs(self._found[number : number + 1].copy(), self._model)

    def logits(self, numbers: slice | list[int]) -> FloatArray:
        """Logits of all tokens at some positions, float32 (R, L); not to be changed."""
        if self._model is None:
            return self._found[numbers]
        wanted = np.arange(len(self._found))[numbers]
        new = wanted[self._place[wanted] < 0]
        if len(new):
            before, found = len(self._logits), self._model.logits(self._found[new])
            self._place[new] = np.arange(before, before + len(new))
            self._logits = np.concatenate([self._logits, found]) if before else found
        places = self._place[wanted]
        if len(places) == len(self._logits) and (places == np.arange(len(places))).all():
            return self._logits
        return self._logits[places]

    def logits_of(self, numbers: list[int], token_ids: IntArray, row_offsets: IntArray) -> FloatArray:
        """Logits of some tokens, float32 (N,): position r asks for `token_ids[row_offsets[r]:row_offsets[r + 1]]`.

        Raises
        ------
        ValueError
            For a model that gives all logits at once.
        """
        if self._model is None:
            raise ValueError("the logits of all tokens are here already")
        return self._model.logits_of(self._found[numbers], token_ids, row_offsets)
