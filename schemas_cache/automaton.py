"""The NFA, lazily determinised: one machine for finite schemas, long counts and recursion.

In: an `Nfa` and its `Alphabet`. Out: `Automaton`, whose states are plain ints. A state is an interned set of
configurations (NFA state, frame), made only when a transition needs it; the set holds *important* NFA states only,
those with a byte edge, and one frame for each (see `frames`). Configurations that cannot reach acceptance are never
made, so a live state always leads somewhere.

Cost: a known transition is one array look-up; a new one is a closure over a handful of configurations, tens of
microseconds. A schema without recursion explores to an ordinary finite automaton; general JSON is the same machine with
a growing stack. Sources: Aho, Sethi, Ullman, "Compilers" (1986), section 3.9 on important states; Cox, "Regular
expression matching: the virtual machine approach" (2009) on lazy DFAs. Rejected: full determinisation before use, which
takes time for what is never visited and never ends for recursion.

Threads: every method may be called from several threads; new states are made under one lock.
"""

from __future__ import annotations

import heapq
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet
from schemas_cache.closure import Closure, Configurations
from schemas_cache.distance import INFINITE, block_distances
from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.frames import ACCEPT, NO_FRAME, ROOT, Frames
from schemas_cache.limits import DEFAULT_LIMITS, Limits
from schemas_cache.nfa import Nfa
from schemas_cache.pick_costs import PickCosts
from schemas_cache.work import GrowthLock, Work, at_work, working

DEAD, START, END = 0, 1, 2  # END: after the end token; complete, and nothing follows
UNKNOWN = -1
NO_BYTE = -1

STATE_BYTES = 500  # of Python objects for a state, or for four configurations, as measured with tracemalloc
_INITIAL_ROWS = 256

StateArray = NDArray[np.int32]


