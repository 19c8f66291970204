"""What is experimented on: the two shipped models behind one engine, and how records are drawn from it.

In: the number of records and a seed. Out: `Subject`, whose `draw` gives texts with what they cost. All draws go through
`Engine`, as a server's do, 500 rows at a time as in the article; the same random numbers in each run, so that methods
differ in nothing but the method. Times are those of the processor: on an idle machine the clock says the same, since
one thread decodes, and on a busy one they hold. Cost: that of decoding; what is asked for twice is drawn once.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from engine import Choice, Engine, EngineConfig, OnLimit, Request, Sampling
from engine.training.corpus import RECORD_SCHEMA, Corpus, build_corpus
from schemas_cache import Source, schema_source

CHAR, BPE = MODELS = ("katagami-char", "katagami-bpe")
HOT, COOL = TEMPERATURES = (1.0, 0.7)
ROWS = 500  # of a batch
MOST_TOKENS = 160  # of a record: where the article cuts
DRAWS_PER_RECORD = 5  # 5,000 free draws for 1,000 records
RUNS, TIMED_FROM = 3, 200  # what is timed runs three times, unless records are so few that times say nothing
CORPUS_SEED = 1  # of the corpus that the shipped models were trained on
RECORD = schema_source(RECORD_SCHEMA)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Records, and the processor time that all of them took together."""

    choices: tuple[Choice, ...]
    elapsed_s: float

    @property
    def texts(self) -> tuple[str, ...]:
        """The records' texts."""
        return tuple(choice.text for choice in self.choices)

    @property
    def ms_per_record(self) -> float:
        """Milliseconds."""
        return 1000 * self.elapsed_s / len(self.choices)

    @property
    def calls_per_record(self) -> float:
        """Forward passes in which a record had a row, those of failed attempts included."""
        return sum((choice.attempts or choice).model_calls for choice in self.choices) / len(self.choices)

    @property
    def tokens_per_record(self) -> float:
        """Tokens of a record, forced ones included."""
        return sum(len(choice.token_ids) for choice in self.choices) / len(self.choices)


class Subject:
    """The engine of the experiments; `close` it.

    Parameters
    ----------
    records : int
        How many each method draws; five times as many are drawn freely for rejection.
    seed : int
        Of all draws.
    """

    def __init__(self, records: int, seed: int) -> None:
        self.records, self.seed = records, seed
        self.runs = RUNS if records >= TIMED_FROM else 1
        self.corpus: Corpus = build_corpus(CORPUS_SEED)
        self.engine = Engine(EngineConfig(model=CHAR, models=(BPE,), max_running=min(ROWS, records)))
        self.engine.start()
        self._pools: dict[str, Drawn] = {}

    def close(self) -> None:
        """End the engine's threads."""
        self.engine.stop()

    def request(self, source: Source | None, temperature: float = HOT, **fields: Any) -> Request:
        """A request for `records` texts, cut at 160 tokens; other fields of `Request` as they are given."""
        on_limit: OnLimit = "truncate"
        sampling = Sampling(temperature=temperature, seed=self.seed)
        asked = {"n": self.records, "max_tokens": MOST_TOKENS, "on_limit": on_limit, "jump_forward": False}
        return Request(prompts=((),), sampling=sampling, source=source, **(asked | fields))

    def draw(self, model: str, request: Request, *, is_timed: bool = False) -> Drawn:
        """Draw; a time that matters is that of the quickest of several runs, which all give the same texts."""
        if request.source is not None:  # compiling is measured elsewhere
            self.engine.generate_blocking(model, Request(((),), max_tokens=0, source=request.source))
        taken = []
        for _ in range(self.runs if is_timed else 1):
            started_s = time.process_time()
            result = self.engine.generate_blocking(model, request)
            taken.append(time.process_time() - started_s)
        return Drawn(result.choices, min(taken))

    def free_draws(self, model: str) -> Drawn:
        """The pool of unconstrained texts at T = 1.0 that rejection takes from."""
        known = self._pools.get(model)
        if known is None:
            request = self.request(None, n=DRAWS_PER_RECORD * self.records)
            known = self._pools[model] = self.draw(model, request)
        return known


def parsed(text: str) -> Any:
    """The value of a JSON text, or None: no text here is `null`."""
    try:
        return json.loads(text)
    except ValueError:
        return None


class Judge:
    """An independent validator of records."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._validator = jsonschema_rs.validator_for(schema)

    def valid(self, text: str) -> bool:
        """Whether the text is JSON that satisfies the schema."""
        value = parsed(text)
        return value is not None and self._validator.is_valid(value)

    def errors(self, value: object) -> list[jsonschema_rs.ValidationError]:
        """What is wrong with a value."""
        return list(self._validator.iter_errors(value))


def short(model: str) -> str:
    """A model's name for narrow tables."""
    return model.removeprefix("katagami-")


def share(verdicts: list[bool]) -> float:
    """Part of them that is true, 0 to 1."""
    return sum(verdicts) / len(verdicts) if verdicts else 0.0


def titled(maximum: int) -> dict[str, Any]:
    """The schema of records with another `maxLength` of the title."""
    properties = RECORD_SCHEMA["properties"] | {"title": {"type": "string", "minLength": 1, "maxLength": maximum}}  # type: ignore[operator]
    return RECORD_SCHEMA | {"properties": properties}
