"""Charts as inline SVG for pages: curves over time, stacked columns, a roofline.

The idea: all outside text goes through ``escape``; the result is ``Markup``, which
``flint.host.pages`` puts into a page unchanged.

    page("step", [curves([("compute", [(0, 1), (5, 0.5)])], 5, 1, ("5 s", "100%"))])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from flint.host.pages import COLOURS, key
from flint.host.readable import human_seconds

#: A point of a roofline affects the choice of axes if its share of the time is at least this.
_SEEN: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a roofline: FLOPs per byte, FLOP/s, share of the time, colour, label."""

    intensity: float
    rate: float
    share: float
    colour: str
    label: str


def curves(
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    width: float,
    height: float,
    ends: tuple[str, str],
) -> Markup:
    """Filled curves over the same x, one below the other.

    Args:
        lines: name and (x, y) of each, x ascending in 0 .. width, y in 0 .. height.
        width, height: ranges of the data.
        ends: the largest x and the largest y, as text.
    """
    left, wide, tall, gap = 130, 820, 70, 16
    top = escape(ends[1])
    drawn = []
    for number, (name, points) in enumerate(lines):
        base = (number + 1) * (tall + gap)
        places = " ".join(
            f"{left + wide * x / width:.1f},{base - tall * y / height:.1f}" for x, y in points
        )
        drawn.append(
            f'<polygon fill="{COLOURS[number % len(COLOURS)]}" '
            f'points="{left},{base} {places} {left + wide},{base}"/>'
            f'<line x1="{left}" y1="{base}" x2="{left + wide}" y2="{base}" stroke="#999"/>'
            f'<text x="{left - 8}" y="{base - 4}" text-anchor="end">{escape(name)}</text>'
            f'<text x="{left - 8}" y="{base - tall + 10}" text-anchor="end">{top}</text>'
        )
    bottom = len(lines) * (tall + gap) + 18
    foot = f'<text x="{left}" y="{bottom}">0</text>'
    foot += f'<text x="{left + wide}" y="{bottom}" text-anchor="end">{escape(ends[0])}</text>'
    return _svg(left + wide + 10, bottom + 8, [*drawn, foot])


def columns(
    names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], top: str
) -> Markup:
    """Stacked columns, one per name, with the key of the series below.

    Args:
        names: names of the columns, left to right; as many are written as fit.
        series: name and the size of its part of each column.
        top: the height of the highest column, as text.
    """
    left, wide, tall = 70, 860, 150
    sums = [sum(parts) for parts in zip(*(sizes for _, sizes in series), strict=True)]
    highest = max(sums, default=0.0) or 1.0
    step = wide / len(names)
    room = max(1, math.ceil((7 * max(len(name) for name in names) + 8) / step))
    drawn = [f'<text x="{left - 6}" y="12" text-anchor="end">{escape(top)}</text>']
    drawn.append(f'<line x1="{left}" y1="{tall}" x2="{left + wide}" y2="{tall}" stroke="#999"/>')
    for number, name in enumerate(names):
        at, base = left + number * step, float(tall)
        for colour, (what, sizes) in zip(COLOURS, series, strict=False):
            height = (tall - 4) * sizes[number] / highest
            base -= height
            drawn.append(
                f'<rect x="{at + 0.1 * step:.1f}" y="{base:.1f}" width="{0.8 * step:.1f}" '
                f'height="{height:.1f}" fill="{colour}"><title>{escape(name)}: {escape(what)} '
                f"{escape(human_seconds(sizes[number]))}</title></rect>"
            )
        if number % room == 0:
            drawn.append(
                f'<text x="{at + step / 2:.1f}" y="{tall + 16}" text-anchor="middle">{escape(name)}'
                "</text>"
            )
    shown = key([(what, colour) for colour, (what, _) in zip(COLOURS, series, strict=False)])
    return Markup("\n").join([_svg(left + wide + 10, tall + 24, drawn), shown])


