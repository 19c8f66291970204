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
from schemas_cache.frames import ACCEPT, NO_FRAME, Frames
from schemas_cache.nfa import CALL, COUNT, ENTER, GO_ON, LEAVE, LOOP, NOT_FREE, PASS, PICK, RETURN, TAIL, Nfa

Configurations = tuple[tuple[int, int], ...]  # (NFA state, frame), sorted; one frame for each NFA state

_NO_BYTE = -1
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


class Closure:
    """Steps configurations; holds the tables that depend on the NFA alone. Used under the automaton's lock."""

    def __init__(self, nfa: Nfa, alphabet: Alphabet, frames: Frames, distance: list[int]) -> None:
        self._nfa, self._alphabet, self._frames = nfa, alphabet, frames
        self._alive = [far < INFINITE for far in distance]
        self._body: list[int] = nfa.repeat_body.tolist()
        self._again: list[int] = nfa.repeat_again.tolist()
        self._exit: list[int] = nfa.repeat_exit.tolist()
        steps = np.flatnonzero(np.isin(nfa.op, list(_STEPS)))
        rows = zip(nfa.op[steps], nfa.op_to[steps], nfa.op_low[steps], nfa.op_high[steps], strict=True)
        self._steps = {at: tuple(map(int, row)) for at, row in zip(steps.tolist(), rows, strict=True)}
        self._locals: dict[int, _Local] = {}
        self._targets: dict[int, dict[int, tuple[int, ...]]] = {}
        self._range_letters: dict[tuple[int, int], list[int]] = {}
        self._masks: dict[int, NDArray[np.bool_]] = {}
        self._only_bytes: dict[int, int] = {}

    def step(self, configurations: Configurations, letter: int) -> tuple[Configurations, bool]:
        """Follow all edges of a byte class, then everything that needs no byte."""
        seeds: dict[int, int] = {}
        for state, frame in configurations:
            for to in self._by_letter(state).get(letter, ()):
                seeds[to] = self._frames.union(seeds[to], frame) if to in seeds else frame
        return self.close(seeds)

    def close(self, seeds: dict[int, int]) -> tuple[Configurations, bool]:
        """Return the important configurations reached without a byte, and whether acceptance is."""
        frames, entered, reached = self._frames, dict[int, int](), dict[int, int]()
        accepting = False
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
        return tuple(sorted(reached.items())), accepting

    def live_letters(self, configurations: Configurations) -> NDArray[np.bool_]:
        """Which classes have an edge, bool (C,)."""
        live = np.zeros(self._alphabet.classes, np.bool_)
        for state, _ in configurations:
            known = self._masks.get(state)
            if known is None:
                known = self._masks[state] = np.zeros(self._alphabet.classes, np.bool_)
                known[list(self._by_letter(state))] = True
            live |= known
        return live

    def only_byte(self, configurations: Configurations) -> int:
        """Return the one byte that can follow, or -1 where there are several or none."""
        found = _NO_BYTE
        for state, _ in configurations:
            byte = self._only_byte(state)
            if byte == _NO_BYTE or found not in (_NO_BYTE, byte):
                return _NO_BYTE
            found = byte
        return found

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
            nfa = self._nfa
            for edge in range(nfa.edge_start[state], nfa.edge_start[state + 1]):
                to = int(nfa.edge_to[edge])
                if self._alive[to]:
                    for letter in self._letters(int(nfa.edge_lo[edge]), int(nfa.edge_hi[edge])):
                        found[letter] = (*found.get(letter, ()), to)
            known = self._targets[state] = found
        return known

    def _letters(self, low: int, high: int) -> list[int]:
        known = self._range_letters.get((low, high))
        if known is None:
            known = np.unique(self._alphabet.class_of[low : high + 1]).tolist()
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
        nfa, seen, todo = self._nfa, {state}, [state]
        important: list[int] = []
        calls: list[tuple[int, int]] = []
        enters: list[int] = []
        steps: list[int] = []
        loops = returns = False
        while todo:
            at = todo.pop()
            op, arg = int(nfa.op[at]), int(nfa.op_arg[at])
            if op == CALL and self._alive[at]:
                calls.append((arg, int(nfa.op_to[at])))
            elif op == ENTER and self._alive[at]:
                enters.append(arg)
            elif op in _STEPS and self._alive[at]:
                steps.append(at)
            loops, returns = loops or op == LOOP, returns or op == RETURN
            if self._by_letter(at) or nfa.free_text[at] != NOT_FREE:
                important.append(at)
            for to in nfa.epsilon_to[nfa.epsilon_start[at] : nfa.epsilon_start[at + 1]].tolist():
                if to not in seen and self._alive[to]:
                    seen.add(to)
                    todo.append(to)
        return _Local(tuple(sorted(important)), tuple(calls), tuple(enters), tuple(steps), loops, returns)
