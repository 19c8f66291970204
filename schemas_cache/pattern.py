r"""Regular expressions: from an ECMA-262 pattern to an expression over the characters of a value.

In: a pattern as JSON Schema's `pattern` has it (ECMA-262, as with the `u` flag). Out: a value-level `Expr` of all
values in which it matches somewhere (`search_language`) or as a whole (`full_language`). Cost: one pass, linear in the
pattern but for optional anchors (see `anchors`); counts are kept as counts.

The pieces are put together while they are read: there is no syntax tree, since every construct that can be enforced has
its meaning in `anchors`' algebra. Laziness and capturing do not change which values match and are read and dropped.
Look-around, back-references, word boundaries and inline modifiers are refused by name.

Where the `u` grammar has no reading, annex B's is taken if it is a literal one: a lone `{`, `}` or `]`, `\-` and other
escaped punctuation, `[\w-.]`. `{,5}` is refused, since annex B reads it as literal and other dialects as a count, and
so are escaped letters without a meaning (`\A`, `\h`). Constructs that both grammars know, `\u{...}` and `\p{...}`, keep
their `u` meaning in any company. Values are sequences of Unicode scalar values: lone surrogates match nothing.

Source: ECMA-262 2024, 22.2.1, and annex B.1.2. Rejected: Python's `re` parser (another dialect: `\d`, `\s`, `$`, `\Z`).
"""

from __future__ import annotations

import re

from schemas_cache.anchors import (
    Variants,
    at_end,
    at_start,
    choice,
    plain,
    repeated,
    sequence,
    somewhere,
    tree_size,
    whole,
)
from schemas_cache.code_points import LINE_END, complement, scalars
from schemas_cache.errors import PatternError
from schemas_cache.grammar import Expr, char_class
from schemas_cache.pattern_classes import Cursor, read_class, read_escape
from schemas_cache.work import spend

MAX_NESTING = 100
"""Groups inside groups. Later stages walk the tree by recursion, several calls a level; Python allows 1,000 in all."""

MAX_COUNT_DIGITS = 15
"""Digits in a count: beyond, it is no count of characters, and would not be exact in a double."""

MAX_GROWTH = 8
MAX_GROWN_NODES = 20_000
"""A piece may have this many nodes, and `MAX_GROWTH` more for every character of the pattern. Only optional anchors and
bounded repeats of what may be empty come to that, nested deeply: they are taken apart once for each way to be empty."""

_ATOM_WORK = 9  # steps to read a character or a class, and to spell it
_COUNT = re.compile(r"\{([0-9]+)(,?)([0-9]*)\}")
_COUNT_WITHOUT_MINIMUM = re.compile(r"\{,[0-9]+\}")
_SIMPLE_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_GROUP_NAME = re.compile(r"<([^>]*)>")
_MODIFIERS = re.compile(r"[a-zA-Z]*-?[a-zA-Z]*[:)]")
_LOOK_HINT = (
    "say what the value may be, instead of what must stand beside it; several patterns can be combined by allOf"
)
_GROWTH_HINT = "anchor the pattern as a whole, and repeat parts that are not empty"
_REFUSED_GROUPS = {
    "=": ("look-ahead", _LOOK_HINT),
    "!": ("negative look-ahead", _LOOK_HINT),
    "<=": ("look-behind", _LOOK_HINT),
    "<!": ("negative look-behind", _LOOK_HINT),
    ">": ("atomic group", "write (?:...)"),
    "#": ("comment", "leave it out"),
    "P<": ("named group in another dialect", "write (?<name>...)"),
    "P=": ("back-reference", "repeat the group's own pattern; that the texts are equal cannot be enforced"),
}


def search_language(pattern: str) -> Expr:
    """All values in which `pattern` matches somewhere: what JSON Schema's `pattern` asks.

    Raises
    ------
    PatternError
        If the pattern is malformed or uses what cannot be enforced.
    """
    return somewhere(_Parser(pattern).whole())


def full_language(pattern: str) -> Expr:
    """All values that `pattern` matches from their start to their end.

    Raises
    ------
    PatternError
        If the pattern is malformed or uses what cannot be enforced.
    """
    return whole(_Parser(pattern).whole())


