"""Where references lead, as positions in the document.

In: a `Document`. Out: `References`: for a reference that stands somewhere, the position and contents of its target.
Cost: one walk over the subschemas, then a few look-ups for each reference. Nothing is ever fetched.

Resources (`$id`, in draft-04 `id`) are embedded at positions of their own, each the base of what is inside; what counts
as a name or an anchor in which draft, the library `referencing` knows. The URI of a resource and a pointer or an anchor
in it give the target. `$dynamicRef` and `$recursiveRef` depend on the way that led to them, so they are followed where
every way gives the same target: there is one candidate, or the root resource is one, which is on every way. Sources:
RFC 3986 section 5; JSON Schema Core 2020-12, 8.2; Core 2019-09, 8.2.4.2.

Rejected: `referencing.Registry` as a whole, which gives contents without their position, and no two equal subschemas
could be told apart; treating a URI that nothing here has as an annotation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urldefrag, urljoin

from referencing import Specification
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012, DynamicAnchor

from schemas_cache.schema.document import (
    LIST_OF_SCHEMAS,
    ONE_SCHEMA,
    SCHEMAS_BY_NAME,
    DanglingRefError,
    Document,
    Json,
    child,
)

_SPECIFICATIONS: dict[str, Specification[Json]] = {
    "4": DRAFT4,
    "6": DRAFT6,
    "7": DRAFT7,
    "2019-09": DRAFT201909,
    "2020-12": DRAFT202012,
}
_METASCHEMAS = ("http://json-schema.org/", "https://json-schema.org/")
_COPY = 'copy the definition into "$defs" and write "#/$defs/name"'


@dataclass(slots=True)
class References:
    """The resources of a document.

    Attributes
    ----------
    resources : dict
        URI to position; the document's own is there as the empty URI as well.
    bases : dict
        Position of a resource to its URI.
    anchors : dict
        URI and name to position.
    dynamic : dict
        Name to those URIs whose anchor of that name is a dynamic one.
    recursive : list
        Positions of the resources with `$recursiveAnchor: true`.
    """

    document: Document
    resources: dict[str, str] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    anchors: dict[tuple[str, str], str] = field(default_factory=dict)
    dynamic: dict[str, list[str]] = field(default_factory=dict)
    recursive: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        specification = _SPECIFICATIONS.get(self.document.draft, DRAFT202012)
        for pointer, schema, base in _subschemas(self.document, specification):
            if base is not None:
                self.bases[pointer] = base
                self.resources.setdefault(base, pointer)
            if isinstance(schema, dict):
                self._keep_anchors(pointer, schema, specification)
        self.resources.setdefault("", "#")

    def resolve(self, keyword: str, reference: str, pointer: str) -> tuple[str, Json]:
        """Position and contents that a reference of the subschema at `pointer` leads to.

        Raises
        ------
        DanglingRefError
            Where it leads nowhere, or to a place that depends on the way that leads to it.
        """
        if keyword == "$recursiveRef":
            return self._recursive(reference, pointer)
        base, fragment = self._split(reference, pointer)
        if not fragment or fragment.startswith("/"):
            segments = [part.replace("~1", "/").replace("~0", "~") for part in fragment.split("/")[1:]]
            return self.document.follow(self.resources[base], segments, reference)
        if (base, fragment) not in self.anchors:
            near = ", ".join(sorted(name for uri, name in self.anchors if uri == base)[:8])
            hint = f"anchors there: {near}" if near else 'write a JSON pointer such as "#/$defs/name"'
            raise DanglingRefError(f'"{reference}" points to nothing: there is no anchor "{fragment}"', hint)
        if keyword == "$dynamicRef" and base in self.dynamic.get(fragment, ()):
            base = self._outermost(fragment, reference)
        return self.document.follow(self.anchors[base, fragment], [], reference)

    def _split(self, reference: str, pointer: str) -> tuple[str, str]:
        """The URI of the resource, and the fragment in it."""
        base = self._base(pointer)
        if reference.startswith("#"):
            return base, unquote(reference[1:])
        uri, fragment = urldefrag(urljoin(base, reference))
        if uri in self.resources:
            return uri, unquote(fragment)
        if uri.startswith(_METASCHEMAS):
            raise DanglingRefError(f'"{reference}" is a metaschema, which is not part of the document', _COPY)
        raise DanglingRefError(f'"{reference}" points outside of the document; nothing is ever fetched', _COPY)

    def _base(self, pointer: str) -> str:
        while pointer not in self.bases:
            pointer = pointer.rpartition("/")[0] or "#"
        return self.bases[pointer]

    def _recursive(self, reference: str, pointer: str) -> tuple[str, Json]:
        if reference != "#":
            raise DanglingRefError(f'"$recursiveRef" can only be "#", found "{reference}"')
        own = self.resources[self._base(pointer)]
        if own in self.recursive and self.recursive != [own]:
            if len(self.recursive) < len(set(self.resources.values())) or "#" not in self.recursive:
                raise _unclear(reference, self.recursive)
            own = "#"
        return self.document.follow(own, [], reference)

    def _outermost(self, name: str, reference: str) -> str:
        uris, root = self.dynamic[name], self.bases["#"]
        if len(uris) > 1 and root not in uris:
            raise _unclear(reference, [self.anchors[uri, name] for uri in uris])
        return root if root in uris else uris[0]

    def _keep_anchors(self, pointer: str, schema: dict[str, Json], specification: Specification[Json]) -> None:
        base = self._base(pointer)
        if all(isinstance(schema.get(word, ""), str) for word in ("$id", "id", "$anchor", "$dynamicAnchor")):
            for anchor in specification.anchors_in(schema):
                self.anchors.setdefault((base, anchor.name), pointer)
                if isinstance(anchor, DynamicAnchor):
                    self.dynamic.setdefault(anchor.name, []).append(base)
        if schema.get("$recursiveAnchor") is True and pointer in self.bases and specification is DRAFT201909:
            self.recursive.append(pointer)


def _unclear(reference: str, targets: list[str]) -> DanglingRefError:
    reason = f'"{reference}" leads to different places, depending on the way that leads to it: {", ".join(targets)}'
    return DanglingRefError(reason, "write $ref with the one that is meant")


def _subschemas(document: Document, specification: Specification[Json]) -> Iterator[tuple[str, Json, str | None]]:
    """Every subschema where the standard has one, in document order; with its URI where it is a resource."""
    stack: list[tuple[str, Json, str]] = [("#", document.root, "")]
    while stack:
        pointer, schema, base = stack.pop()
        name = _id(schema, specification)
        own = urldefrag(urljoin(base, name))[0] if name else base
        yield pointer, schema, own if name or pointer == "#" else None
        stack += reversed([(at, inner, own) for at, inner in _children(pointer, schema)])


def _id(schema: Json, specification: Specification[Json]) -> str:
    """The name of a resource; one that is a fragment alone names no resource."""
    word = "id" if specification is DRAFT4 else "$id"
    if not isinstance(schema, dict) or not isinstance(schema.get(word), str):
        return ""
    name = specification.id_of(schema) or ""
    return "" if name.startswith("#") else name


def _children(pointer: str, schema: Json) -> Iterator[tuple[str, Json]]:
    for word, value in schema.items() if isinstance(schema, dict) else ():
        at = child(pointer, word)
        if word in SCHEMAS_BY_NAME and isinstance(value, dict):
            yield from ((child(at, name), inner) for name, inner in value.items())
        elif word in LIST_OF_SCHEMAS and isinstance(value, list):
            yield from ((child(at, str(i)), inner) for i, inner in enumerate(value))
        elif word in ONE_SCHEMA:
            yield at, value
