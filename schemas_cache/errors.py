"""What can go wrong between a schema and a mask, one class per cause.

Every class carries its facts as fields, so that a caller (an HTTP server, a test) maps them without reading text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a schema: where, what, why, and the way out.

    Attributes
    ----------
    pointer : str
        JSON pointer from the schema's root to the subschema, as a fragment: `#/properties/code`.
    keyword : str
        The keyword at fault; empty where the subschema itself is.
    reason : str
        What cannot be done, in words, with the value at fault.
    hint : str
        What to write instead; empty where there is nothing to suggest.
    is_note : bool
        Says how the schema was read: nothing that the standard asks for is lost.
    is_limit : bool
        What is asked for could be enforced, if a bound of `limits` were higher.
    """

    pointer: str
    keyword: str
    reason: str
    hint: str = ""
    is_note: bool = False
    is_limit: bool = False

    def __str__(self) -> str:
        place = f"{self.pointer}/{self.keyword}" if self.keyword else self.pointer
        return f"at {place}: {self.reason}" + (f"; {self.hint}" if self.hint else "")


class KatagamiError(Exception):
    """Base of all errors that this project raises on purpose."""


class SchemaError(KatagamiError):
    """A schema that cannot be enforced exactly; `findings` lists every reason.

    `code` is the machine-readable cause: `invalid_json_schema`, `unsatisfiable_schema`, `schema_too_complex` or
    `schema_compile_timeout`.
    """

    code = "invalid_json_schema"

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        super().__init__(f"{self.findings[0]}{more}")

    def __reduce__(self) -> tuple[type[SchemaError], tuple[tuple[Finding, ...]]]:
        """Travels between processes as what it was made of, not as its text."""
        return type(self), (self.findings,)


class UnsatisfiableSchemaError(SchemaError):
    """No document at all satisfies the schema, or none that the vocabulary can spell."""

    code = "unsatisfiable_schema"


class SchemaTooComplexError(SchemaError):
    """A bound of `limits` was reached; the finding names the figure and the limit."""

    code = "schema_too_complex"


class CompileTimeoutError(SchemaError):
    """Compiling took longer than allowed."""

    code = "schema_compile_timeout"


class PatternError(KatagamiError):
    """A regular expression that is malformed or uses what cannot be enforced.

    Attributes
    ----------
    position : int
        Index in the pattern, in code points from 0.
    construct : str
        The piece of the pattern at fault.
    is_malformed : bool
        Whether no reading of ECMA-262 takes it, with the flag `u` or without; otherwise it only cannot be enforced.
    """

    def __init__(
        self, reason: str, *, position: int, construct: str, hint: str = "", is_malformed: bool = False
    ) -> None:
        self.reason, self.position, self.construct, self.hint = reason, position, construct, hint
        self.is_malformed = is_malformed
        super().__init__(f'{reason}: "{construct}" at character {position}' + (f"; {hint}" if hint else ""))


class ForbiddenTokenError(KatagamiError):
    """`advance` was called with a token that the mask forbids; the matcher is unchanged."""

    def __init__(self, token_id: int, pointer: str) -> None:
        self.token_id, self.pointer = token_id, pointer
        super().__init__(f"token {token_id} is not allowed here (at {pointer or 'the root'})")


class ForbiddenBytesError(KatagamiError):
    """`advance_bytes` was called with bytes that cannot come here; the matcher is unchanged."""

    def __init__(self, data: bytes, pointer: str) -> None:
        self.data, self.pointer = data, pointer
        super().__init__(f"the bytes {data!r} are not allowed here (at {pointer or 'the root'})")


class DeadStateError(KatagamiError):
    """No token of the vocabulary can continue the text, although some bytes could."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
        super().__init__(
            f"no token of the vocabulary continues the text at {pointer or 'the root'}; "
            "the vocabulary lacks characters that the schema needs"
        )
