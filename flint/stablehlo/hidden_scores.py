"""Scores that a kernel of attention never computes, because their positions hide them.

The idea: fused attention (Dao et al., "FlashAttention-2", 2023, section 3.1) leaves out the blocks
of scores that a causal mask hides.  A kernel's decomposition says so in its own words: scores, a
product's result, are chosen where one index is at least the other, and minus infinity elsewhere.

    visible_shares(module, block)       # {(8, 32, 2048, 2048): Share(2098176, 4194304)}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.stablehlo.records import Block, Module, Op
from flint.work import WorkItem

Ints: TypeAlias = NDArray[np.int64]

#: A score that is no larger than this is hidden: its exponential is 0 in all element types.
_HIDDEN = -1e4
#: Of row ``i`` the number of columns ``j``, of so many, for which ``i DIRECTION j``.
_HELD: dict[str, Callable[[Ints, int], Ints]] = {
    "GE": lambda row, _: row + 1,
    "GT": lambda row, _: row,
    "LE": lambda row, columns: columns - row,
    "LT": lambda row, columns: columns - 1 - row,
}


class Share(NamedTuple):
    """How many of a matrix of scores are computed."""

    visible: int
    all: int

    def of(self, items: tuple[WorkItem, ...]) -> tuple[WorkItem, ...]:
        """Work on all scores -> that on the visible ones."""
        return tuple(item._replace(flops=item.flops * self.visible // self.all) for item in items)


def causal_share(queries: int, keys: int) -> Share:
    """What a causal mask leaves of a matrix of scores: query ``i`` sees keys 0 to ``i``."""
    return Share(_count("GE", queries, keys), queries * keys)


def visible_shares(module: Module, block: Block) -> dict[tuple[int, ...], Share]:
    """Of scores that a block masks by position: their shape -> the share that is computed.

    Args:
        module: has the types.
        block: of a kernel.
    """
    products = {module.type_of(op.results[0]).shape for op in block.ops if op.name == "dot_general"}
    if not products:
        return {}
    maker = {value: op for op in block.ops for value in op.results}
    found: dict[tuple[int, ...], Share] = {}
    for op in block.ops:
        if op.name != "select":
            continue
        shape = module.type_of(op.results[0]).shape
        share = _share(op, shape, maker) if shape in products else None
        if share is not None and 0 < share.visible < share.all:
            found[shape] = share
    return found


def _share(op: Op, shape: tuple[int, ...], maker: dict[int, Op]) -> Share | None:
    """What a select leaves of scores; None where it is no mask by position."""
    mask = maker.get(op.operands[0])
    hides = [_is_hidden(value, maker) for value in op.operands[1:]]
    if mask is None or mask.name != "compare" or sum(hides) != 1:
        return None
    direction = str(mask.attr("direction"))
    along = [_position(value, maker) for value in mask.operands]
    if direction not in _HELD or along[0] is None or along[1] is None or along[0] == along[1]:
        return None
    rows, columns = shape[along[0]], shape[along[1]]
    held = _count(direction, rows, columns)
    every = rows * columns
    return Share(held if hides[1] else every - held, every)


def _count(direction: str, rows: int, columns: int) -> int:
    held = _HELD[direction](np.arange(rows, dtype=np.int64), columns)
    return int(np.clip(held, 0, columns).sum())


def _is_hidden(value: int, maker: dict[int, Op]) -> bool:
    """Whether a value is what hidden scores are."""
    made = maker.get(value)
    while made is not None and made.name in ("broadcast_in_dim", "reshape", "convert"):
        made = maker.get(made.operands[0])
    number = made.attr("value") if made is not None and made.name == "constant" else None
    return number is not None and bool(np.all(np.asarray(number, np.float64) <= _HIDDEN))


def _position(value: int, maker: dict[int, Op]) -> int | None:
    """The dim along which a value counts; None where it is none."""
    made = maker.get(value)
    return int(made.attr("dimension")) if made is not None and made.name == "iota" else None
