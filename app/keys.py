"""API keys: who may use the server.

In: keys as the settings, the environment and a file give them, each written `name:key` or `key`. Out: `Keys`, which
tells the name that belongs to what a client presents. Cost: one hash and one comparison for each key, whether the first
fits or none: how long it takes says nothing of how near a guess came. Only names go to the log.

Rejected: keeping the keys themselves, since digests of one length compare in constant time and a dump shows nothing;
a dictionary of digests, whose look-up takes a different path for each.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
KEY = re.compile(r"[!-~]+")  # what a header can carry, without blanks
BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(.*)")


class KeyFormError(ValueError):
    """A key that no client could present, or a name twice; the message never shows a key."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Names and SHA-256 digests of keys, in parallel; empty where everybody may come in."""

    names: tuple[str, ...] = ()
    digests: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names)

    def name_of(self, presented: Iterable[str]) -> str | None:
        """The name of the first key that is among these; all are compared, always."""
        digests = [_digest(key) for key in presented]
        found = None
        for name, known in zip(self.names, self.digests, strict=True):
            for digest in digests:
                if hmac.compare_digest(known, digest) and found is None:
                    found = name
        return found


def read_keys(entries: Iterable[str], file: Path | None = None) -> Keys:
    """Keys of the settings and of a file, whose lines may be comments (`#`) or empty.

    Raises
    ------
    KeyFormError
        For a key that cannot be, a name that occurs twice, or a file without any key.
    OSError
        Where the file cannot be read.
    """
    pairs = [_named(entry, f"API key {number}", f"key{number}") for number, entry in enumerate(entries, 1)]
    if file is not None:
        pairs += _of_file(file)
    names = tuple(name for name, _ in pairs)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise KeyFormError(f"two API keys are named {twice!r}; give each a name of its own")
    return Keys(names, tuple(_digest(key) for _, key in pairs))


def presented_keys(headers: Headers) -> list[str]:
    """What a client shows: `Authorization: Bearer` and `x-api-key`, either or both."""
    bearers = (BEARER.fullmatch(value) for value in headers.getlist("authorization"))
    return [match[1].strip() for match in bearers if match] + headers.getlist("x-api-key")


def _of_file(file: Path) -> list[tuple[str, str]]:
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    entries = [(number, line.strip()) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not entries:
        raise KeyFormError(f"{file} holds no API key; write one a line, or leave the file out")
    return [_named(entry, f"{file}, line {number}", f"line{number}") for number, entry in entries]


def _named(entry: str, place: str, default_name: str) -> tuple[str, str]:
    """`name:key` or `key`; of a key that holds a colon the name has to be given."""
    name, colon, key = entry.partition(":")
    name, key = (name, key) if colon else (default_name, name)
    if not NAME.fullmatch(name):
        raise KeyFormError(f"{place}: a name is 1 to 64 letters, digits, _, . or -, before a colon")
    if not KEY.fullmatch(key):
        raise KeyFormError(f"{place}: a key is one or more visible ASCII characters, without blanks")
    return name, key


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
