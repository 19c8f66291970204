"""How many threads matrix products have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from app.blas_threads import asked_threads


@pytest.mark.parametrize(
    ("expected", "arguments", "environment"),
    [
        ("1", [], {}),
        ("2", ["serve", "--threads", "2"], {}),
        ("2", ["serve", "--threads=2"], {"KATAGAMI_THREADS": "4"}),
        ("4", ["serve"], {"KATAGAMI_THREADS": "4"}),
        ("1", ["serve", "--threads"], {}),
        ("1", ["serve", "--threads", "0"], {}),
        ("1", ["serve", "--threads", "many"], {"KATAGAMI_THREADS": "4"}),
    ],
)
def test_flag_before_variable_before_one(expected: str, arguments: list[str], environment: dict[str, str]) -> None:
    """What is no number of threads is one thread here; the settings refuse it a moment later."""
    assert expected == asked_threads(arguments, environment)


def test_the_blas_is_told_before_it_is_loaded() -> None:
    """The variable that OpenBLAS reads is set by the time numpy is imported, and one of the user's own stays."""
    script = "import sys, os; sys.argv = ['katagami', '--threads', '2']\nimport app.blas_threads\n"
    script += "print('numpy' in sys.modules, os.environ['OPENBLAS_NUM_THREADS'])"
    for given, expected in (({}, "False 2"), ({"OPENBLAS_NUM_THREADS": "3"}, "False 3")):
        done = subprocess.run(
            [sys.executable, "-c", script], env=given, cwd=".", capture_output=True, text=True, check=True
        )
        assert expected == done.stdout.strip()
