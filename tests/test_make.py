"""The Makefile on a fresh machine: what it installs, when it does so again, and what it says when it cannot.

`make` runs in a temporary folder with an interpreter that only notes what it is asked to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

NOTING_PYTHON = """#!/bin/sh
case "$*" in
    -c*) exit 0 ;;
    "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python; ln -s python .venv/bin/katagami ;;
esac
echo "$(basename "$0")${KATAGAMI_MODEL:+ [$KATAGAMI_MODEL]} $*" >> calls
"""
OLD_PYTHON = f"""#!/bin/sh
exec {sys.executable} -c "import sys; sys.version_info = (3, 9, 2)
$2"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the Makefile, `pyproject.toml` and a noting interpreter in it."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    interpreter = tmp_path / "python"
    interpreter.write_text(NOTING_PYTHON)
    interpreter.chmod(0o755)
    return tmp_path


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make as from a fresh shell."""
    environment = {name: value for name, value in os.environ.items() if not re.match("MAKE|MFLAGS|KATAGAMI_", name)}
    command = ["make", "PYTHON=./python", *arguments]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=60)


def calls(clone: Path) -> list[str]:
    """What the noting interpreter was asked since the last question, pip's own options left out."""
    path = clone / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [re.sub(r" --(disable-pip-version-check|quiet)", "", line) for line in lines]


def test_serve_creates_installs_and_serves(clone: Path) -> None:
    """The first `make serve` makes the environment, installs the package and starts the server on this machine only."""
    assert make(clone, "serve").returncode == 0
    serving = "katagami serve --host 127.0.0.1 --port 8000"
    assert calls(clone) == ["python -m venv .venv", "python -m pip install --editable .", serving]


def test_later_starts_install_nothing(clone: Path) -> None:
    """A second start only serves; host, port and model can be chosen."""
    make(clone, "serve")
    calls(clone)
    make(clone, "serve", "HOST=::1", "PORT=9", "MODEL=a,b")
    assert calls(clone) == ["katagami [a,b] serve --host ::1 --port 9"]


def test_a_changed_pyproject_installs_again(clone: Path) -> None:
    """After `pyproject.toml` has changed the next start installs, in the same environment."""
    make(clone, "serve")
    calls(clone)
    installed_s = (clone / ".venv" / ".installed").stat().st_mtime
    os.utime(clone / "pyproject.toml", (installed_s + 5, installed_s + 5))
    make(clone, "serve")
    assert calls(clone)[0] == "python -m pip install --editable ."


def test_installing_for_development_is_enough_to_serve(clone: Path) -> None:
    """After a target that needs the tools of development, serving installs nothing."""
    make(clone, "suites")
    assert calls(clone)[1] == "python -m pip install --editable .[dev]"
    make(clone, "serve")
    assert calls(clone) == ["katagami serve --host 127.0.0.1 --port 8000"]


def test_an_old_python_is_named(clone: Path) -> None:
    """With too old a Python nothing is created, and the message says what is needed and what to type."""
    (clone / "python").write_text(OLD_PYTHON)
    done = make(clone, "serve")
    assert done.returncode != 0
    assert "Katagami needs Python 3.11 or newer; ./python is 3.9. Try: make PYTHON=python3.12 serve" in done.stderr
    assert not (clone / ".venv").exists()


def test_a_broken_install_is_not_taken_for_done(clone: Path) -> None:
    """Where installing fails, make fails, and tries again at the next start."""
    make(clone, "serve")
    calls(clone)
    (clone / ".venv" / ".installed").unlink()
    (clone / ".venv" / "bin" / "python").write_text('#!/bin/sh\ncase "$*" in *pip*) exit 1 ;; esac\n')
    assert [make(clone, "serve").returncode, make(clone, "serve").returncode] == [2, 2]
    assert calls(clone) == []


def test_each_target_is_explained(clone: Path) -> None:
    """`make` alone lists every target that people are told of."""
    listed = {line.split()[0] for line in make(clone).stdout.splitlines()}
    assert {"serve", "test", "check", "suites", "bench", "train", "format", "clean"} <= listed
