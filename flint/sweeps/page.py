"""A sweep as one HTML page that needs nothing else: the picture and every point, fastest first.

The idea: columns that say the same of all points, or nothing, are left out; a number shows four
digits, and all of them when it is pointed at.

    write(sweep, rows, Path("sweep.html"), Path("sweep.png"))
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from flint.host.readable import human_bytes, human_seconds
from flint.host.writing import replacing
from flint.sweeps.description import NO_PASS, Sweep
from flint.sweeps.rows import Row, remarks

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em;
  color: #1b1b1b; background: #fff; }
h1 { font-size: 1.5em; } img { max-width: 100%; }
table { border-collapse: collapse; font-size: .92em; }
th, td { padding: .25em .8em; text-align: left; border-bottom: 1px solid #ddd; }
th.n, td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.p { white-space: nowrap; }
tr.best td { background: #e8f4ec; } td.over { color: #a40000; font-weight: 600; }
td.why { color: #a40000; overflow-wrap: anywhere; }
"""
#: Columns that name a point; shown where points differ in them.
_NAMES: Final = ("step", "mesh", "axes", "ranks", "system", "pass")
#: Columns of figures, and what they are called.
_FIGURES: Final = (
    ("step_seconds", "step"),
    ("compute_seconds", "compute"),
    ("exposed_communication_seconds", "exposed"),
    ("peak_memory_bytes", "peak memory"),
    ("mfu", "MFU"),
    ("device_seconds", "device-seconds"),
)


def write(sweep: Sweep, rows: Sequence[Row], path: Path, image: Path | None) -> None:
    """Write the page; without an image it is the table alone.

    Raises:
        FlintError: the disk fails.
    """
    with replacing(path) as partial:
        partial.write_text(page(sweep, rows, image), encoding="utf-8")


def page(sweep: Sweep, rows: Sequence[Row], image: Path | None) -> str:
    """The page's text."""
    title = escape(f"Sweep of {sweep.step}")
    names = [name for name in _NAMES if name == "mesh" or len({row[name] for row in rows}) > 1]
    good = sorted(
        (row for row in rows if row["error"] is None), key=lambda row: float(row["step_seconds"])
    )
    failed = [row for row in rows if row["error"] is not None]
    said = [
        f"{len(good):,} of {len(rows):,} points simulated",
        f"{sweep.granularity} granularity",
        f"simulated with {' '.join(sweep.simulation)}"
        if sweep.simulation
        else f"collectives: {sweep.algorithm or 'the cheapest algorithm'}",
        *(f"{name}: {rows[0][name]}" for name in _NAMES if rows and _constant(name, names, rows)),
    ]
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">",
        f"<title>{title}</title>\n<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{escape('; '.join(said))}. Coloured rows are the best points: they fit into memory, "
        "and no other point is better in step time, peak memory and device-seconds at once. "
        "Exposed: communication while nothing is computed.</p>",
    ]
    if not sweep.simulation:
        parts += [f"<p>Note: {escape(note)}.</p>" for note in remarks(rows)]
    if image is not None:
        data = base64.b64encode(image.read_bytes()).decode()
        parts.append(
            '<img alt="step time against peak memory and device-seconds" '
            f'src="data:image/png;base64,{data}">'
        )
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    head += "".join(f'<th class="n">{escape(label)}</th>' for _, label in _FIGURES)
    parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
    parts += [_good(row, names) for row in good]
    parts += [
        f'<tr>{_named(row, names)}<td class="why" colspan="{len(_FIGURES)}">'
        f"{escape(str(row['error']))}</td></tr>"
        for row in failed
    ]
    return "\n".join([*parts, "</tbody></table></body></html>\n"])


def _constant(name: str, shown: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether a column is the same for all points and not in the table or the title."""
    return name not in shown and name != "step" and rows[0][name] is not None


def _named(row: Row, names: Sequence[str]) -> str:
    missing = {"pass": NO_PASS}
    cells = (escape(str(row[name] or missing.get(name, ""))) for name in names)
    return "".join(f'<td class="p">{cell}</td>' for cell in cells)


def _good(row: Row, names: Sequence[str]) -> str:
    cells = []
    for column, _ in _FIGURES:
        over = column == "peak_memory_bytes" and not row["fits"]
        kind = "n over" if over else "n"
        shown = _shown(column, float(row[column])) + (" (too much)" if over else "")
        cells.append(f'<td class="{kind}" title="{escape(str(row[column]))}">{escape(shown)}</td>')
    best = ' class="best"' if row["pareto"] else ""
    return f"<tr{best}>{_named(row, names)}{''.join(cells)}</tr>"


def _shown(column: str, value: float) -> str:
    """A figure with its unit."""
    if column == "mfu":
        return f"{100 * value:.1f}%"
    if column == "peak_memory_bytes":
        return human_bytes(value)
    if column == "device_seconds":
        return f"{value:.4g}"
    return human_seconds(value)
