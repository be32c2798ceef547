"""Ragged columns: tables whose rows differ in length, as arithmetic on whole columns (CSR).

>>> segments(np.array([10, 20]), np.array([2, 3]))
array([10, 11, 20, 21, 22])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def segments(start: Ints, length: Ints) -> Ints:
    """``start[i] .. start[i] + length[i] - 1`` for every i, one after another."""
    ends = np.cumsum(length)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(start - ends + length, length)


def pointer(counts: Ints) -> Ints:
    """CSR pointer of rows of ``counts`` entries, shape [rows + 1]."""
    ptr = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr


def row_of_entry(ptr: Ints) -> Ints:
    """The row of each entry of a CSR table, shape [entries]."""
    return np.repeat(np.arange(len(ptr) - 1, dtype=np.int64), np.diff(ptr))


def total_by_row(values: Ints, row: Ints, rows: int) -> Ints:
    """Sum of ``values`` over the entries of each row, exact in int64, shape [rows]."""
    total = np.zeros(rows, dtype=np.int64)
    np.add.at(total, row, values)
    return total


def spread(parts: Sequence[Sequence[int]], row: Ints) -> tuple[Ints, Ints]:
    """CSR pointer and entries of nodes whose entries are those of part ``row[node]``."""
    lengths = np.array([len(part) for part in parts], np.int64)
    starts = np.cumsum(lengths) - lengths
    counts = lengths[row]
    ptr = pointer(counts)
    place = np.arange(ptr[-1]) + np.repeat(starts[row] - ptr[:-1], counts)
    return ptr, np.array([entry for part in parts for entry in part], np.int64)[place]
