"""Decodes a file that differs from another one in a few bytes, like the ranks of one program.

The idea: ranks of an SPMD program differ in a few peers and group names, at the same places of
files of the same length.  Comparing bytes is far cheaper than decoding them, so only nodes with
changed bytes are decoded; other rows, and unchanged columns, are shared with the known file.

    known = known_file(first_data, starts, ends, first_trace)
    trace = decode_similar(known, second_data, "trace.1.et")     # None if too different
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.read.fast import decode_plain
from flint.converters.chakra.read.trace import INT_ATTRIBUTES, Csr, Trace
from flint.graph.distinct import distinct
from flint.mesh.ragged import segments


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A decoded file: its bytes, the offsets of its nodes and its columns."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    trace: Trace


def known_file(data: bytes, starts: list[int], ends: list[int], trace: Trace) -> KnownFile:
    """Remember a file; `starts` and `ends` are those of its nodes."""
    return KnownFile(
        np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64), trace
    )


def decode_similar(known: KnownFile, data: bytes, path: str) -> tuple[Trace, int] | None:
    """The columns of `data` as from a full decode, and how many nodes were decoded for it.

    None if a full decode is needed.
    """
    if len(data) != len(known.data) or not len(known.starts):
        return None
    changed = np.flatnonzero(known.data != np.frombuffer(data, np.uint8))
    inside = np.searchsorted(known.starts, changed, side="right") - 1
    if np.any(inside < 0) or np.any(changed >= known.ends[inside]):
        return None  # the metadata or the length of a record has changed
    rows = distinct(inside)
    if 2 * len(rows) > len(known.starts):
        return None
    starts, ends = known.starts[rows].tolist(), known.ends[rows].tolist()
    part = decode_plain(data, starts, ends, path, known.trace.version)
    if part is None or known.trace.repeated:
        return None
    merged = _merged(known.trace, part, rows, path)
    return None if merged is None else (merged, len(rows))


def _merged(base: Trace, part: Trace, rows: NDArray[np.int64], path: str) -> Trace | None:
    for ours, theirs in ((base.data_deps, part.data_deps), (base.ctrl_deps, part.ctrl_deps)):
        if not _same_lists(ours, theirs, rows):
            return None
    changes: dict[str, Any] = {"path": path}
    for index, values in (
        ("name", "names"), ("pg_name", "pg_names"), ("involved_dim", "involved_dims"),
    ):  # fmt: skip
        changes[index], changes[values] = _table(
            getattr(base, index), getattr(base, values), getattr(part, index),
            getattr(part, values), rows,
        )  # fmt: skip
    for name in ("id", "type", "duration", *INT_ATTRIBUTES):
        changes[name] = _column(getattr(base, name), getattr(part, name), rows)
    changes["field"] = {
        name: _column(used, part.field[name], rows) for name, used in base.field.items()
    }
    return replace(base, **changes)


def _same_lists(base: Csr, part: Csr, rows: NDArray[np.int64]) -> bool:
    length = np.diff(part.start)
    if not np.array_equal(np.diff(base.start)[rows], length):
        return False
    return np.array_equal(base.ids[segments(base.start[rows], length)], part.ids)


def _column(base: Any, part: Any, rows: NDArray[np.int64]) -> Any:
    if np.array_equal(base[rows], part):
        return base
    merged = base.copy()
    merged[rows] = part
    return merged


def _table(
    base: NDArray[np.int32],
    base_values: tuple[Any, ...],
    part: NDArray[np.int32],
    part_values: tuple[Any, ...],
    rows: NDArray[np.int64],
) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
    """Merge indices into tables of distinct values, numbered by first appearance again."""
    known = {value: index for index, value in enumerate(base_values)}
    translate = [known.setdefault(value, len(known)) for value in part_values]
    renumbered = np.array([*translate, -1], np.int32)[part]
    if np.array_equal(base[rows], renumbered):
        return base, base_values
    merged = base.copy()
    merged[rows] = renumbered
    present, first = np.unique(merged, return_index=True)
    by_appearance = present[present >= 0][np.argsort(first[present >= 0])]
    order = np.full(len(known) + 1, -1, np.int32)
    order[by_appearance] = np.arange(len(by_appearance), dtype=np.int32)
    values = list(known)
    return order[merged], tuple(values[index] for index in by_appearance.tolist())
