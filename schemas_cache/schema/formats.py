r"""The formats of strings: for each name a pattern, so that it is one more automaton over the value.

In: a format's name. Out: its values as an expression, or as an automaton and a greatest length. Cost: an automaton is
built once in a process; most take some milliseconds, addresses some tenths of a second.

No entry allows a text that its standard does not: where the standard is no regular language, or a very large one, the
entry says which valid texts it leaves out. A format that is not listed is an annotation. As in the standard, formats
are about strings only.

Rejected: checking a format after the text is written (there is nothing to choose any more), and the usual loose
patterns (`^\S+@\S+$`), which promise what they do not keep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import Expr, alt, concat
from schemas_cache.lengths import of_length
from schemas_cache.machines import machine_of
from schemas_cache.pattern import full_language
from schemas_cache.schema import format_patterns as patterns

_MOST_OF_ADDRESS = 254  # RFC 5321, section 4.5.3.1.3, without the angle brackets
_MOST_OF_NAME = 253  # RFC 1123, section 2.1, and RFC 1035, section 2.3.4


@dataclass(frozen=True, slots=True)
class Format:
    """What a string of one format looks like.

    Attributes
    ----------
    source : str
        The standard.
    left_out : str
        Which texts that are valid by the standard are not allowed; empty where the entry is exact.
    uncounted : callable
        Makes the value-level expression of all its values, and of longer ones where there is a greatest length.
    language : callable
        Makes the value-level expression of all its values.
    max_length : int or None
        Most characters.
    """

    source: str
    left_out: str
    uncounted: Callable[[], Expr]
    language: Callable[[], Expr]
    max_length: int | None = None


def _pattern(pattern: str, source: str, left_out: str = "") -> Format:
    return Format(source, left_out, partial(full_language, pattern), partial(full_language, pattern))


def _counted(uncounted: Callable[[], Expr], most: int, source: str, left_out: str) -> Format:
    return Format(source, left_out, uncounted, partial(_at_most, uncounted, most), most)


def _at_most(uncounted: Callable[[], Expr], most: int) -> Expr:
    return of_length(machine_of(uncounted()), 0, most)


def _mailbox(local_part: str, longest: int, domain: str) -> Expr:
    """An address whose local part has so many characters at most."""
    return concat(of_length(machine_of(full_language(local_part)), 1, longest), full_language(domain))


def _email() -> Expr:
    return _mailbox(patterns.LOCAL_PART, 64, patterns.MAIL_DOMAIN)


def _idn_email(ascii_only: Callable[[], Expr]) -> Expr:
    """As an ASCII address, or with characters that take up to four octets each: 254 octets at most in all."""
    return alt(
        ascii_only(),
        _mailbox(patterns.LOCAL_PART, 64, patterns.IDN_MAIL_DOMAIN),
        _mailbox(patterns.IDN_LOCAL_PART, 15, patterns.IDN_MAIL_DOMAIN),
    )


_plain_name = partial(full_language, patterns.HOSTNAME_WITH_ANY_DOT)


def _idn_hostname(ascii_only: Callable[[], Expr]) -> Expr:
    """Labels of ASCII, or few enough labels that all are short."""
    return alt(ascii_only(), full_language(patterns.SHORT_IDN_HOSTNAME))


_YEAR_0 = "the year 0000"
_WHOLE_HOURS = "leap seconds but at the end of June and December, with offsets of whole hours"
_A_LABELS = 'labels with "--" in third place (Punycode is no regular language)'

FORMATS: dict[str, Format] = {
    "date-time": _pattern(patterns.DATE_TIME, "RFC 3339, date-time", f"{_YEAR_0}; {_WHOLE_HOURS}"),
    "date": _pattern(patterns.DATE, "RFC 3339, full-date", _YEAR_0),
    "time": _pattern(patterns.TIME, "RFC 3339, full-time", "leap seconds but with offsets of whole and half hours"),
    "duration": _pattern(patterns.DURATION, "RFC 3339, appendix A"),
    "email": _counted(
        _email,
        _MOST_OF_ADDRESS,
        "RFC 5321, Mailbox, and section 4.5.3.1",
        f"general address literals, leading zeros in IPv4 literals, needless escapes and < in quotes, {_A_LABELS}",
    ),
    "idn-email": Format(
        "RFC 6531, section 3.3",
        "beyond ASCII: local parts over 15 characters, domains over 3 labels or with other letters than idn-hostname",
        partial(_idn_email, _email),
        partial(_idn_email, partial(_at_most, _email, _MOST_OF_ADDRESS)),
        _MOST_OF_ADDRESS,
    ),
    "hostname": _counted(
        partial(full_language, patterns.HOSTNAME), _MOST_OF_NAME, "RFC 1123, section 2.1; RFC 5890", _A_LABELS
    ),
    "idn-hostname": Format(
        "RFC 5890 to 5893",
        "letters with rules about their context or direction, labels over 10 and names over 4 labels beyond ASCII, "
        + _A_LABELS,
        partial(_idn_hostname, _plain_name),
        partial(_idn_hostname, partial(_at_most, _plain_name, _MOST_OF_NAME)),
        _MOST_OF_NAME,
    ),
    "ipv4": _pattern(patterns.IPV4, "RFC 2673, section 3.2, as read by RFC 3986, IPv4address"),
    "ipv6": _pattern(patterns.IPV6, "RFC 4291, section 2.2"),
    "uri": _pattern(patterns.URI, "RFC 3986, URI"),
    "uri-reference": _pattern(patterns.URI_REFERENCE, "RFC 3986, URI-reference"),
    "iri": _pattern(patterns.IRI, "RFC 3987, IRI"),
    "iri-reference": _pattern(patterns.IRI_REFERENCE, "RFC 3987, IRI-reference"),
    "uri-template": _pattern(patterns.URI_TEMPLATE, "RFC 6570", "operators kept for later use"),
    "uuid": _pattern(patterns.UUID, "RFC 9562, section 4"),
    "json-pointer": _pattern(patterns.JSON_POINTER, "RFC 6901, section 3"),
    "relative-json-pointer": _pattern(
        patterns.RELATIVE_JSON_POINTER, "draft-handrews-relative-json-pointer-01, section 3"
    ),
    "regex": _pattern(
        patterns.REGEX,
        "ECMA-262, section 22.2.1",
        "named groups, look-around, back-references, property escapes, code points, {m,n}, groups nested over 2 deep",
    ),
}
"""Every format that is enforced."""


@lru_cache(maxsize=64)
def format_language(name: str) -> Expr:
    """The values of a format, as an expression."""
    return FORMATS[name].language()


@lru_cache(maxsize=64)
def format_machine(name: str) -> FiniteAutomaton:
    """The values of a format as an automaton; its `max_length` comes on top, since there may be closer bounds."""
    return machine_of(FORMATS[name].uncounted())
