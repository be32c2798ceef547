"""Byte counts that many rules share.

The idea: there are few patterns of what an op reads and writes; each is one work function here. For
every rule, ``read`` counts operands as accessed (one that is passed twice is read twice, as in
XLA), and ``written + aliased`` covers the results' bytes, except for constants of one value, which
are in code, and the triangle that a Cholesky leaves unwritten.

    RULES["reverse"] = Rule(Role.MOVEMENT, boundary)
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.graph.tensor_types import TensorType
from flint.graph.work import NO_WORK, Work
from flint.stablehlo.read.records import Op


def total_bytes(types: Sequence[TensorType]) -> int:
    """Total bytes of all ``types``."""
    total = 0
    for tensor in types:
        total += tensor.bytes
    return total


def boundary(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Reads every operand, writes every result, computes nothing (or nothing that is known)."""
    return Work((), total_bytes(ins), total_bytes(outs))


def alias(_op: Op, _ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Nothing moves: the results are the operands' buffers."""
    return Work((), 0, 0, total_bytes(outs))


def generate(_op: Op, _ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Writes the results and reads nothing."""
    return Work((), 0, total_bytes(outs))


def nothing(_op: Op, _ins: Sequence[TensorType], _outs: Sequence[TensorType]) -> Work:
    """Neither computes nor moves: terminators, declarations, ops that the walker opens."""
    return NO_WORK
