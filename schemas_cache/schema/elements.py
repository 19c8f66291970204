"""Which subschemas an element has to satisfy, by position, and elements one after another.

In: facets, and a position: an index, or None for any behind all prefixes. Out: an `Element`, the nodes of which one has
to hold, and expressions. Cost: linear in the layers, times the subschemas of `contains` that `unevaluatedItems` depends
on; n log n copies of n positions, since an array may end behind any of them.

`items` is about the elements behind the prefix of its own layer. `unevaluatedItems` is about every layer that its
subschema applies in place, as far as it holds, and leaves alone what matches a `contains` there: an element then has to
match one of those or the `unevaluatedItems`. Source: JSON Schema Core 2020-12, 10.3.1 and 11.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from schemas_cache.grammar import EMPTY, NEVER, Expr, Never, alt, concat, mark, repeat
from schemas_cache.schema.evaluated import applied_by
from schemas_cache.schema.facets import ArrayLayer, Facets
from schemas_cache.schema.layout import layout
from schemas_cache.schema.nodes import Node, Schemas
from schemas_cache.schema.writing import Writing

Element = tuple[Node, ...]
"""Nodes of which one has to hold."""
ANY_INDEX = "*"
"""The place of an element whose number is not known."""


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of one array: `prefix` by position, `rest` behind it (None: nothing), inside `depth` brackets."""

    writing: Writing
    prefix: Sequence[Element]
    rest: Element | None
    depth: int
    owner: str
    written: dict[tuple[Element, bool], Expr] = field(default_factory=dict)  # each once, or nesting doubles

    @property
    def comma(self) -> Expr:
        """What stands between two elements."""
        return layout(self.writing.options.whitespace, self.depth - 1).comma

    def text(self, one: Element | None, index: str | None, *, is_shared: bool = False) -> Expr:
        """One element; `index` is its place, None where the count in the frame says it."""
        key = one or (), is_shared
        if key not in self.written:
            write = self.writing.shared if is_shared else self.writing.value
            self.written[key] = alt(*(write(node, self.depth, self.owner) for node in one or ()))
        return mark(index, self.written[key])

    def texts(self) -> list[Expr]:
        """The prefix."""
        return [self.text(one, str(i)) for i, one in enumerate(self.prefix)]

    def ending_at(self, length: int) -> Elements:
        """The same up to a position that nothing can stand at."""
        return replace(self, prefix=self.prefix[:length], rest=None)

    def behind(self, count: int) -> Elements:
        """The same without the first elements."""
        return replace(self, prefix=self.prefix[count:])

    def most(self, high: int | None) -> int | None:
        """How many elements there can be: `high` at most, fewer where nothing can stand behind the prefix."""
        if isinstance(self.text(self.rest, None), Never):
            return len(self.prefix) if high is None else min(high, len(self.prefix))
        return high


def prefix_length(facets: Facets) -> int:
    """Number of positions that some layer has a subschema for; all behind them are alike."""
    return max((len(layer.prefix) for layer in facets.arrays.values()), default=0)


def element(facets: Facets, schemas: Schemas, index: int | None) -> Element:
    """What the element at a position has to satisfy."""
    spoken = (_of_layer(layer, index) for layer in facets.arrays.values())
    choices: list[Node] = [tuple(dict.fromkeys(pointer for pointer in spoken if pointer is not None))]
    for holder, position in facets.unevaluated_items.items():
        others = _evaluating(holder, facets, schemas, index)
        if others is not None:
            choices = [(*choice, other) for choice in choices for other in (position, *others)]
    return tuple(choices)


def with_also(one: Element | None, pointer: str) -> Element:
    """The elements that satisfy another subschema as well."""
    return tuple((*node, pointer) for node in one or ())


def sequence(elements: Elements, low: int, high: int | None) -> Expr:
    """From `low`, which is 1 at least, to `high` elements and the commas between them."""
    texts, comma = elements.texts()[:high], elements.comma
    count = len(texts)
    if not texts:
        return repeat(elements.text(elements.rest, None), low, high, comma)
    if high is None or high > count:
        rest = elements.text(elements.rest, ANY_INDEX)
        behind = concat(comma, repeat(rest, max(low - count, 1), None if high is None else high - count, comma))
        texts[-1] = concat(texts[-1], alt(EMPTY if low <= count else NEVER, behind))
    return _beginnings(texts, min(low, count), comma)


def _beginnings(texts: list[Expr], low: int, comma: Expr) -> Expr:
    """The first elements, `low` of them or more; halving keeps it within n log n, and shallow."""
    if low == len(texts):
        return _all(texts, comma)
    half = (low + len(texts)) // 2
    longer = concat(_all(texts[:half], comma), comma, _beginnings(texts[half:], 1, comma))
    return alt(_beginnings(texts[:half], low, comma), longer)


def _all(texts: list[Expr], comma: Expr) -> Expr:
    return concat(*[part for text in texts for part in (comma, text)][1:])


def _of_layer(layer: ArrayLayer, index: int | None) -> str | None:
    return layer.prefix[index] if index is not None and index < len(layer.prefix) else layer.rest


def _evaluating(holder: str, facets: Facets, schemas: Schemas, index: int | None) -> list[str] | None:
    """The `contains` that evaluate what they match, for one `unevaluatedItems`; None where all is evaluated anyway."""
    below = list(applied_by(holder, facets, schemas))
    if any(pointer in facets.unevaluated_items for pointer in below if pointer != holder):
        return None
    layers = [facets.arrays[pointer] for pointer in below if pointer in facets.arrays]
    if any(_of_layer(layer, index) is not None for layer in layers):
        return None
    return [layer.contains for layer in layers if layer.contains is not None]
