r"""The patterns behind the formats, put together from the productions of their standards.

In: nothing. Out: ECMA-262 patterns without anchors, as text; `formats` says which format is which. Cost: none until one
is used. Each group of productions cites the standard it is read from; names follow its grammar.

Written so that `[0-9]` and its like are ASCII in every dialect and no alternative depends on another's order: the tests
read the same text with Python's `re` as a referee.
"""

from __future__ import annotations

from itertools import pairwise


def _any_of(*choices: str) -> str:
    return f"(?:{'|'.join(choices)})"


# RFC 3339, section 5.6 and appendix A. A leap second is the last one of June or December in UTC (section 5.7); local
# times of it are written for offsets of whole hours, and half hours where there is no date. The year 0000 is left out:
# what calendar it has is not said, and many readers refuse it.
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_MONTH_AND_DAY = _any_of(
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "02-(?:0[1-9]|1[0-9]|2[0-8])",
)
_FRACTION = r"(?:\.[0-9]+)?"
_PLAIN_TIME = f"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_FRACTION}(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_LEAP_SECOND_SAME_DAY = _any_of(
    f"23:59:60{_FRACTION}(?:[Zz]|\\+00:00)", *(f"{23 - hour:02}:59:60{_FRACTION}-{hour:02}:00" for hour in range(24))
)
_LEAP_SECOND_NEXT_DAY = _any_of(
    *(f"{before:02}:59:60{_FRACTION}\\+{hour:02}:00" for before, hour in pairwise(range(24)))
)
_LEAP_SECOND_AT_HALF = _any_of(
    *(f"{hour:02}:29:60{_FRACTION}(?:\\+{hour:02}|-{23 - hour:02}):30" for hour in range(24))
)
DATE = _any_of(f"{_YEAR}-{_MONTH_AND_DAY}", f"{_LEAP_YEAR}-02-29")
TIME = _any_of(_PLAIN_TIME, _LEAP_SECOND_SAME_DAY, _LEAP_SECOND_NEXT_DAY, _LEAP_SECOND_AT_HALF)
DATE_TIME = _any_of(
    f"{DATE}[Tt]{_PLAIN_TIME}",
    f"{_YEAR}-(?:06-30|12-31)[Tt]{_LEAP_SECOND_SAME_DAY}",
    f"{_YEAR}-(?:07-01|01-01)[Tt]{_LEAP_SECOND_NEXT_DAY}",
)
_MINUTES = "[0-9]+M(?:[0-9]+S)?"
_TIME_PART = f"T(?:[0-9]+H(?:{_MINUTES})?|{_MINUTES}|[0-9]+S)"
_MONTHS = "[0-9]+M(?:[0-9]+D)?"
DURATION = f"P(?:(?:[0-9]+Y(?:{_MONTHS})?|{_MONTHS}|[0-9]+D)(?:{_TIME_PART})?|{_TIME_PART}|[0-9]+W)"

# RFC 4291, section 2.2, and RFC 3986, section 3.2.2 (dec-octet, IPv6address); no zone.
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4 = f"{_OCTET}(?:\\.{_OCTET}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"


def _compressed(left: int, right: int) -> str:
    """`left` groups, `::`, and up to `right` groups, the last two of which may be an IPv4 address."""
    before = f"{_GROUP}(?::{_GROUP}){{{left - 1}}}" if left else ""
    after = [f"(?:{_GROUP}:){{0,{right - 1}}}{_GROUP}"] if right else []
    after += [f"(?:{_GROUP}:){{0,{right - 2}}}{IPV4}"] if right > 1 else []
    return f"{before}::" + (f"{_any_of(*after)}?" if after else "")


def _ipv6(most: int) -> str:
    """All forms; beside `::` there are at most so many groups."""
    full = f"(?:{_GROUP}:){{6}}(?:{_GROUP}:{_GROUP}|{IPV4})"
    return _any_of(full, *(_compressed(left, most - left) for left in range(most + 1)))


IPV6 = _ipv6(7)


# RFC 1123, section 2.1, with the labels of RFC 5890, section 2.3.1: none but A-labels has hyphens third and fourth.
def _label(most: int) -> str:
    long = f"[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{{0,{most - 5}}}[A-Za-z0-9]"
    return f"[A-Za-z0-9](?:[A-Za-z0-9]|[A-Za-z0-9-]{{1,2}}[A-Za-z0-9]|{long})?"


LABEL = _label(63)
HOSTNAME = f"{LABEL}(?:\\.{LABEL})*"

# RFC 5890 to 5893: letters that every context allows, all from left to right and in their composed form. Ten of them
# take 56 octets at most as an A-label, so that four labels, where ASCII ones end at 62, take 251.
_LETTERS = (
    "\u00df-\u00f6\u00f8-\u00ff\u03ac-\u03ce\u0430-\u045f"
    "\u3005\u3007\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4db5\u4e00-\u9fa5\uac00-\ud7a3"
)
_INNER, _EDGE = f"[a-z0-9{_LETTERS}-]", f"[a-z0-9{_LETTERS}]"
_LONG_U_LABEL = f"{_INNER}(?:{_EDGE}{_INNER}|-{_EDGE}){_INNER}{{0,5}}{_EDGE}"
U_LABEL = _any_of(_label(62), f"{_EDGE}(?:{_EDGE}|{_INNER}{{1,2}}{_EDGE}|{_LONG_U_LABEL})?")
_DOT = "[.\u3002\uff0e\uff61]"
HOSTNAME_WITH_ANY_DOT = f"{LABEL}(?:{_DOT}{LABEL})*"
SHORT_IDN_HOSTNAME = f"{U_LABEL}(?:{_DOT}{U_LABEL}){{0,3}}"

