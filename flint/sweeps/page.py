"""A sweep as one self-contained HTML page: the picture and every point, fastest first.

The idea: columns that are equal for all points, or empty, are left out; a number shows four digits,
and all of them when the mouse points at it.

    write(sweep, rows, Path("sweep.html"), Path("sweep.png"))
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flint.host.pages import Cell, heading, paragraph, picture, table
from flint.host.pages import page as document
from flint.host.readable import human_bytes, human_seconds
from flint.host.writing import replacing_in
from flint.sweeps.description import NO_PASS, Sweep
from flint.sweeps.rows import Row, remark_on_alike, remarks

#: Columns that name a point; shown if points differ in them.
_NAMES: Final = ("step", "mesh", "axes", "ranks", "system", "pass")
#: Columns of figures, and their headings.
_FIGURES: Final = (
    ("step_seconds", "step"),
    ("compute_seconds", "compute"),
    ("exposed_communication_seconds", "exposed"),
    ("peak_memory_bytes", "peak memory"),
    ("mfu", "MFU"),
    ("device_seconds", "device-seconds"),
)


def write(sweep: Sweep, rows: Sequence[Row], path: Path, image: Path | None) -> None:
    """Write the page; without an image, only the table.

    Raises:
        FlintError: the disk fails.
    """
    with replacing_in(path.parent, path.name) as partial:
        partial.write_text(page(sweep, rows, image), encoding="utf-8")


def page(sweep: Sweep, rows: Sequence[Row], image: Path | None) -> str:
    """The page's text."""
    title = f"Sweep of {sweep.step}"
    names = [name for name in _NAMES if name == "mesh" or len({row[name] for row in rows}) > 1]
    good = sorted(
        (row for row in rows if row["error"] is None), key=lambda row: float(row["step_seconds"])
    )
    failed = [row for row in rows if row["error"] is not None]
    sentences = [
        f"{len(good):,} of {len(rows):,} points simulated",
        f"{sweep.granularity} granularity",
        f"simulated with {' '.join(sweep.simulation)}"
        if sweep.simulation
        else f"collectives: {sweep.algorithm or 'the cheapest algorithm'}",
        *(f"{name}: {rows[0][name]}" for name in _NAMES if rows and _constant(name, names, rows)),
    ]
    parts = [
        heading(title, 1),
        paragraph(
            f"{'; '.join(sentences)}. Coloured rows are the best points: they fit into memory, and "
            "no other point is better in step time, peak memory and device-seconds at the same "
            "time. Exposed: communication while nothing is computed."
        ),
    ]
    if not sweep.simulation:
        parts += [paragraph(f"Note: {note}.") for note in remarks(rows)]
    parts += [paragraph(f"Note: {note}.") for note in remark_on_alike(rows)]
    if image is not None:
        parts.append(picture("step time against peak memory and device-seconds", image))
    cells: list[list[object]] = [[*_named(row, names), *_figures(row)] for row in good]
    cells += [
        [*_named(row, names), Cell(row["error"], "why", span=len(_FIGURES))] for row in failed
    ]
    kinds = ["best" if row["pareto"] else "" for row in (*good, *failed)]
    parts.append(table([*names, *(f">{label}" for _, label in _FIGURES)], cells, kinds))
    return document(title, parts)


def _constant(name: str, shown: Sequence[str], rows: Sequence[Row]) -> bool:
    """Whether a column is the same for all points and neither in the table nor in the title."""
    return name not in shown and name != "step" and rows[0][name] is not None


def _named(row: Row, names: Sequence[str]) -> list[Cell]:
    missing = {"pass": NO_PASS}
    return [Cell(row[name] or missing.get(name, ""), "p") for name in names]


def _figures(row: Row) -> list[Cell]:
    cells = []
    for column, _ in _FIGURES:
        over = column == "peak_memory_bytes" and not row["fits"]
        shown = _shown(column, float(row[column])) + (" (too much)" if over else "")
        cells.append(Cell(shown, "n over" if over else "n", title=str(row[column])))
    return cells


def _shown(column: str, value: float) -> str:
    """A figure with its unit."""
    if column == "mfu":
        return f"{100 * value:.1f}%"
    if column == "peak_memory_bytes":
        return human_bytes(value)
    if column == "device_seconds":
        return f"{value:.4g}"
    return human_seconds(value)