def roofline(
    points: Sequence[Point], roofs: Sequence[tuple[str, float]], bandwidth: float
) -> Markup:
    """A roofline plot, both axes logarithmic.

    Args:
        points: kernels with FLOPs and bytes.
        roofs: name and FLOP/s of each flat roof.
        bandwidth: bytes per second, the slope.
    """
    ridge = [rate / bandwidth for _, rate in roofs]
    # Points with very little time are put on the border if they would stretch the axes.
    seen = [p for p in points if p.share >= _SEEN] or points
    xs = [p.intensity for p in seen] + ridge
    ys = [p.rate for p in seen] + [rate for _, rate in roofs]
    low_x, high_x = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs))) + 1
    low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 0.1)
    left, top, wide, tall = 70, 10, 710, 420

    def x(value: float) -> float:
        along = (math.log10(value) - low_x) / (high_x - low_x)
        return left + wide * min(max(along, 0.0), 1.0)

    def y(value: float) -> float:
        along = (high_y - math.log10(value)) / (high_y - low_y)
        return top + tall * min(max(along, 0.0), 1.0)

    drawn = [f'<rect x="{left}" y="{top}" width="{wide}" height="{tall}" fill="#fafafa"/>']
    for power in range(low_x, high_x + 1):
        at = x(10.0**power)
        drawn.append(
            f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{top + tall}" stroke="#e2e2e2"/>'
            f'<text x="{at:.1f}" y="{top + tall + 16}" text-anchor="middle">1e{power}</text>'
        )
    for power in range(low_y, high_y + 1):
        at = y(10.0**power)
        drawn.append(
            f'<line x1="{left}" y1="{at:.1f}" x2="{left + wide}" y2="{at:.1f}" stroke="#e2e2e2"/>'
            f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">1e{power}</text>'
        )
    lowest = math.inf
    for name, rate in sorted(roofs, key=lambda roof: roof[1]):
        # Names are next to the plot, where they do not overlap.
        lowest = min(y(rate) + 4, lowest - 14)
        drawn.append(
            f'<line x1="{x(rate / bandwidth):.1f}" y1="{y(rate):.1f}" x2="{left + wide}" '
            f'y2="{y(rate):.1f}" stroke="#222" stroke-width="1.5"/>'
            f'<line x1="{left + wide}" y1="{y(rate):.1f}" x2="{left + wide + 16}" '
            f'y2="{lowest - 4:.1f}" stroke="#999"/>'
            f'<text x="{left + wide + 20}" y="{lowest:.1f}">{escape(shortened(name, 22))}</text>'
        )
    start = max(10.0**low_x, 10.0**low_y / bandwidth)
    stop = max(ridge)
    if start < stop:
        drawn.append(
            f'<line x1="{x(start):.1f}" y1="{y(start * bandwidth):.1f}" x2="{x(stop):.1f}" '
            f'y2="{y(stop * bandwidth):.1f}" stroke="#222" stroke-width="1.5"/>'
        )
    # Small points are on top of large ones.
    for point in sorted(points, key=lambda p: -p.share):
        drawn.append(
            f'<circle cx="{x(point.intensity):.1f}" cy="{y(point.rate):.1f}" '
            f'r="{3 + 40 * math.sqrt(point.share / math.pi):.1f}" fill="{point.colour}" '
            f'fill-opacity="0.55" stroke="{point.colour}"><title>{escape(point.label)}</title>'
            "</circle>"
        )
    drawn.append(
        f'<text x="{left + wide / 2}" y="{top + tall + 34}" text-anchor="middle">FLOPs per byte of '
        f'memory traffic</text><text x="14" y="{top + tall / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {top + tall / 2})">FLOP/s</text>'
    )
    return _svg(left + wide + 200, top + tall + 44, drawn)


def _svg(width: float, height: float, drawn: Sequence[str]) -> Markup:
    """A drawing; everything in ``drawn`` is escaped."""
    return Markup(f'<svg viewBox="0 0 {width} {height}">{"".join(drawn)}</svg>')


def shortened(name: str, size: int) -> str:
    """At most ``size`` characters of a name."""
    return name if len(name) <= size else name[: size - 1] + "\u2026"