class _Parser:
    """Recursive descent over one pattern; every method reads one construct and returns what it matches."""

    def __init__(self, pattern: str) -> None:
        # Halves of a pair that stand as two code points in a Python string are one character to ECMA-262.
        self.cursor = Cursor(pattern.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
        self.depth = 0
        self.names: set[str] = set()

    def whole(self) -> Variants:
        found = self.disjunction()
        if self.cursor.next():
            raise self.cursor.malformed(
                "closing parenthesis without its group", self.cursor.at - 1, r"write \) for itself"
            )
        return found

    def disjunction(self) -> Variants:
        choices = [self.alternative()]
        while self.cursor.take("|"):
            choices.append(self.alternative())
        return choice(choices)

    def alternative(self) -> Variants:
        start, terms = self.cursor.at, []
        while self.cursor.peek() not in ("", "|", ")"):
            terms.append(self.term())
        return self.bounded(sequence(terms), start)

    def term(self) -> Variants:
        if self.cursor.take("^"):
            return at_start()
        if self.cursor.take("$"):
            return at_end()
        spend(_ATOM_WORK)
        start = self.cursor.at
        atom = self.atom()
        count = _read_count(self.cursor)
        if count is None:
            return atom
        self.cursor.take("?")
        return self.bounded(repeated(atom, *count), start)

    def bounded(self, piece: Variants, start: int) -> Variants:
        """`piece`, unless putting it together has made it too large."""
        if tree_size(piece) > MAX_GROWN_NODES + MAX_GROWTH * len(self.cursor.text):
            raise self.cursor.error("too many ways in which a part may be empty or an anchor hold", start, _GROWTH_HINT)
        return piece

    def atom(self) -> Variants:
        start = self.cursor.at
        match self.cursor.peek():
            case "(":
                return self.group()
            case "[":
                return plain(char_class(read_class(self.cursor)))
            case "\\":
                found = read_escape(self.cursor, in_class=False)
                return plain(char_class(scalars([(found, found)]) if isinstance(found, int) else found))
        if _read_count(self.cursor) is not None:
            raise self.cursor.malformed(
                "nothing to repeat", start, "a quantifier follows a character, a class or a group"
            )
        char = self.cursor.next()
        return plain(char_class(complement(LINE_END) if char == "." else scalars([(ord(char), ord(char))])))

    def group(self) -> Variants:
        start = self.cursor.at
        self.cursor.at += 1
        if self.cursor.take("?"):
            self.group_kind(start)
        if self.depth == MAX_NESTING:
            raise self.cursor.error(f"groups nested deeper than {MAX_NESTING}", start)
        self.depth += 1
        found = self.disjunction()
        self.depth -= 1
        if not self.cursor.take(")"):
            raise PatternError(
                "group without its closing parenthesis", position=start, construct="(", is_malformed=True
            )
        return found

    def group_kind(self, start: int) -> None:
        """Read what follows `(?`: a colon or a name, or refuse it."""
        if self.cursor.take(":"):
            return
        for prefix, (construct, hint) in _REFUSED_GROUPS.items():
            if self.cursor.take(prefix):
                raise self.cursor.error(construct, start, hint)
        if name := self.cursor.match(_GROUP_NAME):
            self.group_name(name[1], start)
        elif self.cursor.match(_MODIFIERS):
            raise self.cursor.error("inline modifiers", start, "write both cases as a class, such as [Aa]")
        else:
            raise self.cursor.malformed("unknown kind of group", start, "write (?:...) or (?<name>...)")

    def group_name(self, name: str, start: int) -> None:
        if not name.replace("$", "_").isidentifier():
            raise self.cursor.malformed("malformed group name", start)
        if name in self.names:
            raise self.cursor.malformed("group name used twice", start)
        self.names.add(name)


def _read_count(cursor: Cursor) -> tuple[int, int | None] | None:
    """The counts of a quantifier, or None where there is none."""
    start = cursor.at
    if cursor.peek() in _SIMPLE_COUNTS:
        return _SIMPLE_COUNTS[cursor.next()]
    if cursor.match(_COUNT_WITHOUT_MINIMUM):
        raise cursor.error("count without a minimum", start, r"write {0,n}, or \{ for a brace")
    found = cursor.match(_COUNT)
    if found is None:
        return None
    low, comma, high = found.groups()
    if max(len(low), len(high)) > MAX_COUNT_DIGITS:
        raise cursor.error(f"count of more than {MAX_COUNT_DIGITS} digits", start)
    minimum = int(low)
    maximum = (int(high) if high else None) if comma else minimum
    if maximum is not None and maximum < minimum:
        raise cursor.malformed("counts out of order", start)
    return minimum, maximum
