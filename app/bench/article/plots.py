"""Plots as SVG: bar charts and small automata, written here, so that a page needs no drawing library and no network.

In: `Bars` or `Drawing`. Out: the text of an SVG file, the same for the same numbers. Cost: linear in what is drawn.
Colours are those of Okabe and Ito, "Color universal design" (2008), which people with any colour vision tell apart; the
ground is white, so that the picture can be read on a dark page too. Each bar has its value as a tooltip. Rejected:
matplotlib, thirty times the size of what is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from app.bench.article.report import Bars, Drawing, Plot, shown

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
WIDTH, PLOT_HEIGHT = 760, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 34  # margins of the plot
LEGEND_ROW = 20
COLUMN, ROW, RADIUS = 96, 74, 17  # of an automaton
FONT = 'font-family="sans-serif" font-size="12"'


def svg(plot: Plot) -> str:
    """The file's text."""
    body, height = _bars(plot) if isinstance(plot, Bars) else _drawing(plot)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" {FONT} role="img">'
    title = _text(LEFT, 20, plot.title, 'font-weight="bold"')
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, f"<title>{escape(plot.title)}</title>", ground, title, *body, "</svg>"]) + "\n"


def nice_top(highest: float) -> float:
    """A round number at or above the highest value, at which the axis ends."""
    if highest <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(highest))
    return next(step * scale for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * scale >= highest * (1 - 1e-9))


def _bars(plot: Bars) -> tuple[list[str], int]:
    top = nice_top(max((value for series in plot.series for value in series.values), default=0.0))
    legend = list(_legend([series.name for series in plot.series]))
    rows = 1 + max((row for row, _ in legend), default=0)
    height = TOP + PLOT_HEIGHT + BOTTOM + rows * LEGEND_ROW
    body = [*_axis(plot, top), *_groups(plot, top)]
    return body + [_key(row, at, plot, number) for number, (row, at) in enumerate(legend)], height


def _axis(plot: Bars, top: float) -> Iterator[str]:
    for quarter in range(5):
        y = TOP + PLOT_HEIGHT * (1 - quarter / 4)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield _text(LEFT - 6, y + 4, shown(top * quarter / 4, plot.unit), 'text-anchor="end" fill="#555"')


def _groups(plot: Bars, top: float) -> Iterator[str]:
    group = (WIDTH - LEFT - RIGHT) / max(len(plot.labels), 1)
    bar = group * 0.8 / max(len(plot.series), 1)
    for place, label in enumerate(plot.labels):
        start = LEFT + group * place + group * 0.1
        yield _text(start + group * 0.4, TOP + PLOT_HEIGHT + 18, label, 'text-anchor="middle"')
        for number, series in enumerate(plot.series):
            height = PLOT_HEIGHT * series.values[place] / top
            box = f'x="{start + bar * number:.1f}" y="{TOP + PLOT_HEIGHT - height:.1f}" width="{bar * 0.92:.1f}"'
            tip = escape(f"{series.name}, {label}: {shown(series.values[place], plot.unit)}")
            fill = COLOURS[number % len(COLOURS)]
            yield f'<rect {box} height="{height:.1f}" fill="{fill}"><title>{tip}</title></rect>'


def _legend(names: list[str]) -> Iterator[tuple[int, int]]:
    """Row and place of each entry."""
    row, at = 0, LEFT
    for name in names:
        needed = 30 + 7 * len(name)
        if at + needed > WIDTH - RIGHT and at > LEFT:
            row, at = row + 1, LEFT
        yield row, at
        at += needed


def _key(row: int, at: int, plot: Bars, number: int) -> str:
    y = TOP + PLOT_HEIGHT + BOTTOM + row * LEGEND_ROW
    square = f'<rect x="{at}" y="{y - 10}" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>'
    return square + _text(at + 17, y, plot.series[number].name)


def _drawing(plot: Drawing) -> tuple[list[str], int]:
    """States in columns by their distance from the start."""
    place = _places(plot)
    body = [
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" fill="#555"/></marker></defs>'
    ]
    body += [_arrow(place[state], place[to], label) for state, to, label in plot.edges]
    body += [_state(place[state], state, state in plot.accepting) for state in place]
    return body, int(max(y for _, y in place.values()) + RADIUS + 20)


def _places(plot: Drawing) -> dict[int, tuple[float, float]]:
    columns, seen = [[plot.start]], {plot.start}
    while columns[-1]:
        following = [to for state in columns[-1] for at, to, _ in plot.edges if at == state and to not in seen]
        columns.append(list(dict.fromkeys(following)))
        seen.update(following)
    tallest = max(map(len, columns))
    return {
        state: (LEFT + COLUMN * column, TOP + RADIUS + 12 + ROW * (row + (tallest - len(states)) / 2))
        for column, states in enumerate(columns)
        for row, state in enumerate(states)
    }


def _arrow(start: tuple[float, float], end: tuple[float, float], label: str) -> str:
    length = math.hypot(end[0] - start[0], end[1] - start[1]) or 1.0
    dx, dy = RADIUS * (end[0] - start[0]) / length, RADIUS * (end[1] - start[1]) / length
    line = f'<line x1="{start[0] + dx:.1f}" y1="{start[1] + dy:.1f}" x2="{end[0] - dx:.1f}" y2="{end[1] - dy:.1f}"'
    middle = _text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2 - 6, label, 'text-anchor="middle" fill="#0072b2"')
    return f'{line} stroke="#555" marker-end="url(#tip)"/>' + middle


def _state(at: tuple[float, float], number: int, is_accepting: bool) -> str:
    circle = '<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="white" stroke="#222"/>'
    rings = circle.format(*at, RADIUS) + (circle.format(*at, RADIUS - 4) if is_accepting else "")
    return rings + _text(at[0], at[1] + 4, str(number), 'text-anchor="middle"')


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'
