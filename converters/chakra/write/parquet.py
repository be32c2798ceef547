"""Columns as a Parquet file, one row group per addition, in memory.

The idea: numbers are written unchanged, texts as an index into distinct ones (dictionary columns).
Of the modules that write traces, only this one imports pyarrow: that takes longer than writing a
small program's traces (see ``parquet_process``).

    file = ParquetFile()
    file.add({"node": (np.arange(3), None), "op": (np.array([0, 1, 0]), ["dot", "add"])})
    file.content()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

#: Numbers, or an index into texts and these.
Column: TypeAlias = tuple[NDArray[np.signedinteger[Any]], list[str] | None]


class ParquetFile:
    """Collects row groups of the same columns."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, Column]) -> None:
        """Append a row group.

        Args:
            columns: by name, all of one length, in the order and of the types of the first ones.
        """
        arrays = [_array(*column) for column in columns.values()]
        table = pa.Table.from_arrays(arrays, names=list(columns))
        if self._writer is None:
            texts = [name for name, column in columns.items() if column[1] is not None]
            self._writer = pq.ParquetWriter(
                self._sink,
                table.schema,
                compression="zstd",
                use_dictionary=texts,
                # Most numbers are counters: a dictionary of them would be larger than the numbers.
                column_encoding={
                    name: "DELTA_BINARY_PACKED" for name in columns if name not in texts
                },
            )
        self._writer.write_table(table)

    def content(self) -> memoryview:
        """The finished file; empty if nothing was added."""
        if self._writer is not None:
            self._writer.close()
        return memoryview(self._sink.getvalue())


def warm_up() -> None:
    """Write an unused file: the first one of a process takes longer than the next."""
    file = ParquetFile()
    file.add({"number": (np.arange(1), None), "text": (np.zeros(1, np.int32), [""])})
    file.content()


def _array(values: NDArray[np.signedinteger[Any]], texts: list[str] | None) -> pa.Array:
    if texts is None:
        return _numbers(values)
    return pa.DictionaryArray.from_arrays(_numbers(values.astype(np.int32)), _texts(texts))


def _numbers(values: NDArray[np.signedinteger[Any]]) -> pa.Array:
    """An Arrow array over numpy's memory (``pa.array`` would import pandas where it can)."""
    values = np.ascontiguousarray(values)
    kind = pa.int32() if values.dtype == np.int32 else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _texts(values: list[str]) -> pa.Array:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)
