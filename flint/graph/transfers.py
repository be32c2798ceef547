"""Copies between the device's memory and the host's, which are separate ops in a graph.

JAX's have XLA's names; PyTorch's have those of the copying ops, with the direction in place of the
overload (``aten.copy_.to_host``).

transfers(graph)        # -1 of a copy to the host, 1 of one back, else 0
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph

#: XLA's names for them.
TO_HOST: Final = "MoveToHost"
TO_DEVICE: Final = "MoveToDevice"

#: PyTorch's ops that may copy from one memory to the other, and the directions.
COPIES: Final = ("aten._to_copy", "aten.copy_")
HOST_WAY: Final = "to_host"
DEVICE_WAY: Final = "to_device"

_WAYS: Final = {
    TO_HOST: -1,
    TO_DEVICE: 1,
    **{f"{name}.{HOST_WAY}": -1 for name in COPIES},
    **{f"{name}.{DEVICE_WAY}": 1 for name in COPIES},
}


def is_transfer(name: str) -> bool:
    """Whether an op of this name is such a copy."""
    return name in _WAYS


def has_transfers(graph: WorkloadGraph) -> bool:
    """Whether the graph or a body below it may have such copies."""
    return not _WAYS.keys().isdisjoint(graph.tables.ops)


def transfers(graph: WorkloadGraph) -> NDArray[np.int8]:
    """-1 of nodes that take a value to the host, 1 back to the device, else 0; shape [nodes]."""
    codes = np.array([*(_WAYS.get(name, 0) for name in graph.tables.ops), 0], np.int8)
    found: NDArray[np.int8] = np.where(graph.kind == NodeKind.COMPUTE, codes[graph.op], 0)
    return found.astype(np.int8)
