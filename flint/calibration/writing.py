"""A calibration as an accelerator's description, and as a page with every residual.

The idea: the description is the base's text followed by the curves, each figure with its source, so
that people can read and change it; curves of the base are replaced.

    described(Path("base.toml"), calibration, "microbench.csv")
    page(calibration, "microbench.csv")
"""

from __future__ import annotations

import math
import re
from typing import Final

from markupsafe import Markup

from flint.calibration.fitting import Calibration, Group, Residuals
from flint.host.pages import COLOURS, heading, key, paragraph, table
from flint.host.pages import page as document
from flint.host.readable import human_bytes, human_seconds

#: A table of curves in an accelerator's description, up to the next table.
_CURVES: Final = re.compile(r"^\[\[curves\]\]\n(?:(?!\[).*\n?)*", re.MULTILINE)
#: The number of worst kernels that the page lists per group.
_LISTED: Final = 12
#: The picture, in pixels; errors beyond a factor of this are drawn at its edge.
_WIDTH, _HEIGHT, _EDGE = 860, 260, 2.0


def described(base: str, calibration: Calibration, source: str) -> str:
    """The text of the base's description with the calibration's curves.

    Args:
        base: the description's text.
        calibration: the fitted curves.
        source: name of the kernels.
    """
    blocks = [_curve(group, source) for group in calibration.groups]
    return "\n".join([_CURVES.sub("", base).rstrip("\n") + "\n", *blocks])


def _curve(group: Group, source: str) -> str:
    curve, held = group.curve, group.held_out
    where = f"fitted to {group.fit.count} kernels of {source.replace(chr(34), '')}"
    lines = [
        "[[curves]]",
        f'class = "{curve.kernel}"',
        f'type = "{curve.dtype}"',
        f'latency = ["{curve.latency * 1e6:.6g} us", {_quoted(where)}]',
        f'bandwidth = ["{curve.bandwidth / 1e9:.6g} GB/s", {_quoted(where)}]',
    ]
    if curve.kernel == "matmul":
        lines.append(f"efficiency = [{curve.efficiency:.6g}, {_quoted(where)}]")
        lines.append(f"overlap = [{curve.overlap:g}, {_quoted('chosen: ' + where)}]")
    lines.append(f"layout = [{list(curve.layout)}, {_quoted('chosen: ' + where)}]")
    left = f"median error on the {held.count} held-out kernels"
    return "\n".join([*lines, f"error = [{max(held.median, 1e-6):.3g}, {_quoted(left)}]", ""])


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else " " for c in text).replace("\\", "/") + '"'
    )


#: Columns of a table of groups.
COLUMNS: Final = (
    "class", "type", ">kernels", ">held out", ">median", ">90%", ">largest", ">before",
    "?>latency", "?>bandwidth", "?>efficiency",
)  # fmt: skip


def row(group: Group) -> tuple[str, ...]:
    """One line about a group, with the errors on the held-out half."""
    curve, held = group.curve, group.held_out
    return (
        curve.kernel, curve.dtype, f"{len(group.kernels):,}", f"{held.count:,}",
        f"{held.median:.1%}", f"{held.ninetieth:.1%}", f"{held.largest:+.0%}",
        f"{group.before.median:.1%}", human_seconds(curve.latency),
        f"{human_bytes(curve.bandwidth)}/s",
        f"{curve.efficiency:.2f}" if curve.kernel == "matmul" else "",
    )  # fmt: skip


def page(calibration: Calibration, name: str, source: str) -> str:
    """The page's text.

    Args:
        calibration: the fitted curves.
        name: the accelerator.
        source: name of the kernels.
    """
    parts = [
        paragraph(
            f"Curves of {name}, fitted to half of the kernels of {source}, chosen by a hash. "
            f"Errors are predicted / measured - 1; those in the table are on the held-out "
            "kernels. before is the median error of the previous description."
        ),
        table([column.removeprefix("?") for column in COLUMNS], map(row, calibration.groups)),
    ]
    for group in calibration.groups:
        parts += _part(group)
    for kind, dtype, count in calibration.left_out:
        parts.append(paragraph(f"{count} kernels of {kind} in {dtype} are too few for a curve."))
    return document(f"Calibration of {name}", parts)


def _part(group: Group) -> list[Markup]:
    curve = group.curve
    errors = [
        (float(predicted) / kernel.seconds - 1, kernel, bool(fitted), float(predicted))
        for kernel, predicted, fitted in zip(
            group.kernels, group.predicted, group.fitted, strict=True
        )
    ]
    worst = sorted(errors, key=lambda entry: -abs(entry[0]))[:_LISTED]
    rows = [
        (
            kernel.op, kernel.shapes, "fitted" if fitted else "held out",
            human_seconds(kernel.seconds), human_seconds(predicted), f"{error:+.1%}",
        )
        for error, kernel, fitted, predicted in worst
    ]  # fmt: skip
    return [
        heading(f"{curve.kernel}, {curve.dtype}"),
        paragraph(
            f"fitted: {_residuals(group.fit)}; held out: {_residuals(group.held_out)}. Memory in "
            f"tiles of {curve.layout[0]} x {curve.layout[1]}, overlap {curve.overlap:g}."
        ),
        _picture([(kernel.seconds, error, fitted) for error, kernel, fitted, _ in errors]),
        key([("fitted", COLOURS[0]), ("held out", COLOURS[1])]),
        heading("Largest errors", 3),
        table(("op", "shapes", "half", ">measured", ">predicted", ">error"), rows),
    ]


def _residuals(errors: Residuals) -> str:
    return (
        f"{errors.count} kernels, median {errors.median:.1%}, 90% within {errors.ninetieth:.1%}, "
        f"largest {errors.largest:+.0%}"
    )


def _picture(points: list[tuple[float, float, bool]]) -> Markup:
    """Errors over measured time, both in logarithms, as SVG."""
    low = math.log10(min(seconds for seconds, _, _ in points))
    high = math.log10(max(seconds for seconds, _, _ in points))
    span, edge = max(high - low, 1e-9), math.log(_EDGE)

    def across(seconds: float) -> float:
        return 40 + (_WIDTH - 60) * (math.log10(seconds) - low) / span

    def down(error: float) -> float:
        share = max(-1.0, min(1.0, math.log(max(1 + error, 1e-9)) / edge))
        return _HEIGHT / 2 - share * (_HEIGHT / 2 - 20)

    lines = [
        Markup(
            '<line x1="40" x2="{}" y1="{:.1f}" y2="{:.1f}" stroke="#ccc"/>'
            '<text x="2" y="{:.1f}" font-size="11">{}</text>'
        ).format(_WIDTH - 20, down(error), down(error), down(error) + 4, f"{error:+.0%}")
        for error in (-0.3, -0.1, 0.0, 0.1, 0.3)
    ]
    dots = [
        Markup('<circle cx="{:.1f}" cy="{:.1f}" r="2" fill="{}" fill-opacity="0.6"/>').format(
            across(seconds), down(error), COLOURS[0 if fitted else 1]
        )
        for seconds, error, fitted in points
    ]
    ends = [
        Markup('<text x="{:.1f}" y="{}" font-size="11" text-anchor="{}">{}</text>').format(
            across(10**end), _HEIGHT - 4, anchor, human_seconds(10**end)
        )
        for end, anchor in ((low, "start"), (high, "end"))
    ]
    return Markup(
        '<svg role="img" aria-label="errors over time" viewBox="0 0 {} {}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, Markup("").join([*lines, *dots, *ends]))
