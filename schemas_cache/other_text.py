r"""All JSON strings but some, as edges: where a text leaves the excluded ones, and everything that may follow.

In: excluded texts, the insides of JSON strings as they are written. Out: the prefix tree of those texts, and for each
of its nodes which bytes leave it. Cost: linear in the texts' bytes. What leaves a node depends on the node's place in a
character or an escape and on the bytes that do not leave it, so nodes share the states for it: a hundred names of ten
letters are a thousand nodes and some thirty ways to leave.

`STATES` is the automaton of canonical text, one spelling for each value: UTF-8 as it is (Unicode 15, table 3-7), and
the shortest escapes (RFC 8259, section 7). Rejected: the product of that automaton with one of the names, whose every
state has every edge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas_cache.escapes import ESCAPES, SHORT_ESCAPES

BOUNDARY = 0
"""Between two characters: the one state in which a text may end."""

Edge = tuple[int, int, int]  # first byte, last byte, state


def _states() -> tuple[tuple[Edge, ...], ...]:
    """Edges of each state: between characters, inside UTF-8, inside escapes."""
    one, two, three, after_e0, after_ed, after_f0, after_f4, escape = range(1, 9)
    table: list[list[Edge]] = [
        [
            *((0x20, 0x21, BOUNDARY), (0x23, 0x5B, BOUNDARY), (0x5D, 0x7F, BOUNDARY), (0xC2, 0xDF, one)),
            *((0xE0, 0xE0, after_e0), (0xE1, 0xEC, two), (0xED, 0xED, after_ed), (0xEE, 0xEF, two)),
            *((0xF0, 0xF0, after_f0), (0xF1, 0xF3, three), (0xF4, 0xF4, after_f4), (0x5C, 0x5C, escape)),
        ],
        [(0x80, 0xBF, BOUNDARY)],
        [(0x80, 0xBF, one)],
        [(0x80, 0xBF, two)],
        [(0xA0, 0xBF, one)],
        [(0x80, 0x9F, one)],
        [(0x90, 0xBF, two)],
        [(0x80, 0x8F, two)],
        [(ord(letter), ord(letter), BOUNDARY) for letter in SHORT_ESCAPES.values()],
    ]
    inside = {"\\": escape}
    for text in (spelled for code, spelled in sorted(ESCAPES.items()) if code not in SHORT_ESCAPES):
        for end in range(2, len(text)):
            if text[:end] not in inside:
                inside[text[:end]] = len(table)
                table.append([])
                table[inside[text[: end - 1]]].append((ord(text[end - 1]), ord(text[end - 1]), inside[text[:end]]))
        table[inside[text[:-1]]].append((ord(text[-1]), ord(text[-1]), BOUNDARY))
    return tuple(map(tuple, table))


STATES = _states()


@dataclass(slots=True)
class Node:
    """A beginning of excluded texts: its place in a character or an escape, what leads on, whether it is excluded."""

    place: int = BOUNDARY
    children: dict[int, int] = field(default_factory=dict)  # byte to number of the node
    is_excluded: bool = False


def excluded_tree(texts: Iterable[bytes]) -> list[Node]:
    """Build the prefix tree, the root first."""
    nodes = [Node()]
    for text in texts:
        at = 0
        for byte in text:
            below = nodes[at].children.get(byte)
            if below is None:
                below = nodes[at].children[byte] = len(nodes)
                nodes.append(Node(_after(nodes[at].place, byte)))
            at = below
        nodes[at].is_excluded = True
    return nodes


def leaving(place: int, children: Iterable[int]) -> list[Edge]:
    """Edges of a place without these bytes."""
    edges = list(STATES[place])
    for byte in children:
        edges = [
            (first, last, to)
            for low, high, to in edges
            for first, last in (((low, byte - 1), (byte + 1, high)) if low <= byte <= high else ((low, high),))
            if first <= last
        ]
    return edges


def _after(place: int, byte: int) -> int:
    return next(to for low, high, to in STATES[place] if low <= byte <= high)