class Automaton:
    """Lazily determinised automaton; grows while it is used, and never changes what it said before."""

    def __init__(
        self,
        nfa: Nfa,
        alphabet: Alphabet,
        limits: Limits = DEFAULT_LIMITS,
        distance: NDArray[np.int64] | None = None,
    ) -> None:
        self.nfa, self.alphabet = nfa, alphabet
        self.lock = GrowthLock()
        self.frames = Frames(nfa)
        self.distance: list[int] = (block_distances(nfa) if distance is None else distance).tolist()
        self.class_of: list[int] = alphabet.class_of.tolist()
        self.limits = limits
        self.closure = Closure(nfa, alphabet, self.frames, self.distance)
        self._ids: dict[tuple[bool, Configurations], int] = {}
        self._frame_costs: dict[int, int] = {ROOT: 0, NO_FRAME: 0}
        self._pick_costs = PickCosts(nfa, self.distance, self.frames.members)
        self._letters_of: dict[int, NDArray[np.intp]] = {}
        self._forced: dict[int, tuple[bytes, int]] = {}
        self.next_state: StateArray = np.zeros((_INITIAL_ROWS, alphabet.classes), np.int32)  # int32 (>= S, C)
        self.accepting: list[bool] = [False, False, True]
        self.configurations: list[Configurations] = [(), (), ()]
        self._pairs = 0  # configurations of all states together
        self.expansions = 0  # transitions known that do not end in DEAD
        self._begin()

    def __len__(self) -> int:
        return len(self.configurations)

    @property
    def satisfiable(self) -> bool:
        """Whether any text at all is accepted."""
        return self.accepting[START] or bool(self.configurations[START])

    @property
    def nearly_full(self) -> bool:
        """Whether more than half of what there may be is made."""
        counted = ((len(self.configurations), self.limits.max_states), (len(self.frames), self.limits.max_frames))
        return any(2 * made > most for made, most in (*counted, (self.size_bytes, self.limits.max_memory_bytes)))

    @property
    def size_bytes(self) -> int:
        """Memory taken by states and frames, roughly."""
        states = STATE_BYTES * (len(self.configurations) + self._pairs // 4)
        return self.next_state.nbytes + states + self.frames.size_bytes

    def expanding(self) -> AbstractContextManager[object]:
        """Count what follows as the work for one state, unless it is part of other work."""
        return nullcontext() if at_work() else working(self.allowance())

    def allowance(self) -> Work:
        """How much may be done for one state."""
        return Work(self.limits.max_expansion_work, subject="one step of decoding")

    def live(self, state: int) -> bool:
        """Whether some byte can follow."""
        return bool(self.configurations[state])

    def step(self, state: int, byte: int) -> int:
        """Return the state after one byte; DEAD where the byte is not allowed."""
        letter = self.class_of[byte]
        following = int(self.next_state[state, letter])
        return following if following != UNKNOWN else self._expand(state, letter)

    def walk(self, state: int, data: bytes) -> int:
        """Return the state after some bytes; DEAD where they are not allowed."""
        for byte in data:
            state = self.step(state, byte)
            if state == DEAD:
                break
        return state

    def step_many(self, states: StateArray, letters: NDArray[np.uint8]) -> StateArray:
        """Step (state, class) pairs, int32 (N,) and uint8 (N,), all at once; int32 (N,)."""
        following = self.next_state[states, letters]
        unknown = np.flatnonzero(following == UNKNOWN)
        if len(unknown):
            pairs = states[unknown].astype(np.int64) * 256 + letters[unknown]
            for pair in np.unique(pairs).tolist():
                if self.next_state[pair >> 8, pair & 255] == UNKNOWN:  # one expansion makes several classes known
                    self._expand(pair >> 8, pair & 255)
            following = self.next_state[states, letters]
        return following

    def forced(self, state: int) -> tuple[bytes, int]:
        """Return the bytes that must come next and the state after them; none where the text may end."""
        known = self._forced.get(state)
        if known is None:
            data, at = bytearray(), state
            while not self.accepting[at] and (byte := self.only_byte(at)) != NO_BYTE:
                data.append(byte)
                at = self.step(at, byte)
            known = self._forced[state] = (bytes(data), at)
        return known

    def only_byte(self, state: int) -> int:
        """Return the one byte that can follow, or NO_BYTE where there are several or none."""
        return self.closure.only_byte(self.configurations[state])

    def cost(self, state: int) -> int:
        """Fewest bytes from here to acceptance; a lower bound where members are counted."""
        if self.accepting[state]:
            return 0
        with self.lock:
            return min(self.distance[at] + self._frame_cost(frame) for at, frame in self.configurations[state])

    def shortest(self, state: int) -> bytes:
        """Spell one shortest way to acceptance; of several, one whose bytes are preferred as representatives.

        Best first by bytes so far and `cost`, deeper states first, letters one by one: where the cost is exact, hardly
        a state off the way is made. Source: Hart, Nilsson, Raphael, "A formal basis for the heuristic determination of
        minimum cost paths" (1968).
        """
        letters = self.alphabet.representative.tolist()
        came_from: dict[int, tuple[int, int]] = {}
        queue = [(self.cost(state), 0, 0, state, DEAD, 0)]  # cost of the way, minus its length, next letter, the state
        while True:
            total, depth, begin, at, before, byte = heapq.heappop(queue)
            if begin == 0:
                if at in came_from:
                    continue
                came_from[at] = (before, byte)
            if self.accepting[at]:
                return self._spell(came_from, at)
            for order in range(begin, len(letters)):
                following = self.step(at, letters[order])
                if following != DEAD and following not in came_from:
                    heapq.heappush(queue, (total, depth, order + 1, at, before, byte))
                    onward = self.cost(following) + 1 - depth
                    heapq.heappush(queue, (onward, depth - 1, 0, following, at, letters[order]))
                    break

    def _spell(self, came_from: dict[int, tuple[int, int]], state: int) -> bytes:
        data = bytearray()
        before, byte = came_from[state]
        while before != DEAD:
            data.append(byte)
            before, byte = came_from[before]
        return bytes(reversed(data))

    def pointer(self, state: int) -> str:
        """JSON pointer of the value being written; where several are possible, the first in the schema's order."""
        if not self.configurations[state]:
            return ""
        at, frame = self.configurations[state][0]
        parts: list[str] = []
        while at != ACCEPT:
            repeat = self.frames.repeat(frame)
            first = self.frames.content(frame)[0]
            path = self.nfa.pointers[self.nfa.pointer_of[at]]
            parts[:0] = [str(self.frames.index(frame)) if segment is None else _escape(segment) for segment in path]
            at = first[0] if repeat == NO_FRAME else int(self.nfa.repeat_exit[repeat])
            frame = first[-1]
        return "".join(f"/{part}" for part in parts)

    def state_of(self, configurations: Configurations, accepting: bool) -> int:
        """Return the state of some configurations: of those after a step, or of some of a state's; DEAD for none."""
        with self.lock:
            return self._intern(configurations, accepting)

    def learn(self, states: list[tuple[bool, Configurations]], following: StateArray) -> StateArray:
        """Take states that another process learnt, and the transitions between them.

        Parameters
        ----------
        states : list of (accepting, configurations), length N
            By the other's numbers, from DEAD on; frames by their numbers here.
        following : int32 (N, C)
            Their transitions in the other's numbers; UNKNOWN where it knew none.

        Returns
        -------
        int32 (N,)
            The states' numbers here; UNKNOWN for those that are too many.
        """
        with self.lock:
            if len(states) > START and states[START] != (self.accepting[START], self.configurations[START]):
                raise ValueError("states of another automaton")
            before = len(self.configurations)
            numbers = np.array([*range(END + 1), *map(self._number, states[END + 1 :])][: len(states)], np.int32)
            self._make_room(len(self.configurations))
            translated = np.append(numbers, np.int32(UNKNOWN))[following]
            is_new, is_known = numbers >= before, (numbers < before) & (numbers != UNKNOWN)
            self.next_state[numbers[is_new]] = translated[is_new]
            rows = self.next_state[numbers[is_known]]
            learnt = np.where(rows == UNKNOWN, translated[is_known], DEAD)
            self.next_state[numbers[is_known]] = np.where(rows == UNKNOWN, translated[is_known], rows)
            self.expansions += int((translated[is_new] > DEAD).sum() + (learnt > DEAD).sum())
            return numbers

    def _number(self, state: tuple[bool, Configurations]) -> int:
        """Number of a state learnt elsewhere, whose transitions follow; UNKNOWN where it would be one too many."""
        known = self._ids.get(state)
        if known is None:
            if len(self.configurations) >= self.limits.max_states // 2:  # the rest is for what is decoded here
                return UNKNOWN
            known = self._ids[state] = len(self.configurations)
            self.accepting.append(state[0])
            self.configurations.append(state[1])
            self._pairs += len(state[1])
        return known

    def _make_room(self, states: int) -> None:
        """Have rows for so many states."""
        while states > len(self.next_state):
            grown = np.zeros((2 * len(self.next_state), self.next_state.shape[1]), np.int32)  # unwritten: no memory
            grown[: len(self.next_state)] = self.next_state
            self.next_state = grown

    def _begin(self) -> None:
        if self.distance[self.nfa.start] < INFINITE:
            configurations, self.accepting[START] = self.closure.close({self.nfa.start: ROOT})
            self.configurations[START] = configurations
            self._ids[self.accepting[START], configurations] = START
            self.next_state[START] = np.where(self.closure.live_letters(configurations), UNKNOWN, DEAD)

    def _expand(self, state: int, letter: int) -> int:
        with self.lock:
            known = int(self.next_state[state, letter])
            if known != UNKNOWN:
                return known
            try:
                configurations, accepting = self.closure.step(self.configurations[state], letter)
            except RecursionError:
                raise self._too_complex("nesting", "deeper than the stack of the process allows") from None
            following = self._intern(configurations, accepting)
            bits = self.closure.alike(self.configurations[state], letter)
            count = bits.bit_count()
            self.next_state[state, letter if count == 1 else self._letters(bits)] = following
            self.expansions += count if following != DEAD else 0
            return following

    def _letters(self, bits: int) -> NDArray[np.intp]:
        """Classes whose bits are set."""
        known = self._letters_of.get(bits)
        if known is None:
            known = np.array([letter for letter in range(self.alphabet.classes) if bits >> letter & 1], np.intp)
            self._letters_of[bits] = known
        return known

    def _intern(self, configurations: Configurations, accepting: bool) -> int:
        if not configurations and not accepting:
            return DEAD
        key = (accepting, configurations)
        known = self._ids.get(key)
        if known is not None:
            return known
        state = len(self.configurations)
        if state >= self.limits.max_states:
            raise self._too_complex("states", f"{state} states, and the limit is {self.limits.max_states}")
        if len(self.frames) > self.limits.max_frames:
            raise self._too_complex("frames", f"{len(self.frames)}, and the limit is {self.limits.max_frames}")
        if self.size_bytes > self.limits.max_memory_bytes:
            size_mb, limit_mb = self.size_bytes >> 20, self.limits.max_memory_bytes >> 20
            raise self._too_complex("bytes", f"{size_mb} MB, and the limit is {limit_mb} MB")
        self._make_room(state + 1)
        only = self.closure.only_letter(configurations)
        if only >= 0:
            self.next_state[state, only] = UNKNOWN
        else:
            self.next_state[state] = np.where(self.closure.live_letters(configurations), UNKNOWN, DEAD)
        self.configurations.append(configurations)
        self._pairs += len(configurations)
        self.accepting.append(accepting)
        self._ids[key] = state
        return state

    def _too_complex(self, what: str, reason: str) -> SchemaTooComplexError:
        return SchemaTooComplexError([Finding("#", "", f"the automaton needs too many {what}: {reason}")])

    def _frame_cost(self, frame: int) -> int:
        """Fewest bytes from the end of a frame's block to acceptance; parents first, without recursion."""
        todo = [frame]
        while todo:
            at = todo[-1]
            if at in self._frame_costs:
                todo.pop()
                continue
            missing = [link[-1] for link in self.frames.content(at) if link[-1] not in self._frame_costs]
            if missing:
                todo.extend(missing)
            else:
                self._frame_costs[todo.pop()] = self._cost_from_parents(at)
        return self._frame_costs[frame]

    def _cost_from_parents(self, frame: int) -> int:
        repeat = self.frames.repeat(frame)
        if repeat == NO_FRAME:
            pairs = self.frames.continuation(frame)
            return min((back != ACCEPT and self.distance[back]) + self._frame_costs[parent] for back, parent in pairs)
        if not self.frames.is_looped(repeat):
            leave = self.distance[int(self.nfa.repeat_exit[repeat])]
            if self.frames.is_choice(repeat):
                sets = self.frames.continuation(frame)
                return leave + min(self._pick_costs.remaining(repeat, s) + self._frame_costs[p] for s, p in sets)
            return leave + min(self._frame_costs[link[-1]] for link in self.frames.content(frame))
        minimum = int(self.nfa.repeat_min[repeat])
        a_round = self.distance[int(self.nfa.repeat_again[repeat])]
        leave = self.distance[int(self.nfa.repeat_exit[repeat])]
        return min(
            max(minimum - high - 1, 0) * a_round + leave + self._frame_costs[parent]
            for _, high, parent in self.frames.counts(frame)
        )


def _escape(segment: str) -> str:
    return segment.replace("~", "~0").replace("/", "~1")
