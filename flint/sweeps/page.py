"""A sweep as one HTML page that needs nothing else: the picture and every row.

write(sweep, rows, Path("sweep.html"), Path("sweep.png"))
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from flint.sweeps.points import Sweep
from flint.sweeps.rows import COLUMNS, Row
from flint.writing import replacing

_STYLE = (
    "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse;font-size:85%}"
    "td,th{border:1px solid #ccc;padding:.2em .5em;text-align:right}img{max-width:100%}"
)


def write(sweep: Sweep, rows: Sequence[Row], path: Path, image: Path | None) -> None:
    """Write the page; without an image it is the table alone.

    Raises:
        FlintError: the disk fails.
    """
    title = escape(f"Sweep of {sweep.step}")
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{escape(sweep.granularity)} granularity, collectives: "
        f"{escape(sweep.algorithm or 'the cheapest algorithm')}. Seconds, bytes and FLOPs; pareto: "
        "it fits, and nothing is better in step time, peak memory and device-seconds.</p>",
    ]
    if image is not None:
        data = base64.b64encode(image.read_bytes()).decode()
        parts.append(
            '<img alt="step time against peak memory and device-seconds" '
            f'src="data:image/png;base64,{data}">'
        )
    parts.append(f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in COLUMNS)}</tr>")
    for row in rows:
        cells = "".join(f"<td>{escape(_text(row[name]))}</td>" for name in COLUMNS)
        parts.append(f"<tr>{cells}</tr>")
    with replacing(path) as partial:
        partial.write_text("\n".join([*parts, "</table></body></html>\n"]), encoding="utf-8")


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
