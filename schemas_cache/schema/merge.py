"""The conjunction of keywords, one function each: what a keyword adds to the facets that are there.

In: facets, the value of a keyword, and the position of its subschema. Out: the facets, changed. Cost: linear in the
value. All functions have the same parameters; the table `MERGE` says which keyword is whose.

Rejected: merging schemas as documents (`additionalProperties` is about its own neighbours only, and merged text has no
position to report).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas_cache.schema.decimals import exact
from schemas_cache.schema.facets import ArrayLayer, Bound, Dependent, Enumeration, Facets, Layer, least

Merge = Callable[[Facets, Any, str], None]


def merge_dependents(facets: Facets, keyword: str, value: Any, pointer: str, trail: frozenset[str]) -> None:
    """All count, in the order of the names that they depend on."""
    for name, asked in value.items():
        names, schema = (tuple(asked), None) if isinstance(asked, list) else ((), asked)
        known = facets.dependents.get(name, ())
        facets.dependents[name] = (*known, Dependent(keyword, pointer, names, schema, trail))


def merge_type(facets: Facets, value: Any, pointer: str) -> None:
    """Types meet; `number` covers integers."""
    del pointer
    names = {value} if isinstance(value, str) else set(value)
    facets.types &= names | ({"integer", "fraction"} if "number" in names else set())


def merge_min_length(facets: Facets, value: Any, pointer: str) -> None:
    """The greatest counts."""
    facets.min_length = max(facets.min_length, int(value))
    facets.lengths_at += [(pointer, "minLength")] if value else []


def merge_max_length(facets: Facets, value: Any, pointer: str) -> None:
    """The least counts."""
    facets.max_length = least(facets.max_length, int(value))
    facets.lengths_at.append((pointer, "maxLength"))


def merge_pattern(facets: Facets, value: Any, pointer: str) -> None:
    """All count; the same one twice is one."""
    facets.patterns.setdefault(value, pointer)


def merge_format(facets: Facets, value: Any, pointer: str) -> None:
    """All count; unknown ones were left out when reading."""
    facets.formats.setdefault(value, pointer)


def merge_bound(keyword: str) -> Merge:
    """All count; which is the tightest depends on the type that they are applied to."""

    def merge(facets: Facets, value: Any, pointer: str) -> None:
        facets.bounds.append(Bound(keyword, exact(value), pointer))

    return merge


def merge_multiple_of(facets: Facets, value: Any, pointer: str) -> None:
    """All count."""
    facets.multiples.append((exact(value), pointer))


def merge_items(facets: Facets, value: Any, pointer: str) -> None:
    """About the elements behind the prefix of its own layer."""
    facets.arrays.setdefault(pointer, ArrayLayer()).rest = value


def merge_prefix_items(facets: Facets, value: Any, pointer: str) -> None:
    """One more layer; position by position all count."""
    facets.arrays.setdefault(pointer, ArrayLayer()).prefix = value


def merge_contains(facets: Facets, value: Any, pointer: str) -> None:
    """Each is counted by itself."""
    facets.arrays.setdefault(pointer, ArrayLayer()).contains = value


def merge_min_contains(facets: Facets, value: Any, pointer: str) -> None:
    """About the `contains` of its own layer, if there is one."""
    facets.arrays.setdefault(pointer, ArrayLayer()).least = int(value)


def merge_max_contains(facets: Facets, value: Any, pointer: str) -> None:
    """As `minContains`."""
    facets.arrays.setdefault(pointer, ArrayLayer()).most = int(value)


def merge_unique_items(facets: Facets, value: Any, pointer: str) -> None:
    """Asking twice is asking once; `false` says nothing."""
    if value:
        facets.unique_items[pointer] = None


def merge_unevaluated_items(facets: Facets, value: Any, pointer: str) -> None:
    """As `unevaluatedProperties`."""
    facets.unevaluated_items[pointer] = value


def merge_min_items(facets: Facets, value: Any, pointer: str) -> None:
    """The greatest counts."""
    del pointer
    facets.min_items = max(facets.min_items, int(value))


def merge_max_items(facets: Facets, value: Any, pointer: str) -> None:
    """The least counts."""
    del pointer
    facets.max_items = least(facets.max_items, int(value))


def merge_properties(facets: Facets, value: Any, pointer: str) -> None:
    """One more layer, or one more keyword of this subschema's layer."""
    facets.layers.setdefault(pointer, Layer()).properties = value


