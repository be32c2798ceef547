"""Scores that an attention kernel never computes, because a mask by position hides them.

The idea: fused attention (Dao et al., "FlashAttention-2", 2023, section 3.1) skips the blocks of
scores that a causal mask hides.  A kernel's decomposition shows the mask: scores, a product's
result, are selected where one index is at least the other, and minus infinity elsewhere. From there
values are followed in both directions: values are hidden if they follow from minus infinity
(exponentials, which are 0, and products with them), or if only hidden values need them.

    visible_shares(module, block)       # {scores' value id: Share(2098176, 4194304), ...}
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum

import numpy as np

from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.rules.causal_masks import DIRECTIONS, Share, positions_held
from flint.stablehlo.rules.elementwise import UNIT_OF

#: A score that is not larger than this is hidden: its exponential is 0 in all element types.
_HIDDEN = -1e4


class _Hidden(Enum):
    """The value in place of hidden scores."""

    LOW = "minus infinity"
    ZERO = "zero"


_LOW, _ZERO = _Hidden.LOW, _Hidden.ZERO

#: Op -> operands -> the value that hides its result if one of them is hidden.
_FOLLOWS: dict[tuple[str, _Hidden], tuple[tuple[int, ...], _Hidden]] = {
    ("convert", _LOW): ((0,), _LOW),
    ("add", _LOW): ((0, 1), _LOW),
    ("subtract", _LOW): ((0,), _LOW),
    ("multiply", _LOW): ((0, 1), _LOW),
    ("divide", _LOW): ((0,), _LOW),
    ("exponential", _LOW): ((0,), _ZERO),
    ("logistic", _LOW): ((0,), _ZERO),
    ("convert", _ZERO): ((0,), _ZERO),
    ("negate", _ZERO): ((0,), _ZERO),
    ("multiply", _ZERO): ((0, 1), _ZERO),
    ("divide", _ZERO): ((0,), _ZERO),
}


def visible_shares(module: Module, block: Block) -> dict[int, Share]:
    """For ops on scores that a kernel masks by position: first result -> the share computed.

    Args:
        module: the module with the types.
        block: block of a kernel.
    """
    if not any(op.name == "dot_general" for op in block.ops):
        return {}
    kernel = _Kernel(module, block)
    found: dict[int, Share] = {}
    for op in block.ops:
        share = kernel.mask(op)
        if share is not None and 0 < share.visible < share.all:
            for value in kernel.affected(op):
                found[value] = min(found.get(value, share), share, key=lambda s: s.visible / s.all)
    return found


class _Kernel:
    """A kernel's ops by the values that they make and use."""

    def __init__(self, module: Module, block: Block) -> None:
        self.block = block
        self.shape = {
            value: module.type_of(value).shape
            for op in block.ops
            for value in (*op.operands, *op.results)
        }
        self.maker = {value: op for op in block.ops for value in op.results}
        self.users: dict[int, list[Op]] = defaultdict(list)
        for op in block.ops:
            for value in dict.fromkeys(op.operands):
                self.users[value].append(op)

    def mask(self, op: Op) -> Share | None:
        """The part of scores that a select leaves; None if it is not a mask by position."""
        if op.name != "select":
            return None
        mask = self.maker.get(op.operands[0])
        hides = [self._is(value, _LOW) for value in op.operands[1:]]
        if mask is None or mask.name != "compare" or sum(hides) != 1:
            return None
        direction = str(mask.attr("direction"))
        row, column = (self._position(value) for value in mask.operands)
        if direction not in DIRECTIONS or row is None or column is None or row == column:
            return None
        shape = self.shape[op.results[0]]
        rows, columns = shape[row], shape[column]
        held = positions_held(direction, rows, columns)
        every = rows * columns
        return Share(held if hides[1] else every - held, every)

    def affected(self, select: Op) -> set[int]:
        """First results of the ops whose work a mask reduces; none if it masks no product."""
        hidden = self._hidden(select)
        spared = self._spared(select, hidden)
        mask = self.maker[select.operands[0]]
        pair = {self._position(value) for value in mask.operands}
        if not any(self._multiplies(self.maker.get(value), pair) for value in spared):
            return set()
        affected = set(hidden) | spared
        for op in self.block.ops:
            used = {hidden[value] for value in op.operands if value in hidden}
            if (op.name == "reduce" and used) or (op.name == "dot_general" and _ZERO in used):
                affected.add(op.results[0])
        return affected

    def _hidden(self, select: Op) -> dict[int, _Hidden]:
        """Values that follow only from masked scores -> the value where they are hidden."""
        shape = self.shape[select.results[0]]
        hidden = {select.results[0]: _LOW}
        for op in self.block.ops:
            if op is select or len(op.results) != 1 or self.shape[op.results[0]] != shape:
                continue
            if op.name == "select":
                chosen = op.operands[1:]
                for kind in {hidden[value] for value in chosen if value in hidden}:
                    if all(hidden.get(v) is kind or self._is(v, kind) for v in chosen):
                        hidden[op.results[0]] = kind
                continue
            for kind in _Hidden:
                places, becomes = _FOLLOWS.get((op.name, kind), ((), kind))
                if any(hidden.get(op.operands[place]) is kind for place in places):
                    hidden[op.results[0]] = becomes
        return hidden

    def _spared(self, select: Op, hidden: dict[int, _Hidden]) -> set[int]:
        """Values of the scores' shape that are not needed where they are hidden."""
        shape = self.shape[select.results[0]]
        spared: set[int] = set()
        for op in reversed(self.block.ops):
            for value in op.results:
                if value in hidden or self.shape[value] != shape or value in self.block.yields:
                    continue
                users = self.users.get(value, [])
                if users and all(
                    user.name in UNIT_OF
                    and (user.results[0] in hidden or user.results[0] in spared)
                    for user in users
                ):
                    spared.add(value)
        return spared

    def _multiplies(self, op: Op | None, pair: set[int | None]) -> bool:
        """Whether an op is a product whose rows and columns are the pair of dims."""
        if op is None or op.name != "dot_general":
            return False
        batch = len(op.attr("lhs_batching", ()))
        taken = batch + len(op.attr("lhs_contracting", ()))
        columns_from = batch + len(self.shape[op.operands[0]]) - taken
        return sorted(
            0 if dim is None or dim < batch else 1 if dim < columns_from else 2 for dim in pair
        ) == [1, 2]

    def _is(self, value: int, kind: _Hidden) -> bool:
        """Whether a value is a constant that hides scores."""
        made = self.maker.get(value)
        while made is not None and made.name in ("broadcast_in_dim", "reshape", "convert"):
            made = self.maker.get(made.operands[0])
        number = made.attr("value") if made is not None and made.name == "constant" else None
        if number is None or np.iscomplexobj(number):
            return False
        values = np.asarray(number, np.float64)
        return bool(np.all(values <= _HIDDEN if kind is _LOW else values == 0))

    def _position(self, value: int) -> int | None:
        """The dim along which a value counts; None if it does not count."""
        made = self.maker.get(value)
        return int(made.attr("dimension")) if made is not None and made.name == "iota" else None
