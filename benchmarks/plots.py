"""Growth as a plot: one panel per series, both scales logarithmic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Results = dict[str, Any]

#: Columns that are no seconds.
_OTHER = ("peak", "bytes")


def plot(growth: dict[str, Results], path: Path) -> None:
    """Draw all series into a PNG; a dotted line shows proportional growth."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    rows = -(-len(growth) // 2)
    figure, grid = pyplot.subplots(rows, 2, figsize=(9, 3.2 * rows))
    for panel, item in zip(grid.flat, growth.values(), strict=True):
        sizes = item["sizes"]
        for name, values in item["columns"].items():
            if name in _OTHER:
                continue
            exponent = item["last_exponents"][name]
            label = f"{name}, at the end size^{exponent:.2f}"
            panel.loglog(sizes, values, "o-", markersize=4, label=label)
        low, high = panel.get_ylim()
        top = max(value for key, v in item["columns"].items() if key not in _OTHER for value in v)
        line = [top * size / sizes[-1] for size in sizes]
        panel.loglog(sizes, line, ":", color="gray", linewidth=1, label="proportional")
        panel.set_ylim(low / 1.3, high * 2.2)
        panel.set_xticks(sizes, [_short(size) for size in sizes])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.set_xlabel(item["axis"])
        panel.set_ylabel("seconds")
        panel.grid(True, which="major", linewidth=0.3)
        panel.legend(fontsize=7.5, loc="upper left", framealpha=0.9)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _short(size: int) -> str:
    """A number of at most four characters or so: 64, 4.1k, 262k, 1.0M."""
    for limit, unit in ((1_000_000, "M"), (1000, "k")):
        if size >= limit:
            number = size / limit
            return f"{number:.1f}{unit}" if number < 10 else f"{number:.0f}{unit}"
    return str(size)
