"""Blanks between the tokens of a document, per whitespace mode.

In: the mode and how deep a bracket stands. Out: `Layout`, the text expressions to put around members. The standard
leaves blanks free; a mode fixes them, or bounds every run of them: an unbounded run is the commonest way in which a
model writes nothing until its budget is used up. No mode writes anything before or after the document.

`spaced` and `pretty` are what Python's `json.dumps(value)` and `json.dumps(value, indent=2)` write.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas_cache.grammar import EMPTY, Expr, alt, concat, literal, optional, repeat
from schemas_cache.schema.options import Whitespace

MAX_BLANKS = 20
"""Longest run under `flexible`, behind at most one line break: indents ten levels of two."""
INDENT = "  "


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands between the tokens of one array or object.

    `colon` between name and value, `comma` between two members, `first` before the first and `last` after the last one,
    `none` between the brackets if there are no members.
    """

    colon: Expr
    comma: Expr
    first: Expr = EMPTY
    last: Expr = EMPTY
    none: Expr = EMPTY

    def bracketed(self, brackets: str, members: Expr, *, may_be_empty: bool) -> Expr:
        """An array or object around `members`, which are one at least; without any if that is allowed."""
        some = concat(literal(brackets[0]), self.first, members, self.last, literal(brackets[1]))
        return alt(self.empty(brackets), some) if may_be_empty else some

    def empty(self, brackets: str) -> Expr:
        """An array or object without members."""
        return concat(literal(brackets[0]), self.none, literal(brackets[1]))


def layout(whitespace: Whitespace, depth: int) -> Layout:
    """The layout of a bracket inside `depth` others; only `pretty` depends on it."""
    match whitespace:
        case "spaced":
            return Layout(literal(": "), literal(", "))
        case "compact":
            return Layout(literal(":"), literal(","))
        case "pretty":
            inside = "\n" + INDENT * (depth + 1)
            return Layout(literal(": "), literal("," + inside), literal(inside), literal("\n" + INDENT * depth))
        case "flexible":
            blanks = concat(optional(literal("\n")), repeat(literal(" "), 0, MAX_BLANKS))
            colon, comma = concat(blanks, literal(":"), blanks), concat(blanks, literal(","), blanks)
            return Layout(colon, comma, blanks, blanks, blanks)
