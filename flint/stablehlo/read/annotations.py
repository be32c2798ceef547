"""Whether ops of a module say how tensors are spread over devices: its partitioner is yet to run.

devices_annotated({"sdy.sharding_constraint": "sdy.sharding_constraint"}, functions, 8)     # 8
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from flint.stablehlo.read.records import Block, blocks_within

#: Shardy's op, and GSPMD's custom call.
_OP, _TARGET = "sdy.sharding_constraint", "Sharding"
#: Shardy's op for a part that is written for one device (``shard_map``).
MANUAL: Final = "sdy.manual_computation"
#: XLA's sharding text: ``{devices=[8,64]<=[512]T(1,0) last_tile_dim_replicate}``.
_TILES: Final = re.compile(r"devices=\[([\d,]+)\](?:<=\[[\d,]+\]|\d)")


def devices_in(sharding: str) -> int:
    """The devices of a sharding in XLA's text, of the largest of several; 1: it names none."""
    found = _TILES.findall(sharding)
    return max((math.prod(map(int, tiles.split(","))) for tiles in found), default=1)


def devices_stated(partitions: int, meshes: Mapping[str, tuple[tuple[str, int], ...]]) -> int:
    """The most devices that a module, or one of its meshes, states."""
    sizes = [math.prod(size for _, size in axes) for axes in meshes.values()]
    return max(partitions, *sizes, 1)


def devices_annotated(names: Mapping[str, str], functions: Mapping[str, Block], stated: int) -> int:
    """The devices over which ops spread tensors; 1: no op does.

    Args:
        names: full names of the ops that the module has -> their names in records.
        functions: the module's functions.
        stated: the devices that the module and its meshes state; JAX states 1 where only ops know.
    """
    if _OP in names:
        return stated
    if "custom_call" not in names.values():
        return 1
    return max(
        (
            max(stated, devices_in(op.attr("sharding", "")))
            for block in blocks_within(functions.values())
            for op in block.ops
            if op.name == "custom_call" and op.attr("target") == _TARGET
        ),
        default=1,
    )
