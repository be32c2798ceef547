"""Whether ops of a module say how tensors are spread over devices: its partitioner is yet to run.

is_annotated({"sdy.sharding_constraint": "sdy.sharding_constraint"}, functions, 8, {})     # True
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flint.stablehlo.read.records import Block, blocks_within

#: Shardy's op, and GSPMD's custom call.
_OP, _TARGET = "sdy.sharding_constraint", "Sharding"


def is_annotated(
    names: Mapping[str, str],
    functions: Mapping[str, Block],
    partitions: int,
    meshes: Mapping[str, tuple[tuple[str, int], ...]],
) -> bool:
    """Whether an op spreads a tensor over several devices.

    Args:
        names: full names of the ops that the module has -> their names in records.
        functions: the module's functions.
        partitions: as the module states them; JAX states 1 where only ops know the devices.
        meshes: as in ``Module``.
    """
    sizes = [math.prod(size for _, size in axes) for axes in meshes.values()]
    if max(partitions, *sizes, 1) == 1:
        return False
    if _OP in names:
        return True
    if "custom_call" not in names.values():
        return False
    return any(
        op.name == "custom_call" and op.attr("target") == _TARGET
        for block in blocks_within(functions.values())
        for op in block.ops
    )
