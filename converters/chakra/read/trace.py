"""One rank's execution trace as numpy columns.

The idea: a row per node and a column per field, so that rules run over whole files at once.  For
each attribute that consumers read there are two columns: its value and the number of the field that
held it (0 = absent), because a value in the wrong field is read as 0 by some consumers.

    trace = read_trace(Path("trace.0.et"))
    big = trace.id[(trace.type == NodeType.COLL) & (trace.comm_size > 1 << 30)]
    trace.field["comm_size"][0] == ValueField.INT64
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

INT_ATTRIBUTES = (
    "is_cpu_op",
    "comm_type",
    "comm_size",
    "comm_priority",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "num_ops",
    "tensor_size",
)
"""Attributes with a column of integers in `Trace`, under the same name."""


@dataclass(frozen=True, slots=True)
class Csr:
    """Lists of node ids, one per node: those of row i are `ids[start[i]:start[i + 1]]`.

    Attributes:
        start: int64, one more than there are rows.
        ids: uint64, parent node ids as written in the file.
    """

    start: NDArray[np.int64]
    ids: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Trace:
    """The columns of one file; every array has one entry per node, in file order.

    Attributes:
        path: the file that was read (the first of several with the same content).
        version: `GlobalMetadata.version`.
        offset: int64, where the node's record begins in the (unpacked) file, in bytes.
        id: uint64.
        type: int32, a `NodeType` if the file is sound.
        duration: uint64, microseconds.
        name: int32, index into `names`.
        names: distinct node names.
        data_deps, ctrl_deps: parents.
        is_cpu_op ... tensor_size: int64, 0 where absent (a uint64 above 2**63 appears negative).
        pg_name: int32, index into `pg_names`, -1 where absent.
        pg_names: distinct values of pg_name.
        involved_dim: int32, index into `involved_dims`, -1 where absent.
        involved_dims: distinct values of involved_dim.
        field: attribute name -> uint8, the `ValueField` that held the value, 0 where absent.
        repeated: attribute name -> indices of nodes that carry it more than once (usually empty).
    """

    path: str
    version: str
    offset: NDArray[np.int64]
    id: NDArray[np.uint64]
    type: NDArray[np.int32]
    duration: NDArray[np.uint64]
    name: NDArray[np.int32]
    names: tuple[str, ...]
    data_deps: Csr
    ctrl_deps: Csr
    is_cpu_op: NDArray[np.int64]
    comm_type: NDArray[np.int64]
    comm_size: NDArray[np.int64]
    comm_priority: NDArray[np.int64]
    comm_src: NDArray[np.int64]
    comm_dst: NDArray[np.int64]
    comm_tag: NDArray[np.int64]
    num_ops: NDArray[np.int64]
    tensor_size: NDArray[np.int64]
    pg_name: NDArray[np.int32]
    pg_names: tuple[str, ...]
    involved_dim: NDArray[np.int32]
    involved_dims: tuple[tuple[bool, ...], ...]
    field: Mapping[str, NDArray[np.uint8]]
    repeated: Mapping[str, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.id)
