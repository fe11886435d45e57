"""Plots as SVG: bars, and lines over two logarithmic axes."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Points = Sequence[tuple[float, float]]

OURS = "#1f8a66"
OTHERS = ("#8a97a6", "#b5793a", "#6a7fc0", "#b05f7b", "#7a9a4a", "#9a7ab0", "#5f9aa8", "#a88f5f")
DASHED = " p99"
WIDTH, CHARACTER = 640, 7.2
_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 64, 26, 400, 200


def bars(title: str, figures: Mapping[str, float], form: str = ",.0f") -> str:
    """A bar chart with labels and figures."""
    left = 12 + CHARACTER * max(map(len, figures), default=0)
    longest = max(figures.values(), default=0.0) or 1.0
    room = WIDTH - left - 100
    drawn = []
    for place, (name, figure) in enumerate(figures.items()):
        top, width = 8 + 30 * place, room * figure / longest
        fill = OURS if _is_ours(name) else OTHERS[0]
        drawn.append(
            _text(left - 8, top + 15, name, "end")
            + f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="20" rx="2" '
            f'fill="{fill}"/>' + _text(left + width + 6, top + 15, format(figure, form))
        )
    return _svg(title, 12 + 30 * len(figures), drawn)


def lines(title: str, series: Mapping[str, Points], x_name: str, y_name: str) -> str:
    """A line per name; both axes are logarithmic."""
    points = [point for line in series.values() for point in line]
    xs = sorted({x for x, _ in points})
    ticks = _ticks(min(y for _, y in points), max(y for _, y in points))
    across, up = _scale(xs[0], xs[-1], _PLOT_WIDTH), _scale(ticks[0], ticks[-1], _PLOT_HEIGHT)
    floor = _TOP + _PLOT_HEIGHT
    drawn = [_text(_LEFT, 14, y_name), _text(_LEFT + _PLOT_WIDTH, floor + 36, x_name, "end")]
    for tick in ticks:
        y = floor - up(tick)
        drawn.append(f'<path d="M{_LEFT} {y:.1f}h{_PLOT_WIDTH}" stroke="#8a97a6" '
                     'stroke-opacity="0.25"/>'
                     + _text(_LEFT - 8, y + 4, _number(tick), "end"))  # fmt: skip
    drawn += [_text(_LEFT + across(x), floor + 18, _number(x), "middle") for x in xs]
    colours = _colours([*series])
    for place, (name, line) in enumerate(series.items()):
        places = [(_LEFT + across(x), floor - up(y)) for x, y in sorted(line)]
        x, y = _LEFT + _PLOT_WIDTH + 14, _TOP + 8 + 20 * place
        drawn += [
            _line(places, colours[name], dashed=name.endswith(DASHED)),
            _line([(x, y), (x + 18, y)], colours[name], dashed=name.endswith(DASHED)),
            _text(x + 26, y + 4, name),
        ]
    return _svg(title, max(floor + 44, _TOP + 20 * len(series)), drawn)


def _colours(names: Sequence[str]) -> dict[str, str]:
    """Green for Millstream, one for each other engine: the first word of a name."""
    others = list(dict.fromkeys(name.split()[0] for name in names if not _is_ours(name)))
    return {
        name: OURS if _is_ours(name) else OTHERS[others.index(name.split()[0]) % len(OTHERS)]
        for name in names
    }


def _is_ours(name: str) -> bool:
    return name.startswith("millstream")


def _line(points: Points, colour: str, *, dashed: bool) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points
    )
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>{dots}'


def _ticks(least: float, most: float) -> list[float]:
    """The numbers 1, 2 and 5 of each decade, from one below to one above."""
    decades = range(math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 2)
    steps = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    below = max(step for step in steps if step <= least)
    above = min(step for step in steps if step >= most and step > below)
    return [step for step in steps if below <= step <= above]


def _scale(least: float, most: float, length: float) -> Callable[[float], float]:
    """Map a figure to its position on a logarithmic axis; the middle if there is only one."""
    whole = math.log(most / least)
    return lambda figure: length * math.log(figure / least) / whole if whole else length / 2


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 10 else f"{figure:g}"


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(title: str, height: float, drawn: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#6b7683">'
        f"<title>{escape(title)}</title>{''.join(drawn)}</svg>\n"
    )
