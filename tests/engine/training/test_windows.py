"""Every token of every line is predicted once, from the tokens of its own line before it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.training.windows import build_examples

END = 0
LINES = st.lists(st.lists(st.integers(1, 900), max_size=40), min_size=1, max_size=6)


@given(LINES)
def test_windows_are_the_line_before_the_target(lines: list[list[int]]) -> None:
    """Written out: end tokens, then the line so far, cut to 24; the end token is predicted too."""
    expected = [
        (([END] * 24 + line[:index])[-24:], token) for line in lines for index, token in enumerate([*line, END])
    ]
    examples = build_examples(lines, END)
    windows, targets = examples.at(np.arange(len(examples)))
    assert expected == list(zip(windows.tolist(), targets.tolist(), strict=True))
