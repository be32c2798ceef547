"""Structure: calls, async pairs, tuples, barriers, composites; the table of all handlers.

The idea: one handler per op that has regions or plumbing instead of work, in the table
``HANDLERS``.  Calls are opened; a loop is a node with a body; a branch that the rank decides is a
conditional node (a pass splits the ranks), one that data decides is opened behind its predicate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.graph.work import Role, Work, WorkItem
from flint.stablehlo.conditionals import case
from flint.stablehlo.fusions import accessed_bytes, copied_bytes, fusion, kernel
from flint.stablehlo.loops.while_loops import while_
from flint.stablehlo.opening import MAX_CALL_DEPTH, communicates, open_block
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.recorded.scheduled import DONE
from flint.stablehlo.scope import Scope
from flint.stablehlo.values.causal_masks import Share
from flint.stablehlo.values.hidden_scores import visible_shares

if TYPE_CHECKING:
    from flint.stablehlo.walker import Walker

#: PyTorch's ops that write their first argument: of ``aten.index_add_.default`` the rows alone.
_IN_PLACE = re.compile(r"aten\.\w*[^_\W]_\.")

Handler = Callable[["Walker", Scope, Op, Block], None]


def call(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Open a call."""
    callee = walker.module.functions[op.attr("callee")]
    walker.call_depth += 1
    if walker.call_depth > MAX_CALL_DEPTH:
        raise FlintError(
            f"{walker.where(op)}: calls nest deeper than {MAX_CALL_DEPTH}; "
            f"does @{op.attr('callee')} call itself?"
        )
    outer = walker.origins.enter(op)
    open_block(walker, scope, callee, op.operands)
    walker.origins.leave(outer)
    walker.call_depth -= 1
    for value, result in zip(callee.yields, op.results, strict=True):
        walker.alias(scope, value, result)


def region(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Open an op whose region runs once with its operands (async_start, manual computations)."""
    block = op.regions[0]
    for operand, argument in zip(op.operands, block.args, strict=True):
        _as(walker, scope, op, operand, argument)
    walker.block(scope, block)
    if len(op.results) == len(block.yields) and op.name != "async_start":
        for value, result in zip(block.yields, op.results, strict=True):
            _as(walker, scope, op, value, result)
    else:
        walker.futures[op.results[0]] = block.yields


def _as(walker: Walker, scope: Scope, op: Op, value: int, name: int) -> None:
    """Call ``value`` ``name``; by a view where one is a whole tensor and the other a shard."""
    walker.alias(scope, value, name)
    scope.values[name] = walker.view(scope, op, value, walker.module.value_type[name])


def async_done(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Hand out what the matching async_start has computed.

    In a schedule the end has a place of its own: a node that takes no time, which awaits the start.
    """
    values = walker.futures.get(op.operands[0], op.operands)
    for value, result in zip(values, op.results, strict=True):
        walker.alias(scope, value, result)
    if walker.module.scheduled:
        _await(walker, scope, op)


def _await(walker: Walker, scope: Scope, op: Op) -> None:
    operands = [scope.use(value) for value in op.results]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        walker.tables.op(DONE),
        operands,
        [walker.module.value_type[value] for value in op.results],
        role=Role.ALIAS,
        source=walker.source(op.loc),
        ops_merged=0,
        order=scope.order(operands),
    )
    for value, number in zip(op.results, results, strict=True):
        scope.values[value] = number


