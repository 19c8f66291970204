"""Steps of a Llama-type model by their parts, and what each part of the fast path brings.

    python tests/benchmarks/bench_step_llama.py [--model NAME or PATH] [--rows 1 8 32] [--records 2] [--off NAME ...]

Decodes records of one schema, after prompts of some 105 tokens that differ in their last words, with all slots taken as
long as there are records. Prints, for each number of rows and each switch off in turn: milliseconds of a record, tokens
a second, milliseconds of a step by its parts, and the share of the mask in it. All times are processor time of the one
thread that works, since a shared machine's wall-clock time says little. `make bench` sets one BLAS thread, as the
server does; alone, set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from concurrent.futures import Future
from time import process_time
from typing import Any

import numpy as np

from engine.config import FastPath
from engine.models.registry import LoadedModel, ModelNotFoundError, load_model
from engine.request import Request
from engine.sequence import Job, Sequence, choice_of, sequences_of
from engine.step import Decoder
from schemas_cache import CompiledSchema, Lookup, compile_source, schema_source

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1, "maximum": 9999},
        "title": {"type": "string", "minLength": 1, "maxLength": 40},
        "level": {"enum": ["beginner", "intermediate", "advanced"]},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 12}, "maxItems": 3},
        "draft": {"type": "boolean"},
    },
    "required": ["id", "title", "level", "tags", "draft"],
}
TOPICS = ("bread", "chess", "rivers", "glass", "bees", "maps", "tea", "clocks", "wool", "bridges")
PROMPT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWrite the record of one lesson as JSON: a number, a title of a few words, the level "
    "(beginner, intermediate or advanced), up to three short tags, and whether it is still a draft. Use plain words, "
    "no line breaks, and no other fields. The lesson is about {}.<|im_end|>\n<|im_start|>assistant\n"
)
PARTS = ("forward_s", "mask_s", "sample_s", "advance_s")
SWITCHES: dict[str, tuple[FastPath, bool]] = {  # and whether to jump forward
    "all on": (FastPath(), True),
    "few logits": (FastPath(few_logits=False), True),
    "prefix reuse": (FastPath(prefix_reuse=False), True),
    "chunked prefill": (FastPath(prefill_chunk_tokens=None), True),
    "jump-forward": (FastPath(), False),
    "all of them": (FastPath(few_logits=False, prefix_reuse=False, prefill_chunk_tokens=None), False),
}


def requests(model: LoadedModel, compiled: CompiledSchema, count: int, jump_forward: bool) -> Iterator[Sequence]:
    """So many records."""
    source = schema_source(SCHEMA)
    for number in range(count):
        prompt = tuple(model.tokenizer.encode(PROMPT.format(TOPICS[number % len(TOPICS)]), special=True))
        request = Request((prompt,), 200, source=source, jump_forward=jump_forward)
        job = Job(request, Future(), number, submitted_s=0.0, lookup=Lookup(compiled, "memory", 0.0))
        job.sequences = list(sequences_of(job, model.model.context_length))
        yield from job.sequences


def measure(
    model: LoadedModel, compiled: CompiledSchema, rows: int, count: int, fast_path: FastPath, jump_forward: bool
) -> tuple[dict[str, Any], list[str]]:
    """Figures of so many records, and their texts."""
    tokenizer = model.tokenizer
    decoder = Decoder(
        model.model, tokenizer.vocabulary, tokenizer.encode_bytes, rows, clock=process_time, fast_path=fast_path
    )
    decoder.scheduler.add(requests(model, compiled, count, jump_forward))
    over: list[Sequence] = []
    started_s = process_time()
    while not decoder.scheduler.idle:
        over += decoder.step()
    spent_s = process_time() - started_s
    choices = [choice_of(row) for row in sorted(over, key=lambda row: row.job.seed)]
    counters, tokens = decoder.counters, sum(len(choice.token_ids) for choice in choices)
    parts = {part: 1e3 * getattr(counters, part) / counters.steps for part in PARTS}
    figures = {
        "record": 1e3 * spent_s / count,
        "tokens/s": tokens / spent_s,
        "tokens": tokens / count,
        "steps": counters.steps,
        "cached": sum(row.cached_tokens for row in over) / count,
        "step": 1e3 * spent_s / counters.steps,
        **parts,
    }
    return figures, [choice.text for choice in choices]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--records", type=int, default=2, help="for each row")
    parser.add_argument("--off", nargs="+", choices=list(SWITCHES), default=list(SWITCHES), help="what to switch off")
    options = parser.parse_args()
    try:
        model = load_model(options.model)
    except ModelNotFoundError as error:
        print(f"skipped: {error}")
        return
    compiled = compile_source(schema_source(SCHEMA), model.tokenizer.vocabulary)
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, BLAS threads: {threads}")
    measure(model, compiled, 2, 4, FastPath(), True)  # the automaton learns its states
    for rows in options.rows:
        count = max(3, rows * options.records)
        base: list[str] = []
        for name in options.off:
            figures, texts = measure(model, compiled, rows, count, *SWITCHES[name])
            base = base or texts
            valid = sum(isinstance(json.loads(text), dict) for text in texts)
            same = sum(one == other for one, other in zip(base, texts, strict=True))
            own = figures["mask_s"] + figures["advance_s"]
            print(
                f"{rows:2} rows, {'' if name == 'all on' else 'without '}{name:16} {figures['record']:7.1f} ms/record "
                f"{figures['tokens/s']:6.1f} tokens/s {figures['tokens']:5.1f} tokens {figures['cached']:5.1f} cached; "
                f"step {figures['step']:6.1f} ms: forward {figures['forward_s']:6.1f} mask {figures['mask_s']:5.2f} "
                f"sample {figures['sample_s']:5.2f} advance {figures['advance_s']:5.2f}; mask work "
                f"{own / figures['step']:5.1%}; {valid} of {count} valid, {same} the same text",
                flush=True,
            )


if __name__ == "__main__":
    main()
