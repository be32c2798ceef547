"""What ops do with memory, by storage and byte.

The idea: an execution trace says of each op which parts of which storages its tensors are.  A
tensor whose strides the trace does not have is taken as its whole storage, and those whose storages
it does not have as one: an edge too many, never one too few.

    Access(storage=7, low=0, high=64, read=True, written=False, kind=TensorType((16,), "f32", 64),
           taken=64)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flint.graph.tensor_types import TensorType
from flint.mesh.ragged import Ints

#: Past the last byte of a tensor whose strides are not known.
EVERYTHING = 1 << 62
#: Storage of all tensors whose storages the trace does not tell (sparse ones).
HIDDEN = -1


class Access(NamedTuple):
    """One tensor of an op.

    Attributes:
        storage: number of its storage.
        low, high: first byte and past the last one; of everything where strides are not known.
        read: whether the op comes after those that wrote it.
        written: whether it writes it.
        kind: its type.
        taken: bytes that it reads of it.
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
    """What the ops of an execution trace do with memory.

    Attributes:
        record: the profiler's number of each op, which Kineto has too; shape [rows].
        names: of each op; shape [rows].
        tensors: per row its tensors.
        groups: process group's name -> ranks.
    """

    record: Ints
    names: list[str]
    tensors: list[tuple[Access, ...]]
    groups: dict[str, tuple[int, ...]]


def reach_of(shape: tuple[int, ...] | None, strides: object) -> int | None:
    """From a tensor's first element in its storage to its last one, in elements.

    None where it is not known, or its strides are not as PyTorch has them; also of no elements,
    which have no first one.

    Args:
        shape: None where the trace does not have it.
        strides: as the trace has them.
    """
    if shape is None or not isinstance(strides, list) or len(shape) != len(strides):
        return None
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return None
    if any(extent < 1 for extent in shape):
        return None
    steps: list[int] = strides
    return sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
