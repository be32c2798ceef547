"""Memory accesses of ops, by storage and byte.

The idea: an execution trace records which parts of which storages an op's tensors are.  A tensor
without recorded strides counts as its whole storage, and tensors without recorded storages as one
storage: there may be too many edges, never too few.

    Access(storage=7, low=0, high=64, read=True, written=False, kind=TensorType((16,), "f32", 64),
           taken=64)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flint.graph.tensor_types import TensorType
from flint.mesh.ragged import Ints

#: End of a tensor with unknown strides.
EVERYTHING = 1 << 62
#: Storage of all tensors without a recorded storage (sparse ones).
HIDDEN = -1


class Access(NamedTuple):
    """One tensor of an op.

    Attributes:
        storage: number of its storage.
        low, high: first byte and past the last one; everything if strides are unknown.
        read: whether the op waits for those that wrote it.
        written: whether it writes it.
        kind: its type.
        taken: bytes that it reads from it.
    """

    storage: int
    low: int
    high: int
    read: bool
    written: bool
    kind: TensorType
    taken: int


@dataclass(frozen=True, eq=False)
class Accesses:
    """Memory accesses of the ops of an execution trace.

    Attributes:
        record: the profiler's number of each op, which Kineto also has; shape [rows].
        names: name of each op; shape [rows].
        tensors: the tensors of each row.
        groups: process group's name -> ranks.
    """

    record: Ints
    names: list[str]
    tensors: list[tuple[Access, ...]]
    groups: dict[str, tuple[int, ...]]


def reach_of(shape: tuple[int, ...] | None, strides: object) -> int | None:
    """Distance from a tensor's first element in its storage to its last one, in elements.

    None if unknown, or if its strides are not valid in PyTorch; also for empty tensors.

    Args:
        shape: None if not recorded.
        strides: as recorded.
    """
    if shape is None or not isinstance(strides, list) or len(shape) != len(strides):
        return None
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return None
    if any(extent < 1 for extent in shape):
        return None
    steps: list[int] = strides
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