# RFC 5321, section 4.1.2 and 4.1.3: Mailbox, without address literals of other kinds. In quotes there is no "<", which
# readers take for the start of the address, and nothing is escaped that need not be. RFC 6531, section 3.3, adds
# characters beyond ASCII.
_ATEXT = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"


def _local_part(more: str) -> str:
    atom = f"[{more}{_ATEXT}]+"
    return _any_of(f"{atom}(?:\\.{atom})*", rf'"(?:[ !#-;=-\[\]-~{more}]|\\["\\])*"')


LOCAL_PART, IDN_LOCAL_PART = _local_part(""), _local_part(r"\u{80}-\u{10ffff}")
MAIL_DOMAIN = f"@(?:{HOSTNAME}|\\[(?:{IPV4}|IPv6:{_ipv6(6)})\\])"
IDN_MAIL_DOMAIN = f"@{U_LABEL}(?:\\.{U_LABEL}){{0,2}}"

# RFC 3986, appendix A, and RFC 3987, section 2.2: the same grammar with more characters.
_UCSCHAR = r"\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}" + "".join(
    f"\\u{{{plane:x}{'1000' if plane == 14 else '0000'}}}-\\u{{{plane:x}fffd}}" for plane in range(1, 15)
)
_IPRIVATE = r"\u{e000}-\u{f8ff}\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}"
_ENCODED = "%[0-9A-Fa-f]{2}"
_SUB_DELIMS = "!$&'()*+,;="


def _resource_identifier(more: str, private: str) -> tuple[str, str]:
    """An identifier, and a reference, which may be relative."""
    plain = f"A-Za-z0-9._~{more}{_SUB_DELIMS}-"  # the hyphen stays last
    segment = f"(?:[:@{plain}]|{_ENCODED})"
    name = f"(?:[{plain}]|{_ENCODED})*"
    literal = rf"\[(?:{IPV6}|[vV][0-9A-Fa-f]+\.[:A-Za-z0-9._~{_SUB_DELIMS}-]+)\]"
    authority = f"//(?:(?:[:{plain}]|{_ENCODED})*@)?(?:{literal}|{name})(?::[0-9]*)?(?:/{segment}*)*"
    absolute = f"/(?:{segment}+(?:/{segment}*)*)?"
    rootless, without_colon = (f"{first}+(?:/{segment}*)*" for first in (segment, f"(?:[@{plain}]|{_ENCODED})"))
    rest = f"(?:\\?(?:[/?:@{private}{plain}]|{_ENCODED})*)?(?:#(?:[/?:@{plain}]|{_ENCODED})*)?"
    scheme = "[A-Za-z][A-Za-z0-9+.-]*:"
    reference = _any_of(f"(?:{scheme})?(?:{authority}|{absolute})?", f"{scheme}{rootless}", without_colon)
    return f"{scheme}(?:{authority}|{absolute}|{rootless})?{rest}", f"{reference}{rest}"


URI, URI_REFERENCE = _resource_identifier("", "")
IRI, IRI_REFERENCE = _resource_identifier(_UCSCHAR, _IPRIVATE)

# RFC 6570, section 2, with erratum 6937 (the apostrophe is a literal); operators kept for later use are left out.
_VARIABLE_CHARACTER = f"(?:[A-Za-z0-9_]|{_ENCODED})"
_VARIABLE = f"{_VARIABLE_CHARACTER}(?:\\.?{_VARIABLE_CHARACTER})*(?::[1-9][0-9]{{0,3}}|\\*)?"
_TEMPLATE_LITERAL = rf"[!#$&-;=?-\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]"
URI_TEMPLATE = f"(?:{_TEMPLATE_LITERAL}|{_ENCODED}|\\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\\}})*"

# RFC 9562, section 4; RFC 6901, section 3; draft-handrews-relative-json-pointer-01, section 3.
UUID = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
JSON_POINTER = "(?:/(?:[^~/]|~[01])*)*"
RELATIVE_JSON_POINTER = f"(?:0|[1-9][0-9]*)(?:#|{JSON_POINTER})"

# ECMA-262, section 22.2.1, as far as it is regular: groups to a fixed depth, no names, no look-around, and only what
# means the same with and without the `u` flag.
_ORDERED = "|".join(
    f"{low}-[{low}-{end}]" for start, end in ("09", "AZ", "az") for low in map(chr, range(ord(start), ord(end) + 1))
)
_IN_CLASS = rf"(?:[^\\\]\[\^&~|-]|\\[\\\^$.*+?()[\]{{}}|/dDwWsStnrfv-]|{_ORDERED})"
_SIMPLE_ATOM = rf"[^\\\^$.*+?()[\]{{}}|]|\.|\\[\\\^$.*+?()[\]{{}}|/dDwWsStnrfv]|\[\^?{_IN_CLASS}+\]"


def _regex(depth: int) -> str:
    atom = f"{_SIMPLE_ATOM}|\\((?:\\?:)?{_regex(depth - 1)}\\)" if depth else _SIMPLE_ATOM
    return rf"(?:[\^$|]|\\[bB]|(?:{atom})(?:(?:[*+?]|\{{[0-9]{{1,2}},?\}})\??)?)*"


REGEX = _regex(2)
