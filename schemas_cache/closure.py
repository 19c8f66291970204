"""One step of the subset construction: configurations in, configurations after a byte class out.

In: configurations, pairs of an NFA state and a frame. Out: the important configurations that a byte class leads to, and
whether the text may end there. Cost: linear in the moves followed; what depends on the NFA alone (the epsilon closure
of a state, its edges by class) is worked out once for each NFA state. Source: the closure of the GLL family (Scott and
Johnstone 2010), with frames as sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet
from schemas_cache.distance import INFINITE
from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.frames import ACCEPT, NO_FRAME, Frames
from schemas_cache.limits import MAX_CONFIGURATIONS
from schemas_cache.nfa import CALL, COUNT, ENTER, GO_ON, LEAVE, LOOP, NONE, NOT_FREE, PASS, PICK, RETURN, TAIL, Nfa
from schemas_cache.work import spend

Configurations = tuple[tuple[int, int], ...]  # (NFA state, frame), sorted; one frame for each NFA state

_NO_BYTE = -1
_MOVES_A_LOOK = 1_000  # moves, about a microsecond each, between two looks at the limits
_FEW_BYTES = 16
_FEW_CONFIGURATIONS = 64  # looked at to find those bytes
_STEPS = frozenset({COUNT, PASS, PICK, GO_ON, LEAVE})


@dataclass(frozen=True, slots=True)
class _Local:
    """What one NFA state reaches by epsilon moves inside its block."""

    important: tuple[int, ...]  # states with byte edges, and those where a free character starts
    calls: tuple[tuple[int, int], ...]  # (rule's start, state to return to or TAIL)
    enters: tuple[int, ...]  # repeats
    steps: tuple[int, ...]  # states that count, pick or leave
    loops: bool  # the end of a repeat's body
    returns: bool  # the end of a rule

    @property
    def is_plain(self) -> bool:
        """Whether the frame stays what it is, wherever this leads."""
        return not (self.calls or self.enters or self.steps or self.loops or self.returns)


class Closure:
    """Steps configurations; holds the tables that depend on the NFA alone. Used under the automaton's lock."""

    def __init__(self, nfa: Nfa, alphabet: Alphabet, frames: Frames, distance: list[int]) -> None:
        self._alphabet, self._frames = alphabet, frames
        # views, since they give Python's integers without a copy of the array
        self._edge_start, self._edge_to = nfa.edge_start.data, nfa.edge_to.data
        self._edge_lo, self._edge_hi = nfa.edge_lo.data, nfa.edge_hi.data
        self._epsilon_start, self._epsilon_to = nfa.epsilon_start.data, nfa.epsilon_to.data
        self._op, self._op_arg, self._op_to, self._free_text = (
            part.data for part in (nfa.op, nfa.op_arg, nfa.op_to, nfa.free_text)
        )
        self._alive = [far < INFINITE for far in distance]
        self._body: list[int] = nfa.repeat_body.tolist()
        self._again: list[int] = nfa.repeat_again.tolist()
        self._exit: list[int] = nfa.repeat_exit.tolist()
        steps = np.flatnonzero(np.isin(nfa.op, list(_STEPS)))
        rows = zip(nfa.op[steps], nfa.op_to[steps], nfa.op_low[steps], nfa.op_high[steps], strict=True)
        self._steps = {at: tuple(map(int, row)) for at, row in zip(steps.tolist(), rows, strict=True)}
        self._locals: dict[int, _Local] = {}
        self._onward: dict[int, tuple[int, ...]] = {}  # important states where nothing else is reached
        self._targets: dict[int, dict[int, tuple[int, ...]]] = {}
        self._class_of, self._size_of = alphabet.class_of.tobytes(), alphabet.size_of.data
        self._range_letters: dict[tuple[int, int], list[int]] = {}
        self._masks: dict[int, NDArray[np.bool_]] = {}
        self._only_bytes: dict[int, int] = {}
        self._groups: dict[int, tuple[dict[int, int], int]] = {}
        self._bytes_of: dict[int, frozenset[int] | None] = {}
        self._class_bytes: dict[int, list[int]] = {}

    def step(self, configurations: Configurations, letter: int) -> tuple[Configurations, bool]:
        """Follow all edges of a byte class, then everything that needs no byte."""
        seeds: dict[int, int] = {}
        for state, frame in configurations:
            for to in self._by_letter(state).get(letter, ()):
                seeds[to] = self._frames.union(seeds[to], frame) if to in seeds else frame
        if len(seeds) == 1:  # inside of names and texts mostly, and then hardly anything has to be done
            ((to, frame),) = seeds.items()
            onward = self._onward.get(to)
            if onward is None:
                local = self._local(to)
                is_usual = local.is_plain and len(local.important) <= MAX_CONFIGURATIONS  # `close` refuses more
                onward = self._onward[to] = local.important if is_usual else ()
            if onward:
                spend(3 + len(onward))
                return tuple([(at, frame) for at in onward]), False
        return self.close(seeds)

    def alike(self, configurations: Configurations, letter: int) -> int:
        """Return the classes, as bits, whose edges lead where those of `letter` lead; it is one of them."""
        if len(configurations) == 1 and len(self._by_letter(configurations[0][0])) == 1:
            return 1 << letter
        found = -1
        for state, _ in configurations:
            groups = self._groups.get(state)
            if groups is None:
                groups = self._groups[state] = self._group(state)
            found &= groups[0].get(letter, groups[1])
        return found

    def _group(self, state: int) -> tuple[dict[int, int], int]:
        """For each class that a state has an edge for, those with the same targets, as bits; and those without any."""
        together: dict[tuple[int, ...], int] = {}
        by_letter = self._by_letter(state)
        for letter, targets in by_letter.items():
            together[targets] = together.get(targets, 0) | 1 << letter
        lacking = ((1 << self._alphabet.classes) - 1) & ~sum(together.values())
        return {letter: together[targets] for letter, targets in by_letter.items()}, lacking

    def close(self, seeds: dict[int, int]) -> tuple[Configurations, bool]:
        """Return the important configurations reached without a byte, and whether acceptance is."""
        frames, entered, reached = self._frames, dict[int, int](), dict[int, int]()
        accepting, moves = False, 0
        todo = list(seeds.items())
        while todo:
            state, frame = todo.pop()
            before = entered.get(state)
            if before is not None:
                frame = frames.union(before, frame)
                if frame == before:
                    continue
            entered[state] = frame
            local = self._local(state)
            moves += 3 + len(local.important) + 4 * len(local.steps)
            if moves > _MOVES_A_LOOK:
                spend(moves)
                moves = 0
            for at in local.important:
                reached[at] = frames.union(reached[at], frame) if at in reached else frame
            for start, back in local.calls:
                todo.append((start, frame if back == TAIL else frames.call(back, frame)))
            todo.extend((self._body[repeat], frames.enter(repeat, frame)) for repeat in local.enters)
            if local.loops:
                todo.extend(self._rounds(frame))
            for at in local.steps:
                to, with_it = self._step(at, frame)
                if with_it != NO_FRAME:
                    todo.append((to, with_it))
            if local.returns:
                links = frames.continuation(frame)
                accepting = accepting or links[0][0] == ACCEPT
                todo.extend(link for link in links if link[0] != ACCEPT)
        spend(moves)
        if len(reached) > MAX_CONFIGURATIONS:
            reason = f"a state needs {len(reached)} configurations, and the limit is {MAX_CONFIGURATIONS}"
            raise SchemaTooComplexError([Finding("#", "", reason, "let fewer optional members or branches come next")])
        return tuple(sorted(reached.items())), accepting

    def only_letter(self, configurations: Configurations) -> int:
        """Return the class that has an edge, or -1 where that is not easily seen to be one alone."""
        letters = self._by_letter(configurations[0][0]) if len(configurations) == 1 else ()
        return next(iter(letters)) if len(letters) == 1 else -1

    def live_letters(self, configurations: Configurations) -> NDArray[np.bool_]:
        """Which classes have an edge, bool (C,)."""
        live = np.zeros(self._alphabet.classes, np.bool_)
        for state, _ in configurations:
            live |= self._live(state)
        return live

    def _live(self, state: int) -> NDArray[np.bool_]:
        known = self._masks.get(state)
        if known is None:
            known = self._masks[state] = np.zeros(self._alphabet.classes, np.bool_)
            for letter in self._by_letter(state):
                known[letter] = True
        return known

    def only_byte(self, configurations: Configurations) -> int:
        """Return the one byte that can follow, or -1 where there are several or none."""
        found = _NO_BYTE
        for state, _ in configurations:
            byte = self._only_byte(state)
            if byte == _NO_BYTE or found not in (_NO_BYTE, byte):
                return _NO_BYTE
            found = byte
        return found

    def few_bytes(self, configurations: Configurations) -> list[int] | None:
        """Return the bytes that can follow, or None where they are more than a handful."""
        if len(configurations) > _FEW_CONFIGURATIONS:
            return None
        found: set[int] = set()
        for state, _ in configurations:
            if state not in self._bytes_of:
                self._bytes_of[state] = self._few_bytes(state)
            known = self._bytes_of[state]
            if known is None:
                return None
            found.update(known)
        return sorted(found) if len(found) <= _FEW_BYTES else None

    def _few_bytes(self, state: int) -> frozenset[int] | None:
        letters = self._by_letter(state)
        if len(letters) > _FEW_BYTES or sum([self._size_of[letter] for letter in letters]) > _FEW_BYTES:
            return None
        return frozenset([byte for letter in letters for byte in self._bytes_in(letter)])

    def _bytes_in(self, letter: int) -> list[int]:
        """Bytes of a small class."""
        known = self._class_bytes.get(letter)
        if known is None:
            first, known = self._class_of.find(letter), []
            while first >= 0:
                known.append(first)
                first = self._class_of.find(letter, first + 1)
            self._class_bytes[letter] = known
        return known

    def _only_byte(self, state: int) -> int:
        known = self._only_bytes.get(state)
        if known is None:
            letters = list(self._by_letter(state))
            alone = len(letters) == 1 and self._alphabet.size_of[letters[0]] == 1
            known = self._only_bytes[state] = int(self._alphabet.representative[letters[0]]) if alone else _NO_BYTE
        return known

    def _rounds(self, frame: int) -> list[tuple[int, int]]:
        repeat = self._frames.repeat(frame)
        again, leave = self._frames.loop(frame)
        moves = [(self._again[repeat], again), (self._exit[repeat], leave)]
        return [(state, to) for state, to in moves if to != NO_FRAME and self._alive[state]]

    def _step(self, at: int, frame: int) -> tuple[int, int]:
        """Follow an operation on members: where it leads, and the frame there or NO_FRAME."""
        op, to, low, high = self._steps[at]
        if op in (COUNT, PASS):
            return to, self._frames.count(frame, int(op == COUNT), low, high)
        if op == PICK:
            return to, self._frames.pick(frame, low)
        if op == GO_ON:
            return to, self._frames.go_on(frame)
        return self._exit[self._frames.repeat(frame)], self._frames.leave(frame)

    def _by_letter(self, state: int) -> dict[int, tuple[int, ...]]:
        """Return the targets of a state's edges by class; dead ends left out."""
        known = self._targets.get(state)
        if known is None:
            found: dict[int, tuple[int, ...]] = {}
            for edge in range(self._edge_start[state], self._edge_start[state + 1]):
                to = self._edge_to[edge]
                if self._alive[to]:
                    for letter in self._letters(self._edge_lo[edge], self._edge_hi[edge]):
                        found[letter] = (*found[letter], to) if letter in found else (to,)
            known = self._targets[state] = found
        return known

    def _letters(self, low: int, high: int) -> list[int]:
        known = self._range_letters.get((low, high))
        if known is None:
            known = sorted(set(self._class_of[low : high + 1]))
            self._range_letters[low, high] = known
        return known

    def important(self, state: int) -> tuple[int, ...]:
        """Return the important NFA states that one NFA state reaches inside its block without a byte."""
        return self._local(state).important

    def _local(self, state: int) -> _Local:
        known = self._locals.get(state)
        if known is None:
            known = self._locals[state] = self._explore(state)
        return known

    def _explore(self, state: int) -> _Local:
        """Follow epsilon moves depth first, dead ends left out."""
        if self._op[state] == NONE and self._epsilon_start[state] == self._epsilon_start[state + 1]:
            spend(3)
            is_important = bool(self._by_letter(state)) or self._free_text[state] != NOT_FREE
            return _Local((state,) if is_important else (), (), (), (), loops=False, returns=False)
        seen, todo = {state}, [state]
        important: list[int] = []
        calls: list[tuple[int, int]] = []
        enters: list[int] = []
        steps: list[int] = []
        loops = returns = False
        while todo:
            at = todo.pop()
            op, arg = self._op[at], self._op_arg[at]
            if op == CALL and self._alive[at]:
                calls.append((arg, self._op_to[at]))
            elif op == ENTER and self._alive[at]:
                enters.append(arg)
            elif op in _STEPS and self._alive[at]:
                steps.append(at)
            loops, returns = loops or op == LOOP, returns or op == RETURN
            if self._by_letter(at) or self._free_text[at] != NOT_FREE:
                important.append(at)
            for move in range(self._epsilon_start[at], self._epsilon_start[at + 1]):
                to = self._epsilon_to[move]
                if to not in seen and self._alive[to]:
                    seen.add(to)
                    todo.append(to)
        spend(3 * len(seen))
        return _Local(tuple(sorted(important)), tuple(calls), tuple(enters), tuple(steps), loops, returns)
