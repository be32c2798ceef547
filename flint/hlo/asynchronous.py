"""Halves of asynchronous operations: starts, updates, dones, sends and receives.

The idea: the first half of an asynchronous pair becomes the operation itself and the second half an
``async_done``, the moment at which the result may be used.  The tuple that XLA passes from one to
the other (operands, result, contexts) is a tree of value ids, which a loop may carry.

    s = all-gather-start(x);  d = all-gather-done(s)
    -> Op("all_gather", (x,), (g,)), Op("async_done", (g,), (d,))
"""

from __future__ import annotations

from typing import Any

from flint.hlo import attributes as read
from flint.hlo import collectives as exchange
from flint.hlo.async_fusions import CONTEXT
from flint.hlo.context import Decoder
from flint.hlo.reading import Handler, Reading
from flint.hlo.scope import Scope
from flint.hlo.shapes import Tree, arrange, flatten, same_structure
from flint.stablehlo.read.records import Op


def _all_reduce_start(reading: Reading, instruction: Any, scope: Scope) -> None:
    regions = tuple([reading.region(c) for c in instruction.called_computation_ids])
    attrs = exchange.collective(instruction, reading.context)
    reading.emit("all_reduce", instruction, scope, attrs, regions)


def _start(name: str, decode: Decoder | None, result: int) -> Handler:
    """A first half whose shape is a tuple with the real result at index ``result``."""

    def handler(reading: Reading, instruction: Any, scope: Scope) -> None:
        shape = reading.types.tree(instruction.shape)
        if isinstance(shape, int) or len(shape) <= result:
            raise ValueError("the shape lacks the result")
        tree = reading.new_values_of(shape[result])
        attrs = None if decode is None else decode(instruction, reading.context)
        operands = scope.flat(instruction.operand_ids)
        reading.append(name, instruction, scope, operands, flatten(tree), attrs)
        scope.started[instruction.id] = tree
        _bind_start(reading, instruction, scope, shape, result, tree)

    return handler


def _bind_start(
    reading: Reading, instruction: Any, scope: Scope, shape: Any, place: int, result: Tree
) -> None:
    """Bind the tuple of a first half: its result at ``place``, its operands, and a context.

    A loop may carry the tuple to a second half in its next iteration.
    """
    operands = [scope.tree(number) for number in instruction.operand_ids]
    alike = operands[0] if len(operands) == 1 else tuple(operands)
    parts: list[Tree] = []
    for number, part in enumerate(shape):
        if number == place:
            parts.append(result)
        elif number < 2 and _same_types(reading, alike, part):
            parts.append(alike)
        elif number < 2 and _same_types(reading, tuple(operands), part):
            parts.append(tuple(operands))
        else:
            context = reading.new_values_of(part)
            scope.contexts.append(Op(CONTEXT, (), tuple(flatten(context))))
            scope.ops.append(scope.contexts[-1])
            parts.append(context)
    scope.bind(instruction.id, tuple(parts))


def _same_types(reading: Reading, tree: Tree, types: Tree) -> bool:
    if not same_structure(tree, types):
        return False
    kinds = [reading.value_type[value] for value in flatten(tree)]
    return kinds == flatten(types)


def _async_start(reading: Reading, instruction: Any, scope: Scope) -> None:
    (wrapped,) = instruction.called_computation_ids
    arguments = [scope.tree(number) for number in instruction.operand_ids]
    block = reading.captured(wrapped, arguments, instruction)
    scope.ops += block.ops
    shape = reading.types.tree(instruction.shape)
    if isinstance(shape, int) or len(shape) < 2:
        raise ValueError("the shape lacks the result")
    result = arrange(block.yields, shape[1])
    scope.started[instruction.id] = result
    _bind_start(reading, instruction, scope, shape, 1, result)


def _async_update(_reading: Reading, instruction: Any, scope: Scope) -> None:
    (before,) = instruction.operand_ids
    if before in scope.started:
        scope.started[instruction.id] = scope.started[before]
    scope.bind(instruction.id, scope.tree(before))


def _done(place: int | None) -> Handler:
    """A second half: the moment at which the result may be used.

    Args:
        place: position of the result in the tuple of the first half, which a loop may have carried
            here; None if the whole tuple is the result.
    """

    def handler(reading: Reading, instruction: Any, scope: Scope) -> None:
        (start,) = instruction.operand_ids
        tree = scope.started.get(start)
        if tree is None:
            tree = scope.tree(start)
            if place is not None and not isinstance(tree, int) and place < len(tree):
                tree = tree[place]
        _end(reading, instruction, scope, tree)

    return handler


def _end(reading: Reading, instruction: Any, scope: Scope, tree: Tree) -> None:
    """Emit the end of an asynchronous operation whose result is ``tree``."""
    result = reading.new_values(instruction.shape)
    operands, flat = flatten(tree), flatten(result)
    if len(operands) != len(flat):
        raise ValueError(f"{len(operands)} values were started, but {len(flat)} are awaited")
    reading.append("async_done", instruction, scope, operands, flat)
    scope.bind(instruction.id, result)


def _send(reading: Reading, instruction: Any, scope: Scope) -> None:
    data, token = instruction.operand_ids
    sent = reading.new_token()
    operands = scope.flat((data, token))
    attrs = exchange.host_or_point_to_point(instruction, reading.context)
    reading.append("send", instruction, scope, operands, [sent], attrs)
    # The tuple is (buffer, context, token); the context has no meaning outside the pair.
    scope.bind(instruction.id, (scope.tree(data), sent, sent))


def _recv(reading: Reading, instruction: Any, scope: Scope) -> None:
    shape = reading.types.tree(instruction.shape)
    if isinstance(shape, int) or len(shape) != 3:
        raise ValueError("the shape is not (data, context, token)")
    data, token = reading.new_values_of(shape[0]), reading.new_token()
    operands = scope.flat(instruction.operand_ids)
    attrs = exchange.host_or_point_to_point(instruction, reading.context)
    reading.append("recv", instruction, scope, operands, [*flatten(data), token], attrs)
    scope.bind(instruction.id, (data, token, token))


def _exchanged(*places: int) -> Handler:
    """The end of a send or receive: parts of the tuple from its start."""

    def handler(reading: Reading, instruction: Any, scope: Scope) -> None:
        tree = scope.tree(instruction.operand_ids[0])
        if isinstance(tree, int) or len(tree) != 3:
            raise ValueError("the operand is not (data, context, token)")
        parts = tuple([tree[place] for place in places])
        whole = parts[0] if len(parts) == 1 else parts
        if reading.scheduled:
            _end(reading, instruction, scope, whole)
        else:
            scope.bind(instruction.id, whole)

    return handler


def _copy_start(reading: Reading, instruction: Any, scope: Scope) -> None:
    _start("mhlo.copy", read.made if reading.optimized else None, 0)(reading, instruction, scope)


HANDLERS: dict[str, Handler] = {
    "all-gather-done": _done(1),
    "all-gather-start": _start("all_gather", exchange.collective, 1),
    "all-reduce-done": _done(None),
    "all-reduce-start": _all_reduce_start,
    "async-done": _done(1),
    "async-start": _async_start,
    "async-update": _async_update,
    "collective-permute-done": _done(1),
    "collective-permute-start": _start("collective_permute", exchange.point_to_point, 1),
    "copy-done": _done(0),
    "copy-start": _copy_start,
    "recv": _recv,
    "recv-done": _exchanged(0, 2),
    "send": _send,
    "send-done": _exchanged(2),
}
