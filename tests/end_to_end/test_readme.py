"""The README's calls run as they stand, but for the address."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.models.models_folder import default_home, find_model, models_folder

MODEL = "smollm2-135m-instruct"
README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8000"


def blocks(language: str, word: str) -> list[Any]:
    """Code of this language that has this word in it, and asks a shipped model."""
    found = enumerate(re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    return [pytest.param(code, id=f"{language}-{n}") for n, code in found if word in code and MODEL not in code]


def run(*command: str) -> str:
    """Standard output of a command that succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.parametrize("code", blocks("sh", "curl"))
def test_curl(server: Any, code: str) -> None:
    """Each call is answered with what it asks for, whole or in pieces."""
    out = run("sh", "-c", code.replace(ADDRESS, server.url))
    if '"stream": true' in code:
        assert out.endswith("data: [DONE]\n\n")
        assert '"valid":true' in out
    elif "completions" in code:
        answer = json.loads(out)
        assert answer["supported"] if "supported" in answer else answer["choices"][0]["structured"]["valid"]
    else:
        assert "error" not in json.loads(out)


@pytest.mark.parametrize("code", blocks("python", "import openai") + blocks("python", "import anthropic"))
def test_python(server: Any, code: str) -> None:
    """Each program runs to its end."""
    assert run(sys.executable, "-c", code.replace(ADDRESS, server.url))


@pytest.mark.parametrize("code", blocks("python", "from schemas_cache"))
def test_library(code: str) -> None:
    """The loop around the compiler ends where the document does."""
    run(sys.executable, "-c", code)


def test_there_are_calls() -> None:
    """None was lost by a change of form."""
    assert len(blocks("sh", "curl")) >= 2
    assert blocks("python", "import openai")
    assert blocks("python", "from schemas_cache")


def test_the_call_to_a_language_model(start_server: Any, tmp_path: Path) -> None:
    """It is answered as the page says; the model has to be on this machine."""
    if find_model(default_home(), MODEL) is None:
        pytest.skip(f"no {MODEL} on this machine: `katagami models pull {MODEL}` fetches it")
    (call,) = [code for code in re.findall(r"^```sh\n(curl.*?)^```$", README, re.M | re.S) if MODEL in code]
    (expected,) = re.findall(r"^answers `(.*)`\.$", README, re.MULTILINE)
    (tmp_path / "models").symlink_to(models_folder(default_home()))
    with start_server(tmp_path, "--model", MODEL) as server:
        answer = json.loads(run("sh", "-c", call.replace(ADDRESS, server.url)))
    assert expected == answer["choices"][0]["message"]["content"]
