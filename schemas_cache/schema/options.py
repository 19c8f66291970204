"""What shapes the language beside the schema itself: every option here is part of a cache key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Whitespace = Literal["spaced", "compact", "flexible", "pretty"]
AdditionalProperties = Literal["closed", "open"]
KeyOrder = Literal["declared", "any"]


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """How a schema is read and how its documents are written.

    Attributes
    ----------
    strict : bool
        True: a keyword that cannot be enforced is an error. False: it is dropped and listed as a warning.
    whitespace : str
        `spaced` (what Python's `json.dumps` writes), `compact`, `flexible` (bounded runs) or `pretty` (two blanks).
    additional_properties : str
        What an absent `additionalProperties` means beside other property keywords: `closed`, or `open`, the standard's.
    key_order : str
        `declared`: keys in the order of `properties`; `any`: in every order.
    """

    strict: bool = True
    whitespace: Whitespace = "spaced"
    additional_properties: AdditionalProperties = "closed"
    key_order: KeyOrder = "declared"
