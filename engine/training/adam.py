"""Adam over one flat vector of parameters.

In: the gradient. Out: the parameters, changed in place. Cost: a dozen passes over the vector, no allocation. Source:
Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1, with the bias corrections folded into
the step size as in the text below it. Rejected: a loop over named arrays; the named arrays are views of the vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FIRST_DECAY, SECOND_DECAY = 0.9, 0.999
EPSILON = 1e-8

FloatVector = NDArray[np.float32]


@dataclass(slots=True, eq=False)
class Adam:
    """Running means of the gradient and of its square, float32, one element per parameter."""

    first: FloatVector
    second: FloatVector
    steps: int = 0
    _work: FloatVector = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._work = np.empty_like(self.first)

    @classmethod
    def for_size(cls, size: int) -> Adam:
        """Before the first step, for this many parameters."""
        return cls(np.zeros(size, np.float32), np.zeros(size, np.float32))

    def apply(self, parameters: FloatVector, gradient: FloatVector, learning_rate: float) -> None:
        """Take one step: changes `parameters` in place; `gradient` is read only."""
        self.steps += 1
        _decay(self.first, gradient, FIRST_DECAY, self._work)
        np.square(gradient, out=self._work)
        _decay(self.second, self._work, SECOND_DECAY, self._work)

        second_correction = (1 - SECOND_DECAY**self.steps) ** 0.5
        step_size = learning_rate * second_correction / (1 - FIRST_DECAY**self.steps)
        np.sqrt(self.second, out=self._work)
        self._work += EPSILON * second_correction
        np.divide(self.first, self._work, out=self._work)
        self._work *= step_size
        parameters -= self._work


def _decay(mean: FloatVector, value: FloatVector, decay: float, work: FloatVector) -> None:
    """Move a running mean towards `value`; `work` may be `value` itself."""
    mean *= decay
    np.multiply(value, 1 - decay, out=work)
    mean += work
