"""What a caller asks to be enforced, before anything is compiled.

In: a JSON Schema, any JSON object, a regular expression or a list of choices, with the options that shape the language.
Out: `Source`, frozen and hashable by content: the same request, parsed twice, has the same digest. Cost: linear in the
schema's text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from unicodedata import unidata_version

from schemas_cache.schema.document import canonical
from schemas_cache.schema.options import SchemaOptions

Kind = Literal["json_schema", "json_object", "regex", "choice"]


@dataclass(frozen=True, eq=False)
class Source:
    """One thing to enforce; build it with the functions below.

    Attributes
    ----------
    kind : str
        Which of the four it is.
    content : object
        The schema (dict or bool), the pattern (str), the choices (tuple of str), or None for `json_object`.
    options : SchemaOptions
        Strictness, whitespace, closed or open objects, key order.
    """

    kind: Kind
    content: Any
    options: SchemaOptions = field(default_factory=SchemaOptions)

    @cached_property
    def schema_hash(self) -> str:
        """SHA-256 over the canonical content, annotations removed and key order kept; as hex."""
        if self.kind == "json_schema":
            return hashlib.sha256(canonical(self.content)).hexdigest()
        text = json.dumps([self.kind, self.content], ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that shapes the language: kind, content, options, Unicode's version; as hex."""
        shaping = f"{self.kind} {self.schema_hash} {self.options!r} {unidata_version}"
        return hashlib.sha256(shaping.encode()).hexdigest()


def schema_source(schema: dict[str, Any] | bool, options: SchemaOptions | None = None) -> Source:
    """A JSON Schema."""
    return Source("json_schema", schema, options or SchemaOptions())


def json_object_source(options: SchemaOptions | None = None) -> Source:
    """Any JSON object."""
    return Source("json_object", None, options or SchemaOptions())


def regex_source(pattern: str) -> Source:
    """Texts that an ECMA-262 regular expression matches as a whole."""
    return Source("regex", pattern)


def choice_source(choices: Sequence[str]) -> Source:
    """One of these texts, as it stands (not JSON)."""
    return Source("choice", tuple(choices))
