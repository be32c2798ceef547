"""Pieces of self-contained HTML pages: page, tables, bars, and charts as inline SVG.

The idea: whatever comes from outside goes through `text`, which escapes it; pages refer to nothing,
and say so to the browser in a content security policy.

    page("step", [heading("a & b"), table(("op", ">time"), [("dot", "3 us")])])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from flint.host.readable import human_seconds

#: Colours that are told apart by people with colour deficiencies: Okabe and Ito, "Color Universal
#: Design" (2008), without yellow and black.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 64em; padding: 0 1em;
  color: #1b1b1b; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; margin: .6em 0; font-size: .92em; }
th, td { padding: .22em .8em; text-align: left; border-bottom: 1px solid #ddd;
  overflow-wrap: break-word; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; max-width: 100%; height: auto; margin: .6em 0; }
.wide { overflow-x: auto; }
svg text { font: 12px system-ui, sans-serif; fill: #333; }
svg .b { font-weight: 600; }
.bar { display: flex; height: 1.5em; margin: .5em 0; background: #eee; }
.bar span { display: block; height: 100%; }
.key { font-size: .9em; } .key i { display: inline-block; width: .8em; height: .8em;
  margin: 0 .35em 0 1em; }
.warn { color: #a40000; font-weight: 600; } .small { font-size: .88em; color: #555; }
"""


#: Share of the time from which on a point of a roofline takes part in choosing the axes.
_SEEN: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a roofline: FLOPs per byte, FLOP/s, share of the time, colour, what it is."""

    intensity: float
    rate: float
    share: float
    colour: str
    label: str


def text(value: object) -> str:
    """Anything as text of a page."""
    return escape(str(value), quote=True)


def page(title: str, parts: Iterable[str]) -> str:
    """A whole document that needs no other file."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def heading(title: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{text(title)}</h{level}>"


def paragraph(said: str, kind: str = "") -> str:
    """A paragraph; ``kind`` is "warn" or "small"."""
    return f'<p class="{kind}">{text(said)}</p>' if kind else f"<p>{text(said)}</p>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a column whose name starts with ``>`` holds numbers."""
    kinds = [' class="n"' if name.startswith(">") else "" for name in columns]
    head = "".join(
        f"<th{kind}>{text(name.removeprefix('>'))}</th>"
        for kind, name in zip(kinds, columns, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table></div>"
    )


def bar(parts: Sequence[tuple[str, float, str]], whole: float) -> str:
    """One bar with a key below: (name, size, how the size reads) out of ``whole``."""
    spans, keys = [], []
    for number, (name, size, shown) in enumerate(parts):
        colour = COLOURS[number % len(COLOURS)]
        share = 100 * size / whole if whole else 0.0
        label = f"{text(name)}: {text(shown)}"
        spans.append(
            f'<span style="width:{share:.3f}%;background:{colour}" title="{label}"></span>'
        )
        keys.append(f'<i style="background:{colour}"></i>{label}')
    return f'<div class="bar">{"".join(spans)}</div>\n<div class="key">{"".join(keys)}</div>'


def curves(
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    width: float,
    height: float,
    ends: tuple[str, str],
) -> str:
    """Filled curves over the same x, one below the other.

    Args:
        lines: name and (x, y) of each, x ascending in 0 .. width, y in 0 .. height.
        width, height: of the data.
        ends: how the largest x and the largest y read.
    """
    left, wide, tall, gap = 130, 820, 70, 16
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
            f'<text x="{left - 8}" y="{base - 4}" text-anchor="end">{text(name)}</text>'
            f'<text x="{left - 8}" y="{base - tall + 10}" text-anchor="end">{text(ends[1])}</text>'
        )
    bottom = len(lines) * (tall + gap) + 18
    foot = f'<text x="{left}" y="{bottom}">0</text>'
    foot += f'<text x="{left + wide}" y="{bottom}" text-anchor="end">{text(ends[0])}</text>'
    return f'<svg viewBox="0 0 {left + wide + 10} {bottom + 8}">{"".join(drawn)}{foot}</svg>'


