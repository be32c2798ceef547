"""A picture of a sweep: step time against memory and against cost, with the best points marked.

draw(rows, Path("sweep.png")) # False if matplotlib is not installed
"""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flint.host.readable import bytes_unit, seconds_unit
from flint.host.writing import replacing_in
from flint.sweeps.rows import Row, front

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Column, axis label, and the function that chooses its unit.
_PANELS: Final[tuple[tuple[str, str, Callable[[float], tuple[float, str]]], ...]] = (
    ("peak_memory_bytes", "peak memory per rank", bytes_unit),
    ("device_seconds", "device time of a step", seconds_unit),
)
#: The most labels; more would hide each other.
_LABELS = 40
#: An axis is logarithmic if the largest value is at least this many times the smallest.
_DECADE = 10


_loading: threading.Thread | None = None


def prepare() -> None:
    """Import matplotlib and find its fonts while points are computed; ``draw`` waits for it."""
    global _loading
    if _loading is None and find_spec("matplotlib") is not None:
        _loading = threading.Thread(target=_load, daemon=True)
        _loading.start()


def _load() -> None:
    with contextlib.suppress(ImportError):  # ``draw`` raises it again
        _draw_nothing()


def _draw_nothing() -> None:
    figure = _empty()
    figure.subplots().set(xscale="log", xlim=(1, 100))
    figure.savefig(io.BytesIO(), format="png")


def _empty() -> Figure:
    """A figure for two panels; placed by hand, because a layout engine draws everything twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5))
    figure.subplots_adjust(left=0.07, right=0.985, bottom=0.11, top=0.94, wspace=0.2)
    FigureCanvasAgg(figure)
    return figure


def draw(rows: Sequence[Row], path: Path) -> bool:
    """Draw the points that were simulated; hollow ones do not fit, the best are ringed.

    Returns:
        Whether it was drawn: matplotlib is installed, and there is a point.
    """
    good = [row for row in rows if row["error"] is None]
    if not good or find_spec("matplotlib") is None:
        return False
    if _loading is not None:
        _loading.join()
    try:
        figure = _empty()
    except ImportError:
        return False
    step_size, step_unit = seconds_unit(max(row["step_seconds"] for row in good))
    for panel, (column, label, unit_of) in zip(figure.subplots(1, 2), _PANELS, strict=True):
        unit, unit_name = unit_of(max(row[column] for row in good))
        for number, system in enumerate(dict.fromkeys(row["system"] for row in good)):
            colour = f"C{number % 10}"
            for fits in (True, False):
                chosen = [r for r in good if r["system"] == system and bool(r["fits"]) is fits]
                if chosen:
                    panel.scatter(
                        [row["step_seconds"] / step_size for row in chosen],
                        [row[column] / unit for row in chosen],
                        edgecolors=colour,
                        facecolors=colour if fits else "none",
                        label=system if fits else f"{system}, does not fit",
                    )
        best = front(good, "step_seconds", column)
        panel.plot(
            [row["step_seconds"] / step_size for row in best],
            [row[column] / unit for row in best],
            color="grey", linewidth=1, zorder=0, label="no other point is better in both figures",
            marker="o", markersize=10, fillstyle="none",  # one point alone makes no line
        )  # fmt: skip
        labelled = sorted(
            good if len(good) <= _LABELS else best[:_LABELS],
            key=lambda row: float(row["step_seconds"]),
        )
        for number, row in enumerate(labelled):
            # Names of neighbours are on different sides.
            panel.annotate(
                row["mesh"], (row["step_seconds"] / step_size, row[column] / unit), fontsize=8,
                xytext=(0, 6 if number % 2 else -13), textcoords="offset points", ha="center",
            )  # fmt: skip
        for axis, values in (
            ("x", [row["step_seconds"] for row in good]),
            ("y", [row[column] for row in good]),
        ):
            if max(values) > _DECADE * min(values) > 0:
                panel.set(**{f"{axis}scale": "log"})
        panel.margins(0.1)
        panel.set(xlabel=f"step ({step_unit})", ylabel=f"{label} ({unit_name})")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    with replacing_in(path.parent, path.name) as partial:
        figure.savefig(partial, format="png", dpi=120, pil_kwargs={"compress_level": 1})
    return True
