"""Short ways from an expression or a pattern to each machine, and a vocabulary that is awkward on purpose."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from schemas_cache.alphabet import build_alphabet
from schemas_cache.automaton import Automaton
from schemas_cache.grammar import Expr, Grammar
from schemas_cache.pattern import full_language
from schemas_cache.spelling import utf8
from schemas_cache.thompson import build_nfa
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import token_index
from schemas_cache.vocabulary import Vocabulary

# All bytes; pieces of JSON, of characters and of nothing at all; merges across grammar borders; texts spelled twice.
AWKWARD_TOKENS = (
    *(bytes([byte]) for byte in range(0x100)),
    *(
        b"\x88\x9d",
        b"\xe5\x88",
        b"\xe7\xb4\x9a",
        b"\xf0\x9f",
        b"\x98\x80",
        b"\xc3",
        b"\xa9",
    ),
    *('": "', '", "', '": [', '"}', '"],', "{}", "[]", '{"', '{"a": ', "true", "false", "null", "12", "00", '1, "b": '),
    *(
        "\\u",
        "\\ud83d\\ude00",
        "\\n",
        '\\"',
        "級",
        "初",
        "é",
        "aé級",
        '級", "',
        "abc",
        "abcabcabcabc",
        "a\nb",
        "a\x1f",
        "",
        "",
    ),
)


def awkward_vocabulary() -> Vocabulary:
    """Tokens that cross every border, with the end token last but one and a special token last."""
    tokens = [token if isinstance(token, bytes) else token.encode() for token in AWKWARD_TOKENS]
    return Vocabulary(tokens, [len(tokens) - 2])


def character_vocabulary(characters: Sequence[str]) -> Vocabulary:
    """One token for each character, after an end token that is a line feed."""
    return Vocabulary([b"\n", *(character.encode() for character in dict.fromkeys(characters))], [0])


def automaton_of(expr: Expr, rules: dict[str, Expr] | None = None) -> Automaton:
    """Build the lazy automaton of an expression."""
    nfa = build_nfa(Grammar("start", {"start": expr, **(rules or {})}))
    return Automaton(nfa, build_alphabet(nfa))


def pattern_automaton(pattern: str) -> Automaton:
    """Build the lazy automaton of a regular expression that matches whole texts."""
    return automaton_of(utf8(full_language(pattern), None))


def tokens_of(automaton: Automaton, vocabulary: Vocabulary) -> TokenAutomaton:
    """Lift an automaton to a vocabulary, without the dense table."""
    return TokenAutomaton(automaton, token_index(vocabulary))


def texts(alphabet: str, longest: int) -> Iterator[str]:
    """Every text over an alphabet, the empty one first."""
    for length in range(longest + 1):
        yield from map("".join, itertools.product(alphabet, repeat=length))
