"""Text to ids and back: exact bytes, nothing special in a user's text."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from engine.tokenizer import Tokenizer
from engine.training.vocabularies import END_ID, UNKNOWN_ID, bpe_tokenizer, character_tokenizer

LINES = ['{"id": 1, "title": "型紙"}', '{"id": 2, "title": "型"}']


@pytest.fixture(scope="module")
def characters() -> Tokenizer:
    """One token per character of two lines."""
    return Tokenizer.from_json(character_tokenizer(LINES).to_str(), [END_ID])


@pytest.fixture(scope="module")
def merges() -> Tokenizer:
    """The same with twenty merges."""
    return Tokenizer.from_json(bpe_tokenizer(LINES, LINES, 20).to_str(), [END_ID])


def make_byte_level() -> Tokenizer:
    """A GPT-2-like tokenizer: merges over bytes, a special end token, one added token that is not special."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens([AddedToken("Ġwide", special=False)])
    return Tokenizer.from_json(tokenizer.to_str(), [0])


BYTE_LEVEL = make_byte_level()


@given(st.text())
def test_byte_level_round_trip(text: str) -> None:
    """Any text is spelled exactly, whatever its bytes."""
    assert text.encode() == BYTE_LEVEL.decode_bytes(BYTE_LEVEL.encode(text))
    assert BYTE_LEVEL.encode(text) == BYTE_LEVEL.encode_bytes(text.encode())


def test_byte_level_tokens_stand_for_single_bytes() -> None:
    """All 256 of them: the alphabet is translated, not taken as it looks."""
    assert frozenset(range(256)) == BYTE_LEVEL.vocabulary.single_bytes


def test_added_token_that_is_not_special_stands_for_its_own_text() -> None:
    """Its letters are no byte alphabet."""
    assert "Ġwide".encode() == BYTE_LEVEL.vocabulary.token_bytes[-1]


def test_text_that_spells_a_special_token_is_text() -> None:
    """A user cannot write the end token."""
    ids = BYTE_LEVEL.encode("a<|end|>")
    assert 0 not in ids
    assert BYTE_LEVEL.decode(ids) == "a<|end|>"


def test_special_tokens_where_they_are_meant() -> None:
    """The text of a template has them, wherever they stand and however often; what is around them is as ever."""
    a, b = BYTE_LEVEL.encode("a"), BYTE_LEVEL.encode(" b")
    assert [0, *a, 0, 0, *b] == BYTE_LEVEL.encode("<|end|>a<|end|><|end|> b", special=True)
    assert a == BYTE_LEVEL.encode("a", special=True)
    assert [] == BYTE_LEVEL.encode("", special=True)


def test_names_of_tokens(characters: Tokenizer) -> None:
    """Those without bytes have a name; special ones are listed."""
    assert ("<|end|>", ("<|end|>",)) == (BYTE_LEVEL.token_name(0), BYTE_LEVEL.special_tokens)
    assert () == characters.special_tokens


def test_text_that_spells_the_unknown_token_is_characters(characters: Tokenizer) -> None:
    """Five characters, each unknown or known by itself."""
    assert len(characters.encode("<unk>")) == 5


def test_one_token_per_character(characters: Tokenizer) -> None:
    """And its id is found again in the vocabulary."""
    ids = characters.encode(LINES[0])
    assert len(ids) == len(LINES[0])
    assert [character.encode() for character in LINES[0]] == [characters.vocabulary.token_bytes[i] for i in ids]


def test_line_break_in_a_prompt_is_the_end_token(characters: Tokenizer, merges: Tokenizer) -> None:
    """The models take it as the beginning of a new line; as output it would end the text."""
    assert END_ID in characters.encode("型\n型")
    assert END_ID in merges.encode("型\n型")
    assert (END_ID,) == characters.end_ids == merges.end_ids


def test_unknown_characters_become_the_unknown_token(characters: Tokenizer, merges: Tokenizer) -> None:
    """One each, and they stand for no bytes."""
    assert characters.encode("é😀") == [UNKNOWN_ID] * 2
    assert merges.encode("é😀") == [UNKNOWN_ID] * 2
    assert characters.vocabulary.token_bytes[UNKNOWN_ID] == b""


def test_merged_tokens_spell_the_same_text(merges: Tokenizer) -> None:
    """Fewer tokens, same bytes."""
    ids = merges.encode(LINES[0])
    assert len(ids) < len(LINES[0])
    assert LINES[0].encode() == merges.decode_bytes(ids)


def test_vocabulary_of_merges_is_made_of_characters(merges: Tokenizer) -> None:
    """So a mask knows which characters cannot be written."""
    assert merges.vocabulary.characters == frozenset("".join(LINES))


@pytest.mark.parametrize("data", [b"\xff", "é".encode(), b"a\n"])
def test_bytes_that_cannot_be_spelled_exactly_are_refused(characters: Tokenizer, data: bytes) -> None:
    """Not UTF-8, an unknown character, a line break (which is the end token): never other bytes instead."""
    with pytest.raises(ValueError, match=r"spell|codec"):
        characters.encode_bytes(data)


def test_half_of_a_surrogate_pair_is_refused(characters: Tokenizer) -> None:
    """As a ValueError, which the caller can answer."""
    with pytest.raises(ValueError, match="surrogate"):
        characters.encode("a\ud800")


def test_half_a_character_decodes_to_the_replacement_character() -> None:
    """As text; as bytes it is exact."""
    ids = BYTE_LEVEL.encode("é")[:1]
    assert BYTE_LEVEL.decode_bytes(ids) == b"\xc3"
    assert BYTE_LEVEL.decode(ids) == "\ufffd"
