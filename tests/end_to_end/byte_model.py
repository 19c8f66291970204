"""A model folder as anybody could make one: random weights, and all bytes as its vocabulary, so it can spell anything.

Characters beyond ASCII are several tokens each, which is what streams have to put together.
"""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

from engine.models.window_mlp import ARCHITECTURE, describe
from engine.training.weights import initial_weights, named_views

END = "<|end|>"


def write_byte_model(folder: Path) -> Path:
    """Write the model; the folder's name is its name."""
    folder.mkdir(parents=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: token_id for token_id, text in enumerate([END, *alphabet])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = describe(len(vocabulary)) | {"architecture": ARCHITECTURE, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    weights = named_views(initial_weights(len(vocabulary), seed=1), len(vocabulary))
    save_file({name: value.copy() for name, value in weights.items()}, folder / "model.safetensors")
    return folder
