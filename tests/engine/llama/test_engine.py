"""A Llama-type model in the engine: the same step as every other model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engine import ContextLengthError, Engine, EngineConfig, Request, Sampling
from schemas_cache import schema_source
from tests.engine.llama.slow import Sizes, slow_logits
from tests.engine.llama.tiny import PIECES, make_weights, write_gguf

SIZES = Sizes(layers=1)
SCHEMA = {
    "type": "object",
    "properties": {"level": {"enum": ["easy", "hard"]}, "title": {"type": "string", "maxLength": 8}},
    "required": ["level", "title"],
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running engine with a tiny random model, whose KV cache holds 1,024 tokens."""
    home = tmp_path_factory.mktemp("home")
    path = write_gguf(home / "tiny.gguf", SIZES, make_weights(SIZES))
    token_bytes = 2 * SIZES.kv_heads * SIZES.head_size * 4
    engine = Engine(EngineConfig(model=str(path), home=home, kv_cache_bytes=1024 * token_bytes, max_running=4))
    engine.start()
    yield engine
    engine.stop()


def test_records_satisfy_their_schema(engine: Engine) -> None:
    """A model that knows nothing writes valid documents all the same; more rows than slots."""
    tokenizer = engine.models["tiny"].tokenizer
    request = Request(
        (tuple(tokenizer.encode("Write")),), 100, n=6, sampling=Sampling(seed=1), source=schema_source(SCHEMA)
    )
    for choice in engine.generate_blocking("tiny", request).choices:
        document = json.loads(choice.text)
        assert list(document) == ["level", "title"]
        assert document["level"] in ("easy", "hard")
        assert len(document["title"]) <= 8


def test_greedy_free_text_is_the_referees(engine: Engine) -> None:
    """Step by step, each token the best of those that stand for bytes or end the text."""
    prompt = [5, 80, 200]
    request = Request((tuple(prompt),), 12, sampling=Sampling(temperature=0))
    (choice,) = engine.generate_blocking("tiny", request).choices
    written: list[int] = []
    while len(written) < 12:
        logits = slow_logits(SIZES, make_weights(SIZES), [*prompt, *written])[-1]
        drawable = [token_id for token_id in range(len(PIECES)) if token_id != 1]
        best = max(drawable, key=lambda token_id: logits[token_id])
        if best == 0:
            break
        written.append(best)
    assert tuple(written) == choice.token_ids


def test_a_prompt_that_cannot_fit_is_refused_with_the_figure(engine: Engine) -> None:
    """Before anything is computed."""
    with pytest.raises(ContextLengthError, match="the prompt has 600 tokens; the model's context has 512"):
        engine.generate_blocking("tiny", Request(((5,) * 600,), 1))
