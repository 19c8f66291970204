"""The two vocabularies: characters, and merges over them."""

import json
from itertools import pairwise

from engine.training.vocabularies import END_ID, UNKNOWN_ID, bpe_tokenizer, character_tokenizer

LINES = ["abab ab", "あb ab"]


def test_characters_come_in_code_point_order_after_end_and_unknown() -> None:
    """Ids are fixed by the set of characters."""
    vocabulary = character_tokenizer(LINES).get_vocab()
    assert sorted(vocabulary, key=vocabulary.__getitem__) == ["\n", "<unk>", " ", "a", "b", "あ"]
    assert (vocabulary["\n"], vocabulary["<unk>"]) == (END_ID, UNKNOWN_ID)


def test_merges_keep_the_ids_of_the_characters() -> None:
    """A merged vocabulary begins with the character vocabulary."""
    characters = character_tokenizer(LINES).get_vocab()
    merged = bpe_tokenizer(LINES, LINES, 2).get_vocab()
    assert characters.items() < merged.items()
    assert {"ab", " ab"} == merged.keys() - characters.keys()


def test_merges_are_learnt_on_training_lines_only() -> None:
    """A pair that only held-out lines have is not merged."""
    assert "あb" not in bpe_tokenizer(LINES, LINES[:1], 3).get_vocab()


def test_merges_cross_the_borders_of_the_grammar() -> None:
    """Nothing splits a line before it is merged."""
    lines = [f'{{"id": {number}, "x": [{number}]}}' for number in range(50)]
    tokens = bpe_tokenizer(lines, lines, 12).encode(lines[0]).tokens
    assert any('"' in token and ":" in token for token in tokens)
    assert "".join(tokens) == lines[0]


def test_encoding_applies_merges_in_the_order_of_training() -> None:
    """Slow referee: repeat the earliest merge that fits, leftmost first."""
    lines = ["abcabcab", "bcbcab", "cabca"]
    tokenizer = bpe_tokenizer(lines, lines, 4)
    merges = [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]
    for line in lines:
        pieces = list(line)
        while fitting := [pair for pair in merges if pair in list(pairwise(pieces))]:
            at = list(pairwise(pieces)).index(fitting[0])
            pieces[at : at + 2] = ["".join(fitting[0])]
        assert pieces == tokenizer.encode(line).tokens