def columns(names: Sequence[str], series: Sequence[tuple[str, Sequence[float]]], top: str) -> str:
    """Stacked columns, one per name, with the key of the series below.

    Args:
        names: of the columns, left to right; as many are written as there is room for.
        series: name and the size of its part of each column.
        top: how the highest column reads.
    """
    left, wide, tall = 70, 860, 150
    sums = [sum(parts) for parts in zip(*(sizes for _, sizes in series), strict=True)]
    highest = max(sums, default=0.0) or 1.0
    step = wide / len(names)
    room = max(1, math.ceil((7 * max(len(name) for name in names) + 8) / step))
    drawn = [f'<text x="{left - 6}" y="12" text-anchor="end">{text(top)}</text>']
    drawn.append(f'<line x1="{left}" y1="{tall}" x2="{left + wide}" y2="{tall}" stroke="#999"/>')
    for number, name in enumerate(names):
        at, base = left + number * step, float(tall)
        for colour, (what, sizes) in zip(COLOURS, series, strict=False):
            height = (tall - 4) * sizes[number] / highest
            base -= height
            drawn.append(
                f'<rect x="{at + 0.1 * step:.1f}" y="{base:.1f}" width="{0.8 * step:.1f}" '
                f'height="{height:.1f}" fill="{colour}"><title>{text(name)}: {text(what)} '
                f"{text(human_seconds(sizes[number]))}</title></rect>"
            )
        if number % room == 0:
            drawn.append(
                f'<text x="{at + step / 2:.1f}" y="{tall + 16}" text-anchor="middle">{text(name)}'
                "</text>"
            )
    shown = key([(what, colour) for colour, (what, _) in zip(COLOURS, series, strict=False)])
    return f'<svg viewBox="0 0 {left + wide + 10} {tall + 24}">{"".join(drawn)}</svg>\n{shown}'


def roofline(points: Sequence[Point], roofs: Sequence[tuple[str, float]], bandwidth: float) -> str:
    """A roofline plot, both axes logarithmic.

    Args:
        points: kernels with FLOPs and bytes.
        roofs: name and FLOP/s of each flat roof.
        bandwidth: bytes per second, the slope.
    """
    ridge = [rate / bandwidth for _, rate in roofs]
    # Points that hardly take time lie on the border where they would stretch the axes.
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
        # Names stand beside the plot, where they do not lie on each other.
        lowest = min(y(rate) + 4, lowest - 14)
        drawn.append(
            f'<line x1="{x(rate / bandwidth):.1f}" y1="{y(rate):.1f}" x2="{left + wide}" '
            f'y2="{y(rate):.1f}" stroke="#222" stroke-width="1.5"/>'
            f'<line x1="{left + wide}" y1="{y(rate):.1f}" x2="{left + wide + 16}" '
            f'y2="{lowest - 4:.1f}" stroke="#999"/>'
            f'<text x="{left + wide + 20}" y="{lowest:.1f}">{text(_short(name))}</text>'
        )
    start = max(10.0**low_x, 10.0**low_y / bandwidth)
    stop = max(ridge)
    if start < stop:
        drawn.append(
            f'<line x1="{x(start):.1f}" y1="{y(start * bandwidth):.1f}" x2="{x(stop):.1f}" '
            f'y2="{y(stop * bandwidth):.1f}" stroke="#222" stroke-width="1.5"/>'
        )
    # Small points lie on top of large ones.
    for point in sorted(points, key=lambda p: -p.share):
        drawn.append(
            f'<circle cx="{x(point.intensity):.1f}" cy="{y(point.rate):.1f}" '
            f'r="{3 + 40 * math.sqrt(point.share / math.pi):.1f}" fill="{point.colour}" '
            f'fill-opacity="0.55" stroke="{point.colour}"><title>{text(point.label)}</title>'
            "</circle>"
        )
    drawn.append(
        f'<text x="{left + wide / 2}" y="{top + tall + 34}" text-anchor="middle">FLOPs per byte of '
        f'memory traffic</text><text x="14" y="{top + tall / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {top + tall / 2})">FLOP/s</text>'
    )
    return f'<svg viewBox="0 0 {left + wide + 200} {top + tall + 44}">{"".join(drawn)}</svg>'


def _short(name: str, size: int = 22) -> str:
    return name if len(name) <= size else name[: size - 1] + "\u2026"


def key(names: Sequence[tuple[str, str]]) -> str:
    """What the colours mean: (name, colour)."""
    shown = "".join(f'<i style="background:{colour}"></i>{text(name)}' for name, colour in names)
    return f'<div class="key">{shown}</div>'
