"""Lines in, a tokenizer out: single characters, or 200 merges over them.

In: the lines of the corpus. Out: a `tokenizers.Tokenizer` that splits a line into characters (a BPE without merges) or
into merges of characters. Cost: seconds for the merges. Ids: 0 is the line end, which is also the end token; 1 stands
for any character not in the corpus; then the characters by code point; then the merges in the order of training.

Merges are learnt over whole lines without splitting them into words first, so that tokens cross the borders of the
grammar (`", "level": "` and the like), as those of large models do. Source: Sennrich, Haddow and Birch 2016, as in the
tokenizers library. No token is registered as special: text that spells `<unk>` is five characters, not the token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tokenizers import Tokenizer, models, trainers

END, UNKNOWN = "\n", "<unk>"
END_ID, UNKNOWN_ID = 0, 1


def character_tokenizer(lines: Sequence[str]) -> Tokenizer:
    """One token per character of the lines, plus the end token and the unknown one."""
    return _tokenizer(sorted(set().union(*lines)), [])


def bpe_tokenizer(lines: Sequence[str], training_lines: Sequence[str], merges: int) -> Tokenizer:
    """The characters of `lines` and this many merges learnt on `training_lines`."""
    characters = sorted(set().union(*lines))
    learner = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=len(characters) + merges, initial_alphabet=characters, special_tokens=[], show_progress=False
    )
    learner.train_from_iterator(training_lines, trainer)
    learnt = json.loads(learner.to_str())["model"]["merges"]
    return _tokenizer(characters, [(left, right) for left, right in learnt])


def _tokenizer(characters: Sequence[str], merges: Sequence[tuple[str, str]]) -> Tokenizer:
    pieces = [END, UNKNOWN, *characters, *(left + right for left, right in merges)]
    vocabulary = {piece: token_id for token_id, piece in enumerate(dict.fromkeys(pieces))}  # two merges may spell one
    return Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges), unk_token=UNKNOWN))
