"""The front end: from a JSON Schema to a grammar.

In: a schema as `json.loads` gives it, and options. Out: a `Grammar` whose texts are the schema's documents in one fixed
form, and warnings; or every reason why not, at once. Cost: linear in the schema but where `anyOf`s meet; the limits of
`schemas_cache.limits` hold throughout.

The stages, in order; a file imports earlier ones only:

    options, document         how a schema is read; limits, positions, the canonical form and its hash
    references                where `$ref` and its kin lead, as positions
    format_patterns, formats  which formats are known, and the patterns behind them
    keywords, reading         all that the root reaches, each keyword checked; what is malformed or a slip
    nodes, loops              subschemas that hold together; references that only lead back to themselves
    facets, merge             what a value has to satisfy, and what each keyword adds to that
    alternatives              a node -> facets: `$ref`, `allOf`, `anyOf` and their neighbours are one from here on
    complements, logic        `not` and `if`, and `oneOf` where it asks: keywords that hold where others do not
    writing, layout           what the writers below may ask of `lowering`; blanks
    integers, number_machine, decimals, multiples, numbers   texts of numbers
    names, strings, free      texts of strings; free JSON
    values                    listed values: which are allowed, and their texts
    evaluated                 who speaks of a member or an element, `unevaluated...` included
    keys, key_schemas         languages of keys, of `patternProperties` and `propertyNames`
    elements, containing, unique, arrays   elements by position, counted, different; arrays
    object_keys, members, objects          which keys there are, how members are put together; objects
    disjoint                  which subschemas never hold together, for `oneOf`
    lowering                  a rule for each reference, merged subschema and conjunction
    prune                     without rules that have no finite text, and characters that the vocabulary lacks
    plain                     a choice of texts, which has no schema

Semantics are the standard's: a keyword constrains instances of its own type only, `{"minLength": 3}` allows numbers.
What JSON leaves free is fixed: keys in the order of `properties`, then required names that are not declared, then open
keys (or all in any order, on request); blanks by mode; integers as plain digits, with `.0` at most.
`additionalProperties` absent means closed by default, for objects that have a property keyword. Words that no draft
knows pass, with a warning, but for likely slips: see `keywords`.
"""

from __future__ import annotations

from schemas_cache.errors import Finding, SchemaError, SchemaTooComplexError, UnsatisfiableSchemaError
from schemas_cache.grammar import Grammar, Never
from schemas_cache.schema.document import Json, canonical, read_document, schema_hash
from schemas_cache.schema.logic import rewrite
from schemas_cache.schema.loops import reference_loops
from schemas_cache.schema.lowering import Lowering
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.schema.plain import choice_grammar
from schemas_cache.schema.prune import prune
from schemas_cache.schema.reading import read
from schemas_cache.spelling import Characters

__all__ = ["SchemaOptions", "canonical", "choice_grammar", "json_object_grammar", "lower", "schema_hash"]


def lower(schema: Json, options: SchemaOptions, characters: Characters) -> tuple[Grammar, tuple[Finding, ...]]:
    """Write a schema as a grammar.

    Parameters
    ----------
    schema : dict or bool
        A JSON Schema as `json.loads` gives it; not changed.
    options : SchemaOptions
        How it is read and written.
    characters : frozenset of str, or None
        What the vocabulary can spell; None: everything.

    Returns
    -------
    Grammar
        Text level; every rule matches something.
    tuple of Finding
        Warnings: under `strict=False` what is not enforced.

    Raises
    ------
    SchemaError
        With all findings: what is malformed, and under `strict` what cannot be enforced.
    UnsatisfiableSchemaError
        When no document is left, or references only lead back to themselves.
    SchemaTooComplexError
        Beyond one of the limits.
    """
    reading = read(read_document(schema), strict=options.strict)
    loops = reference_loops(reading.schemas)
    lowering = Lowering(rewrite(reading.schemas), options, characters)
    grammar = lowering.grammar()
    dropped = tuple(lowering.findings)
    findings = [*reading.findings, *lowering.faults, *(dropped if options.strict else ())]
    if findings:
        refused = SchemaTooComplexError if all(finding.is_limit for finding in findings) else SchemaError
        raise refused([*findings, *loops])
    if loops:
        raise UnsatisfiableSchemaError(loops)
    grammar = prune(grammar, characters)
    if isinstance(grammar.rules[grammar.start], Never):
        nothing = Finding("#", "", "no document is both finite and valid, or none that the vocabulary can spell")
        raise UnsatisfiableSchemaError(tuple(lowering.dead_ends) or [nothing])
    return grammar, (*reading.warnings, *dropped)


def json_object_grammar(options: SchemaOptions, characters: Characters) -> Grammar:
    """Any JSON object; raises as `lower` does, under `pretty` always."""
    return lower({"type": "object"}, options, characters)[0]
