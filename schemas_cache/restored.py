"""An automaton as it comes from disk: transitions at once, the rest when something new has to be worked out.

In: the arrays of a snapshot, and a function that builds the whole automaton from them. Out: an `Automaton` that walks
known transitions, says what is forced and where a text may end, all from arrays. Configurations, frames and the tables
of the closure are Python objects, a microsecond each, and a sequence that goes known ways needs none of them: they are
built when the first of them is asked for. Cost: 0.1 ms, whatever the number of states; building takes a millisecond for
a usual schema, once.

Rejected: building at once, which made up nine tenths of loading a schema; properties for everything that is built late,
which would cost each access of an automaton that was never on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import DEAD, Automaton
from schemas_cache.limits import Limits
from schemas_cache.nfa import Nfa
from schemas_cache.work import GrowthLock

_KEPT = ("lock", "_forced")  # what others hold already, or what cost something


class RestoredAutomaton(Automaton):
    """Looks and behaves like the automaton that was stored.

    Parameters
    ----------
    nfa, alphabet, limits
        As of `Automaton`.
    arrays : dict of str to ndarray
        Of the snapshot: `next_state` int32 (S, C), `accepting` bool (S,), `only_byte` int16 (S,), `state_pairs` int32
        (S,); their memory is what this takes.
    build : callable
        Makes the whole automaton, with the same numbers of states.
    """

    def __init__(
        self,
        nfa: Nfa,
        alphabet: Alphabet,
        limits: Limits,
        arrays: dict[str, NDArray[Any]],
        build: Callable[[], Automaton],
    ) -> None:
        self.nfa, self.alphabet, self.limits = nfa, alphabet, limits
        self.lock = GrowthLock()
        self.class_of = alphabet.class_of.tolist()
        self.next_state = arrays["next_state"]  # read-only; replaced before anything is written to it
        self.accepting = arrays["accepting"].tolist()
        self.expansions = int(np.count_nonzero(self.next_state > DEAD))
        self._forced = {}
        self._only_bytes: list[int] = arrays["only_byte"].tolist()
        self._configured: list[int] = arrays["state_pairs"].tolist()
        self._stored_bytes = sum(array.nbytes for array in arrays.values())
        self._build: Callable[[], Automaton] | None = build

    def __getattr__(self, name: str) -> Any:
        """Build what is not there yet; reached only for attributes that are missing."""
        if name.startswith("__") or "_build" not in self.__dict__:
            raise AttributeError(name)
        with self.lock:
            if self._build is not None:
                built = self._build()
                if len(built) != len(self._configured):
                    raise ValueError("states of another automaton")
                self.__dict__.update((key, value) for key, value in vars(built).items() if key not in _KEPT)
                self._build = None
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(name)

    def __len__(self) -> int:
        return len(self._configured) if self._build is not None else super().__len__()

    @property
    def nearly_full(self) -> bool:
        """Whether more than half of what there may be is made."""
        return 2 * len(self) > self.limits.max_states if self._build is not None else super().nearly_full

    @property
    def size_bytes(self) -> int:
        """Memory taken, roughly."""
        return self._stored_bytes if self._build is not None else super().size_bytes

    def live(self, state: int) -> bool:
        """Whether some byte can follow."""
        return bool(self._configured[state]) if state < len(self._configured) else super().live(state)

    def only_byte(self, state: int) -> int:
        """Return the one byte that can follow, or NO_BYTE."""
        return self._only_bytes[state] if state < len(self._only_bytes) else super().only_byte(state)
