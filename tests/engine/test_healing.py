"""Prompts that end inside a token: what is given back, and what comes instead, against trying every token."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.healing import Healer
from engine.request import Request, Sampling
from engine.sequence import Healing, Sequence, choice_of
from schemas_cache import CompiledSchema, Vocabulary, compile_source, regex_source, schema_source
from tests.toy import END, TOY, GreedyTokenizer, ToyModel, decode, decoder_for, random_logits, rows_for
from tests.toy import given as logits_of

PATTERNS = ["[a-c]*", "b?c*", '": ?(true|12)', 'c|", "a*', "(abc|b)c"]
BYTES = TOY.token_bytes
IDS = {data: number for number, data in reversed(list(enumerate(BYTES))) if data}


def ids(*pieces: bytes) -> tuple[int, ...]:
    """Tokens that spell these."""
    return tuple(IDS[piece] for piece in pieces)


def slow_healing(tokens: tuple[int, ...], compiled: CompiledSchema | None) -> tuple[tuple[int, ...], set[int]] | None:
    """The longest end that a longer token can stand for, and all that may: by trying every token."""
    best = None
    for count in range(1, len(tokens) + 1):
        end = tokens[-count:]
        if not all(BYTES[token_id] for token_id in end):
            break
        data = b"".join(BYTES[token_id] for token_id in end)
        longer = {
            number
            for number, token in enumerate(BYTES)
            if token.startswith(data)
            and len(token) > len(data)
            and (compiled is None or compiled.matcher().allows_bytes(token[len(data) :]))
        }
        if longer:
            best = end, longer | {end[0]}
    return best


def unpack(healing: Healing) -> set[int]:
    """Tokens of its mask."""
    return set(np.flatnonzero(np.unpackbits(healing.allowed.view(np.uint8), bitorder="little")).tolist())


@pytest.mark.parametrize("pattern", [None, *PATTERNS])
def test_what_is_given_back_is_what_trying_every_token_finds(pattern: str | None) -> None:
    """All ends of up to two tokens, and some of three; free text and several schemas."""
    compiled = None if pattern is None else compile_source(regex_source(pattern), TOY)
    healer, some = Healer(TOY), (*ids(b"a", b"ab", b'"', b"1", b"\xc3", b", "), END)
    ends = [*product(range(len(BYTES)), repeat=1), *product(range(len(BYTES)), repeat=2), *product(some, repeat=3)]
    healed = 0
    for end in ends:
        found = healer.of_end(end, None if compiled is None else compiled.matcher())
        expected = slow_healing(end, compiled)
        assert expected == (None if found is None else (found.tokens, unpack(found)))
        healed += found is not None
    assert 0 < healed < len(ends)


def request(source: object, prompt: tuple[int, ...], **fields: object) -> Request:
    """A request whose prompt was text."""
    return Request(**{"prompts": (prompt,), "max_tokens": 20, "source": source, "heal_prompt": True, **fields})  # type: ignore[arg-type]


def spelled(model: ToyModel, row: Sequence) -> bytes:
    """All that the model was fed for the only row, and its last token."""
    fed = [token_id for one in model.fed for token_id in one[0]]
    return b"".join(BYTES[token_id] for token_id in [*fed, *row.pending])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from([number for number, data in enumerate(BYTES) if data]), min_size=1, max_size=5),
    st.sampled_from([None, *PATTERNS, "schema"]),
    st.booleans(),
    st.integers(0, 1000),
    st.integers(1, 20),
)
def test_prompt_and_text_are_what_the_model_saw(
    prompt: list[int], pattern: str | None, jump: bool, seed: int, limit: int
) -> None:
    """Whatever is drawn: the tokens spell the prompt and then the text, which its schema allows."""
    schema = schema_source({"type": "object", "properties": {"a": {"enum": [1, 12]}}, "required": ["a"]})
    source = None if pattern is None else schema if pattern == "schema" else regex_source(pattern)
    model = ToyModel(len(TOY), random_logits(len(TOY), seed))
    asked = request(source, tuple(prompt), jump_forward=jump, max_tokens=limit)
    (row,) = decode(decoder_for(TOY, model, 1), rows_for(asked, TOY, seed))
    assert row.error is None
    assert b"".join(BYTES[token_id] for token_id in prompt) + bytes(row.data) == spelled(model, row)
    assert len(row.token_ids) <= limit
    if source is not None:
        compiled = compile_source(source, TOY)
        assert compiled.matcher().allows_bytes(bytes(row.data)) or not row.data
        assert row.complete or not compiled.matcher().fits(limit)


def test_the_model_chooses_a_longer_token() -> None:
    """`a` was the prompt's last token; the model wants `abc`, and the text is what that has beyond."""
    model = ToyModel(len(TOY), logits_of(len(TOY), {IDS[b"abc"]: 50.0}))
    asked = request(None, ids(b" ", b"a"), sampling=Sampling(temperature=0.0), max_tokens=1)
    (row,) = decode(decoder_for(TOY, model), rows_for(asked, TOY))
    assert [[ids(b" ")]] == model.fed
    assert ("bc", list(ids(b"abc"))) == (choice_of(row).text, row.token_ids)


