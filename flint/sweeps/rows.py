"""Results of a sweep as rows: CSV, JSON, and which points are best.

The idea: one flat row per point, always with the same keys; a failed point has its reason and no
numbers.

    rows = to_rows(outcomes)
    rows[0]["step_seconds"], rows[0]["pareto"], rows[1]["error"]
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from flint.cost.uncertainty import apart
from flint.host.writing import replacing_in
from flint.sweeps.description import NO_PASS, Sweep
from flint.sweeps.running import FIGURES, Outcome

Row = dict[str, Any]

#: Not the digits of a name, as in H100.
_NUMBER: Final = re.compile(r"(?<![\w.])\d[\d.,]*")

#: Columns of which less is better.
OBJECTIVES = ("step_seconds", "peak_memory_bytes", "device_seconds")
COLUMNS = (
    "step", "mesh", "axes", "ranks", "system", "pass", *FIGURES, "range_share", "device_seconds",
    "pareto",
    "workload", "notes", "error",
)  # fmt: skip


def to_rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """One row per outcome, in their order.

    ``device_seconds`` is what a step costs: its seconds times the ranks.  ``pareto``: it fits, and
    no point that fits is at least as good in step time, peak memory and device-seconds and better
    in one of them.  ``workload`` is the folder for ``flint simulate``, ``notes`` are its notes.
    """
    rows = [_row(outcome) for outcome in outcomes]
    for row in _best(rows, OBJECTIVES):
        row["pareto"] = True
    return rows


def _row(outcome: Outcome) -> Row:
    point, result = outcome.point, outcome.result
    row: Row = dict.fromkeys(COLUMNS)
    row |= {
        "step": point.step,
        "mesh": point.mesh_text,
        "axes": point.axes,
        "ranks": point.mesh.size,
        "system": point.system_name,
        "pass": "+".join(point.passes) or None,
        "error": outcome.reason,
    }
    if result is not None:
        row |= {name: result[name] for name in FIGURES}
        row["range_share"] = _share(result)
        row["device_seconds"] = result["step_seconds"] * point.mesh.size
        row["pareto"] = False
        row["workload"] = str(point.workload)
        row["notes"] = list(result["notes"] or ())
    return row


def _share(result: dict[str, Any]) -> float | None:
    """Half the range of a result's times; None if it has none."""
    stated = result.get("range")
    share = stated.get("share") if isinstance(stated, dict) else None
    return float(share) if isinstance(share, int | float) and 0 <= share < math.inf else None


def _best(rows: Sequence[Row], objectives: Sequence[str]) -> list[Row]:
    """The rows that fit and that no other beats, sorted by the objectives.

    A row that beats another comes before it in this order, and is one of the best or beaten by one.
    """
    fitting = [row for row in rows if row["error"] is None and row["fits"]]
    best: list[Row] = []
    for row in sorted(fitting, key=lambda row: [row[name] for name in objectives]):
        if not any(_beats(other, row, objectives) for other in best):
            best.append(row)
    return best


def _beats(one: Row, other: Row, objectives: Sequence[str]) -> bool:
    pairs = [(one[name], other[name]) for name in objectives]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def front(rows: Sequence[Row], across: str, up: str) -> list[Row]:
    """The rows that fit and that no other beats in two columns, sorted by the first."""
    return _best(rows, (across, up))


def remarks(rows: Sequence[Row]) -> list[str]:
    """The notes of points, with what distinguishes their points from others.  Of notes that differ
    in numbers only there is the first, which says so.

    The point's name already shows which passes were applied.
    """
    good = [row for row in rows if row["error"] is None]
    noted: dict[str, dict[str, list[Row]]] = {}
    for row in good:
        for note in row["notes"] or ():
            if not note.startswith("after pass "):
                alike = noted.setdefault(_NUMBER.sub("0", note), {})
                alike.setdefault(note, []).append(row)
    return [_remark(alike, good) for alike in noted.values()]


def _remark(alike: dict[str, list[Row]], good: Sequence[Row]) -> str:
    """Notes that differ in numbers only, as one, and their points."""
    note, *others = alike
    some = [row for row in good if any(row in rows for rows in alike.values())]
    more = f"; so at {len(some)} points, with other numbers" if others else ""
    return note + more + _whose(some, good)


def alike(rows: Sequence[Row]) -> list[Row]:
    """The points that cannot be distinguished from the fastest, which is first.

    Points on one system share most of their error (``flint.cost.uncertainty.apart``); points on two
    do not: they are distinguishable if they differ by more than both ranges together.  Only points
    that fit; empty if there is no other, or if times have no ranges.
    """
    fitting = [row for row in rows if row["error"] is None and row["fits"]]
    fitting.sort(key=lambda row: float(row["step_seconds"]))
    close = [row for row in fitting if row is fitting[0] or _alike(fitting[0], row)]
    return close if len(close) > 1 else []


def _alike(fastest: Row, row: Row) -> bool:
    shares = [fastest["range_share"], row["range_share"]]
    if None in shares:
        return False
    if row["system"] == fastest["system"]:
        return not apart(fastest["step_seconds"], row["step_seconds"])
    return bool(row["step_seconds"] <= fastest["step_seconds"] * (1 + math.hypot(*shares)))


def remark_on_alike(rows: Sequence[Row]) -> list[str]:
    """One line on points that cannot be distinguished from the fastest."""
    close = alike(rows)
    if not close:
        return []
    fastest, *others = (_name(row, rows) for row in close)
    return [
        f"{', '.join(others)} cannot be distinguished from the fastest, {fastest}: errors of "
        "blind runs differ by more than these times (docs/accuracy.md)"
    ]


def _name(row: Row, rows: Sequence[Row]) -> str:
    """What distinguishes a point from the others."""
    varying = [
        name for name in ("step", "mesh", "system", "pass") if len({r[name] for r in rows}) > 1
    ]
    return " ".join(str(row[name] or NO_PASS) for name in varying or ("mesh",))


def _whose(some: Sequence[Row], every: Sequence[Row]) -> str:
    differing = []
    for name in ("step", "mesh", "system", "pass"):
        values = dict.fromkeys(row[name] or NO_PASS for row in some)
        if len(values) < len({row[name] for row in every}):
            differing.append(f"{name} {', '.join(values)}")
    return f" ({'; '.join(differing)})" if differing else ""


def document(sweep: Sweep, rows: Sequence[Row]) -> dict[str, Any]:
    """The sweep and its rows as a JSON document."""
    return {
        "steps": list(sweep.steps),
        "program": list(sweep.program),
        "setup": sweep.setup,
        "capture": list(sweep.capture),
        "granularity": sweep.granularity,
        "algorithm": sweep.algorithm,
        "simulation": list(sweep.simulation),
        "alike": [rows.index(row) for row in alike(rows)],
        "rows": list(rows),
    }


def write(sweep: Sweep, rows: Sequence[Row]) -> None:
    """Write ``results.json`` and ``results.csv`` into the sweep's folder.

    Raises:
        FlintError: the disk fails.
    """
    with replacing_in(sweep.folder, "results.json") as partial:
        partial.write_text(json.dumps(document(sweep, rows), indent=1) + "\n")
    with replacing_in(sweep.folder, "results.csv") as partial:
        _write_csv(partial, rows)


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(row | {"notes": "; ".join(row["notes"] or ())} for row in rows)