def tuple_(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Remember a tuple's elements; a tuple is no value of its own unless somebody else uses it."""
    walker.tuples[op.results[0]] = op.operands
    walker.simple(scope, op)


def get_tuple_element(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Hand out a tuple's element."""
    elements = walker.tuples.get(op.operands[0])
    if elements is None:
        walker.simple(scope, op)
    else:
        walker.alias(scope, elements[op.attr("index")], op.results[0])


def optimization_barrier(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Pass each operand through, by a view of its own; with ``keep_barriers`` one node joins them.

    One node for all would hold back the early operands' users, in the issue order, until the last
    operand is there.
    """
    parts = [range(len(op.operands))]
    if not walker.options.keep_barriers:
        parts = [range(number, number + 1) for number in range(len(op.operands))]
    for part in parts:
        operands = [scope.use(op.operands[number]) for number in part]
        results = scope.builder.node(
            NodeKind.COMPUTE,
            walker.tables.op(op.name),
            operands,
            [walker.module.value_type[op.results[number]] for number in part],
            role=Role.OPAQUE if walker.options.keep_barriers else Role.ALIAS,
            source=walker.source(op.loc),
            ops_merged=1 if part.start == 0 else 0,
            order=scope.order(operands),
        )
        for number, result in zip(part, results, strict=True):
            scope.values[op.results[number]] = result
    for operand, value in zip(op.operands, op.results, strict=True):
        scalar = scope.scalar(operand)
        if scalar is not None:
            scope.scalars[value] = scalar


def dynamic_slice(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """A slice; nothing when a reduce-scatter gives the shard already."""
    if not walker.slice_of_shard(scope, op):
        walker.simple(scope, op)


def composite(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """One kernel with its decomposition's FLOPs; opened when it communicates, or on demand."""
    function = op.attr("decomposition")
    decomposition = walker.module.functions[function]
    if walker.options.fuse or communicates(walker, decomposition):
        open_block(walker, scope, decomposition, op.operands)
        for value, result in zip(decomposition.yields, op.results, strict=True):
            walker.alias(scope, value, result)
        return
    name = str(op.attr("name", "composite"))
    items = _inside(walker, function, 0)
    key = function, _IN_PLACE.match(name) is not None
    moved = walker.moved_by_function.get(key)
    if moved is None:
        moved_bytes = accessed_bytes if key[1] else copied_bytes
        moved = walker.moved_by_function[key] = moved_bytes(walker.module, decomposition)
    kernel(walker, scope, op, name, Work(items, *moved))


def _inside(walker: Walker, function: str, depth: int) -> tuple[WorkItem, ...]:
    """Work of a function, worked out once."""
    items = walker.work_of_function.get(function)
    if items is None:
        block = walker.module.functions[function]
        items = work_inside(walker, block, depth, visible_shares(walker.module, block))
        walker.work_of_function[function] = items
    return items


def region_work(walker: Walker, body: Block, depth: int) -> tuple[WorkItem, ...]:
    """Work of a block that several ops may share, worked out once."""
    key = f"region {id(body)}"
    items = walker.work_of_function.get(key)
    if items is None:
        items = walker.work_of_function[key] = work_inside(walker, body, depth, {})
    return items


def work_inside(
    walker: Walker, block: Block, depth: int, shares: Mapping[int, Share]
) -> tuple[WorkItem, ...]:
    """Work items of everything a kernel's block does, by unit, type and GEMM size.

    Loops are not counted.

    Args:
        walker: measures ops.
        block: of the kernel.
        depth: calls around it.
        shares: of an op, by its first result, how much is computed where that is not all: a
            decomposition says what a kernel computes, a backend's fusion computes what it says.
    """
    if depth > 100:
        raise FlintError("composites or calls nest too deeply")
    total: dict[tuple[object, ...], WorkItem] = {}

    def add(items: tuple[WorkItem, ...]) -> None:
        for item in items:
            key = (item.unit, item.dtype, item.dims)
            known = total.get(key)
            total[key] = item if known is None else item._replace(flops=known.flops + item.flops)

    for op in block.ops:
        function = op.attr("callee") or op.attr("decomposition")
        if function is not None:
            add(_inside(walker, function, depth + 1))
        elif op.name in HANDLERS and op.regions:
            for body in op.regions:
                add(region_work(walker, body, depth + 1))
            if op.name == "while":
                walker.warnings["a loop inside a kernel: its FLOPs are counted once"] += 1
            elif op.name in ("case", "if"):
                walker.warnings["a conditional inside a kernel: all its branches count"] += 1
        else:
            items = walker.measure(op)[2].items
            share = shares.get(op.results[0]) if op.results else None
            add(items if share is None else share.of(items))
    return tuple(total.values())


HANDLERS: dict[str, Handler] = {
    "async_done": async_done,
    "async_start": region,
    "call": call,
    "case": case,
    "composite": composite,
    "dynamic_slice": dynamic_slice,
    "fusion": fusion,
    "get_tuple_element": get_tuple_element,
    "if": case,
    "optimization_barrier": optimization_barrier,
    "sdy.manual_computation": region,
    "sdy.named_computation": region,
    "tuple": tuple_,
    "while": while_,
}