def test_the_model_keeps_the_token_of_the_prompt() -> None:
    """It wants `a`; that is fed then as it was, costs nothing of the limit, and the text begins after it."""
    model = ToyModel(len(TOY), logits_of(len(TOY), {IDS[b"a"]: 50.0}))
    asked = request(None, ids(b" ", b"a"), sampling=Sampling(temperature=0.0), max_tokens=1)
    (row,) = decode(decoder_for(TOY, model), rows_for(asked, TOY))
    assert [[ids(b" ")], [ids(b"a")]] == model.fed
    assert ("a", list(ids(b"a"))) == (choice_of(row).text, row.token_ids)


def test_a_schema_forbids_longer_tokens_that_do_not_fit_it() -> None:
    """After `a` only `c` may follow: neither `ab` nor `abc` may stand for the prompt's end; nothing is given back."""
    model = ToyModel(len(TOY), logits_of(len(TOY), {IDS[b"abc"]: 50.0}))
    decode(decoder_for(TOY, model), rows_for(request(regex_source("c+|cc"), ids(b" ", b"a"), jump_forward=False), TOY))
    assert [ids(b" ", b"a")] == model.fed[0]


def test_forced_text_is_tokenised_together_with_the_end_of_the_prompt() -> None:
    """`{` and then `"a": 1`: one chunk whose first token is `{"`, without a step of its own."""
    source = regex_source('"a": (1|2)')
    model = ToyModel(len(TOY), logits_of(len(TOY)))
    (row,) = decode(decoder_for(TOY, model), rows_for(request(source, ids(b" ", b"{"), max_tokens=20), TOY))
    fed = model.fed[0][0]
    whole = tuple(GreedyTokenizer(TOY).encode('{"a": '))
    assert ids(b" ") + whole[:-1] == fed[: len(whole)]
    assert choice_of(row).text in ('"a": 1', '"a": 2')


@pytest.mark.parametrize("fields", [{"heal_prompt": False}, {"logprobs": 0}, {"diagnostics": True}])
def test_who_is_not_healed(fields: dict[str, object]) -> None:
    """Prompts of token ids, and those whose tokens are reported on."""
    model = ToyModel(len(TOY), logits_of(len(TOY), {IDS[b"abc"]: 50.0}))
    decode(decoder_for(TOY, model), rows_for(request(None, ids(b" ", b"a"), max_tokens=2, **fields), TOY))
    assert ids(b" ", b"a") == model.fed[0][0]


def test_the_first_token_of_a_prompt_stays() -> None:
    """There is nothing before it to choose another one by."""
    model = ToyModel(len(TOY), logits_of(len(TOY), {IDS[b"abc"]: 50.0}))
    decode(decoder_for(TOY, model), rows_for(request(None, ids(b"a"), max_tokens=2), TOY))
    assert ids(b"a") == model.fed[0][0]


def test_a_vocabulary_of_single_characters_needs_no_healing() -> None:
    """No token goes on after another one."""
    vocabulary = Vocabulary([b"", b"a", b"b"], [0])
    assert Healer(vocabulary).of_end((1, 2), None) is None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_healing_is_the_same_where_states_are_worked_out_beside(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that has to wait for a state begins and goes on as if it had been known."""

    def answer() -> tuple[list[int], bytes]:
        model = ToyModel(len(TOY), random_logits(len(TOY), 3))
        prompts = [ids(b" ", *end) for end in ((b"a",), (b"ab",), (b'"',), (b"b", b'"'), (b"1",), (b"a", b"b"))]
        asked = [
            request(regex_source(pattern), prompt, jump_forward=jump) for prompt in prompts for jump in (True, False)
        ]
        rows = [row for one in asked for row in rows_for(one, TOY)]
        decode(decoder_for(TOY, model, 4), rows)
        return [token_id for row in rows for token_id in row.token_ids], b"|".join(bytes(row.data) for row in rows)

    expected = answer()
    monkeypatch.setattr("engine.expander.INLINE_WORK", 0)
    assert expected == answer()
