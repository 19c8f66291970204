"""Corpus and models, beside the article's: how far the experiments start from the same place."""

from __future__ import annotations

from app.bench.article.published import beside
from app.bench.article.report import Experiment, Sample
from app.bench.article.subject import BPE, CHAR, Subject
from engine.training.corpus import SHORT_UP_TO

EXAMPLES = 3


def run_setup(subject: Subject) -> Experiment:
    """Sizes of corpus and models."""
    corpus = subject.corpus
    char, bpe = (subject.engine.models[name].config for name in (CHAR, BPE))
    return Experiment(
        name="setup",
        title="Corpus and models",
        about="Both models look at the last 24 tokens, 16 numbers each, through 256 hidden units.",
        figures=(
            beside("setup.titles", len(corpus.titles)),
            beside("setup.short_titles", sum(len(title) <= SHORT_UP_TO for title in corpus.titles)),
            beside("setup.records", len(corpus.lines)),
            beside("setup.char_parameters", char["parameters"]),
            beside("setup.bpe_parameters", bpe["parameters"]),
            beside("setup.char_loss", char["training"]["held_out_loss_nats_per_character"]),
        ),
        samples=(Sample("The first records of the corpus", corpus.lines[:EXAMPLES]),),
        notes=(
            "The article's headings are those of a company's articles and are not published. Ours are made from word "
            "lists by a seed, as many and as long; their grammar is simpler, so the model's loss is lower.",
            "The held-out loss stands in the model's config.json, where training wrote it.",
        ),
    )
