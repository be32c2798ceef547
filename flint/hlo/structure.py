"""Instructions that are more than one record: tuples, control flow, asynchronous halves.

The idea: HLO carries several values as one tuple; records name every value.  So tuples live only
while reading, as trees of value ids: building and taking apart a tuple rearranges ids and leaves no
record, a ``while`` over a tuple of N becomes a ``while`` with N operands and results, a branch's
parameter is replaced by what it is called with.  The first half of an asynchronous pair becomes the
operation itself and the second half an ``async_done``.

    t = tuple(a, b);  w = while(t);  g = get-tuple-element(w), index=1
    -> Op("while", (a, b), (w0, w1), regions=(condition, body)); g is w1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flint.hlo import attributes as read
from flint.hlo import collectives as exchange
from flint.hlo.async_fusions import CONTEXT, fused_collective
from flint.hlo.context import Decoder
from flint.hlo.mlir_text import flat_dictionary
from flint.hlo.shapes import Tree, flatten, same_structure
from flint.stablehlo.read.records import Op

if TYPE_CHECKING:
    from flint.hlo.reader import _Reader
    from flint.hlo.scope import Scope

#: (reader, instruction, scope): appends records to ``scope.ops`` and binds the instruction's value.
Handler = Callable[["_Reader", Any, "Scope"], None]


def _parameter(reader: _Reader, instruction: Any, scope: Scope) -> None:
    number = instruction.parameter_number
    if number in scope.parameters:
        raise ValueError(f"parameter {number} stands twice")
    if scope.bound is None:
        tree = reader.new_values(instruction.shape)
    elif 0 <= number < len(scope.bound):
        tree = scope.bound[number]
    else:
        raise ValueError(f"the call passes {len(scope.bound)} values, none for parameter {number}")
    scope.parameters[number] = tree
    scope.bind(instruction.id, tree)


def _tuple(reader: _Reader, instruction: Any, scope: Scope) -> None:
    tree = tuple([scope.tree(number) for number in instruction.operand_ids])
    # The written shape bounds the tree: tuples of tuples could otherwise grow without limit.
    if not same_structure(tree, reader.types.tree(instruction.shape)):
        raise ValueError("the operands do not make up the tuple's shape")
    scope.bind(instruction.id, tree)


def _get_tuple_element(_reader: _Reader, instruction: Any, scope: Scope) -> None:
    tree = scope.tree(instruction.operand_ids[0])
    index = instruction.tuple_index
    if isinstance(tree, int) or not 0 <= index < len(tree):
        raise ValueError(f"element {index} of a value that has no such element")
    scope.bind(instruction.id, tree[index])


def _forward(_reader: _Reader, instruction: Any, scope: Scope) -> None:
    scope.bind(instruction.id, scope.tree(instruction.operand_ids[0]))


def _add_dependency(reader: _Reader, instruction: Any, scope: Scope) -> None:
    reader.warn("add-dependency: the order that it states is not kept")
    _forward(reader, instruction, scope)


def _after_all(reader: _Reader, instruction: Any, scope: Scope) -> None:
    name = "after_all" if instruction.operand_ids else "create_token"
    reader.emit(name, instruction, scope)


def _while(reader: _Reader, instruction: Any, scope: Scope) -> None:
    body_id, condition_id = instruction.called_computation_ids
    regions = (reader.region(condition_id), reader.region(body_id))
    op = reader.emit(
        "while", instruction, scope, read.while_loop(instruction, reader.context), regions
    )
    carried = len(op.operands)
    sizes = (len(op.results), len(regions[0].args), len(regions[1].args), len(regions[1].yields))
    if any(size != carried for size in sizes) or len(regions[0].yields) != 1:
        raise ValueError(f"the loop carries {carried} values, its parts {sizes}")


def _conditional(reader: _Reader, instruction: Any, scope: Scope) -> None:
    selector, *arguments = instruction.operand_ids
    branches = list(instruction.called_computation_ids)
    if not branches or len(branches) != len(arguments):
        raise ValueError(f"{len(branches)} branches for {len(arguments)} branch operands")
    index = scope.tree(selector)
    if not isinstance(index, int):
        raise ValueError("the branch index is a tuple")
    regions = tuple(
        [
            reader.captured(branch, [scope.tree(argument)], instruction)
            for branch, argument in zip(branches, arguments, strict=True)
        ]
    )
    is_predicate = reader.types.types[reader.value_type[index]].dtype == "i1"
    results = reader.new_values(instruction.shape)
    flat = tuple(flatten(results))
    if any(len(region.yields) != len(flat) for region in regions):
        raise ValueError("a branch yields another number of values than the conditional")
    name = "if" if is_predicate else "case"
    scope.ops.append(Op(name, (index,), flat, None, regions, reader.location(instruction)))
    scope.bind(instruction.id, results)


def _call(reader: _Reader, instruction: Any, scope: Scope) -> None:
    (callee,) = instruction.called_computation_ids
    name = reader.function(callee)
    if not instruction.is_composite:
        reader.emit("call", instruction, scope, {"callee": name})
        return
    stated = reader.frontend_attributes(instruction)
    attrs: dict[str, Any] = {"name": stated.get("composite.name", ""), "decomposition": name}
    if stated.get("composite.attributes"):
        text = stated["composite.attributes"]
        attrs["attributes"] = flat_dictionary(text) or {"text": text}
    reader.emit("composite", instruction, scope, attrs)


def _fusion(reader: _Reader, instruction: Any, scope: Scope) -> None:
    (fused,) = instruction.called_computation_ids
    # What follows a dot ("loop_add_fusion.12.clone") only tells instructions apart.
    kernel = str(instruction.name).partition(".")[0] or "fusion"
    attrs: dict[str, Any] = {"kind": instruction.fusion_kind, "name": kernel}
    in_place = read.aliases(instruction)
    if in_place:
        attrs["aliases"] = in_place
    body = reader.region(fused)
    op = reader.emit("fusion", instruction, scope, attrs, (body,))
    if len(op.operands) != len(body.args) or len(op.results) != len(body.yields):
        sizes = f"takes {len(body.args)} values, not {len(op.operands)}"
        raise ValueError(f"{sizes}, and gives {len(body.yields)}, not {len(op.results)}")
    found = fused_collective(op)
    if found is None:
        return
    records, instead = found
    scope.ops[-1:] = records
    scope.contexts += [record for record in records if record.name == CONTEXT]
    values = [instead.get(number, value) for number, value in enumerate(op.results)]
    scope.bind(instruction.id, _arrange(tuple(values), reader.types.tree(instruction.shape)))


def _all_reduce_start(reader: _Reader, instruction: Any, scope: Scope) -> None:
    regions = tuple([reader.region(c) for c in instruction.called_computation_ids])
    attrs = exchange.collective(instruction, reader.context)
    reader.emit("all_reduce", instruction, scope, attrs, regions)


def _start(name: str, decode: Decoder | None, result: int) -> Handler:
    """A first half whose shape is a tuple with the real result at index ``result``."""

    def handler(reader: _Reader, instruction: Any, scope: Scope) -> None:
        shape = reader.types.tree(instruction.shape)
        if isinstance(shape, int) or len(shape) <= result:
            raise ValueError("the shape has no place for the result")
        tree = reader.new_values_of(shape[result])
        attrs = None if decode is None else decode(instruction, reader.context)
        operands = tuple(scope.flat(instruction.operand_ids))
        loc = reader.location(instruction)
        scope.ops.append(Op(name, operands, tuple(flatten(tree)), attrs, (), loc))
        scope.started[instruction.id] = tree
        _bind_start(reader, instruction, scope, shape, result, tree)

    return handler


def _bind_start(
    reader: _Reader, instruction: Any, scope: Scope, shape: Any, place: int, result: Tree
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
        elif number < 2 and _same_types(reader, alike, part):
            parts.append(alike)
        elif number < 2 and _same_types(reader, tuple(operands), part):
            parts.append(tuple(operands))
        else:
            context = reader.new_values_of(part)
            scope.contexts.append(Op(CONTEXT, (), tuple(flatten(context))))
            scope.ops.append(scope.contexts[-1])
            parts.append(context)
    scope.bind(instruction.id, tuple(parts))


def _same_types(reader: _Reader, tree: Tree, types: Tree) -> bool:
    if not same_structure(tree, types):
        return False
    kinds = [reader.value_type[value] for value in flatten(tree)]
    return kinds == flatten(types)


def _async_start(reader: _Reader, instruction: Any, scope: Scope) -> None:
    (wrapped,) = instruction.called_computation_ids
    arguments = [scope.tree(number) for number in instruction.operand_ids]
    block = reader.captured(wrapped, arguments, instruction)
    scope.ops += block.ops
    shape = reader.types.tree(instruction.shape)
    if isinstance(shape, int) or len(shape) < 2:
        raise ValueError("the shape has no place for the result")
    result = _arrange(block.yields, shape[1])
    scope.started[instruction.id] = result
    _bind_start(reader, instruction, scope, shape, 1, result)


def _arrange(values: tuple[int, ...], shape: Tree) -> Tree:
    """Values in the form of a tree of types."""
    remaining = list(reversed(values))

    def take(part: Tree) -> Tree:
        return remaining.pop() if isinstance(part, int) else tuple([take(item) for item in part])

    if len(flatten(shape)) != len(values):
        raise ValueError("the wrapped computation yields another number of values")
    return take(shape)


def _async_update(_reader: _Reader, instruction: Any, scope: Scope) -> None:
    (before,) = instruction.operand_ids
    if before in scope.started:
        scope.started[instruction.id] = scope.started[before]
    scope.bind(instruction.id, scope.tree(before))


def _done(place: int | None) -> Handler:
    """A second half: the moment at which the result may be used.

    Args:
        place: where the result stands in the tuple of the first half, which a loop may have
            carried here; None where the whole is the result.
    """

    def handler(reader: _Reader, instruction: Any, scope: Scope) -> None:
        (start,) = instruction.operand_ids
        tree = scope.started.get(start)
        if tree is None:
            tree = scope.tree(start)
            if place is not None and not isinstance(tree, int) and place < len(tree):
                tree = tree[place]
        _end(reader, instruction, scope, tree)

    return handler


def _end(reader: _Reader, instruction: Any, scope: Scope, tree: Tree) -> None:
    """Emit the end of an asynchronous operation whose result is ``tree``."""
    result = reader.new_values(instruction.shape)
    operands, flat = tuple(flatten(tree)), tuple(flatten(result))
    if len(operands) != len(flat):
        raise ValueError(f"{len(operands)} values were started, {len(flat)} are awaited")
    loc = reader.location(instruction)
    scope.ops.append(Op("async_done", operands, flat, None, (), loc))
    scope.bind(instruction.id, result)


def _send(reader: _Reader, instruction: Any, scope: Scope) -> None:
    data, token = instruction.operand_ids
    sent = reader.new_token()
    operands = (*flatten(scope.tree(data)), *flatten(scope.tree(token)))
    attrs = exchange.host_or_point_to_point(instruction, reader.context)
    scope.ops.append(Op("send", operands, (sent,), attrs, (), reader.location(instruction)))
    # The tuple is (buffer, context, token); the context has no meaning outside the pair.
    scope.bind(instruction.id, (scope.tree(data), sent, sent))


def _recv(reader: _Reader, instruction: Any, scope: Scope) -> None:
    shape = reader.types.tree(instruction.shape)
    if isinstance(shape, int) or len(shape) != 3:
        raise ValueError("the shape is not (data, context, token)")
    data, token = reader.new_values_of(shape[0]), reader.new_token()
    operands = tuple(scope.flat(instruction.operand_ids))
    attrs = exchange.host_or_point_to_point(instruction, reader.context)
    results = (*flatten(data), token)
    scope.ops.append(Op("recv", operands, results, attrs, (), reader.location(instruction)))
    scope.bind(instruction.id, (data, token, token))


def _exchanged(*places: int) -> Handler:
    """The end of a send or receive: parts of the tuple that the beginning made."""

    def handler(reader: _Reader, instruction: Any, scope: Scope) -> None:
        tree = scope.tree(instruction.operand_ids[0])
        if isinstance(tree, int) or len(tree) != 3:
            raise ValueError("the operand is not (data, context, token)")
        parts = tuple([tree[place] for place in places])
        whole = parts[0] if len(parts) == 1 else parts
        if reader.scheduled:
            _end(reader, instruction, scope, whole)
        else:
            scope.bind(instruction.id, whole)

    return handler


def _copy_start(reader: _Reader, instruction: Any, scope: Scope) -> None:
    _start("mhlo.copy", read.made if reader.optimized else None, 0)(reader, instruction, scope)


def unknown(reader: _Reader, instruction: Any, scope: Scope) -> None:
    """An opcode without a row: kept with its types, and counted."""
    opcode = instruction.opcode
    reader.warn(f"unknown HLO opcode {opcode!r}: kept without work")
    reader.emit(f"hlo.{opcode}", instruction, scope)


HANDLERS: dict[str, Handler] = {
    "add-dependency": _add_dependency,
    "after-all": _after_all,
    "all-gather-done": _done(1),
    "all-gather-start": _start("all_gather", exchange.collective_along_dimension, 1),
    "all-reduce-done": _done(None),
    "all-reduce-start": _all_reduce_start,
    "async-done": _done(1),
    "async-start": _async_start,
    "async-update": _async_update,
    "call": _call,
    "collective-permute-done": _done(1),
    "collective-permute-start": _start("collective_permute", exchange.point_to_point, 1),
    "conditional": _conditional,
    "copy-done": _done(0),
    "copy-start": _copy_start,
    "domain": _forward,
    "fusion": _fusion,
    "get-tuple-element": _get_tuple_element,
    "parameter": _parameter,
    "recv": _recv,
    "recv-done": _exchanged(0, 2),
    "send": _send,
    "send-done": _exchanged(2),
    "tuple": _tuple,
    "while": _while,
}