def merge_additional_properties(facets: Facets, value: Any, pointer: str) -> None:
    """As `properties`: it is about the names that its own layer does not list."""
    facets.layers.setdefault(pointer, Layer()).additional = value


def merge_pattern_properties(facets: Facets, value: Any, pointer: str) -> None:
    """As `properties`."""
    facets.layers.setdefault(pointer, Layer()).patterns = value


def merge_property_names(facets: Facets, value: Any, pointer: str) -> None:
    """Every name satisfies all."""
    facets.key_schemas.setdefault(value, pointer)


def merge_min_properties(facets: Facets, value: Any, pointer: str) -> None:
    """The greatest counts."""
    del pointer
    facets.min_properties = max(facets.min_properties, int(value))


def merge_max_properties(facets: Facets, value: Any, pointer: str) -> None:
    """The least counts."""
    del pointer
    facets.max_properties = least(facets.max_properties, int(value))


def merge_unevaluated_properties(facets: Facets, value: Any, pointer: str) -> None:
    """Each is about what its own subschema, with all that it applies in place, does not know."""
    facets.unevaluated_properties[pointer] = value


def merge_required(facets: Facets, value: Any, pointer: str) -> None:
    """All names count."""
    for name in value:
        facets.required.setdefault(name, pointer)


def merge_enum(facets: Facets, value: Any, pointer: str) -> None:
    """All count; the values of the first are filtered by the rest."""
    facets.enumerations.append(Enumeration("enum", value, pointer))


def merge_const(facets: Facets, value: Any, pointer: str) -> None:
    """An enumeration of one."""
    facets.enumerations.append(Enumeration("const", [value], pointer))


def merge_types(facets: Facets, value: Any, pointer: str) -> None:
    """As `type`, in our own disjoint types."""
    del pointer
    facets.types &= value


def merge_excluded_values(facets: Facets, value: Any, pointer: str) -> None:
    """None of these values."""
    del pointer
    facets.excluded_values += value


def merge_excluded_pattern(facets: Facets, value: Any, pointer: str) -> None:
    """Strings without a match; the same pattern twice is one."""
    facets.excluded_patterns.setdefault(value, pointer)


def merge_digits(facets: Facets, value: Any, pointer: str) -> None:
    """Integers are written without a fraction, not even `.0`."""
    del value, pointer
    facets.is_plain_integer = True


def merge_absent(facets: Facets, value: Any, pointer: str) -> None:
    """None of these names."""
    for name in value:
        facets.forbidden.setdefault(name, pointer)


def merge_refused(facets: Facets, value: Any, pointer: str) -> None:
    """What `logic` could not rewrite."""
    del pointer
    facets.unenforced |= dict.fromkeys(value)


MERGE: dict[str, Merge] = {
    "type": merge_type,
    "minLength": merge_min_length,
    "maxLength": merge_max_length,
    "pattern": merge_pattern,
    "format": merge_format,
    "minimum": merge_bound("minimum"),
    "maximum": merge_bound("maximum"),
    "exclusiveMinimum": merge_bound("exclusiveMinimum"),
    "exclusiveMaximum": merge_bound("exclusiveMaximum"),
    "multipleOf": merge_multiple_of,
    "items": merge_items,
    "prefixItems": merge_prefix_items,
    "contains": merge_contains,
    "minContains": merge_min_contains,
    "maxContains": merge_max_contains,
    "uniqueItems": merge_unique_items,
    "unevaluatedItems": merge_unevaluated_items,
    "minItems": merge_min_items,
    "maxItems": merge_max_items,
    "properties": merge_properties,
    "additionalProperties": merge_additional_properties,
    "patternProperties": merge_pattern_properties,
    "propertyNames": merge_property_names,
    "minProperties": merge_min_properties,
    "maxProperties": merge_max_properties,
    "unevaluatedProperties": merge_unevaluated_properties,
    "required": merge_required,
    "enum": merge_enum,
    "const": merge_const,
    "^types": merge_types,
    "^values": merge_excluded_values,
    "^pattern": merge_excluded_pattern,
    "^absent": merge_absent,
    "^digits": merge_digits,
    "^refused": merge_refused,
}
"""Every keyword of `reading` and every `^` word of `logic`, but those that lead to other subschemas in place."""
