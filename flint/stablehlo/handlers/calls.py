"""Ops that pass values on: calls, asynchronous pairs, tuples, barriers.

The idea: such an op computes nothing.  A call or a manual computation is opened.  The others give
values another name, or become a node that takes no time if their position in the order matters.
"""

from __future__ import annotations

from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.graph.work import Role
from flint.stablehlo.handlers.simple import simple
from flint.stablehlo.read.records import Op
from flint.stablehlo.recorded.scheduled import DONE
from flint.stablehlo.walk.blocks import MAX_CALL_DEPTH, open_instead
from flint.stablehlo.walk.known import NOTHING, Known
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import Handler, WalkState


def _call(state: WalkState, scope: Scope, op: Op) -> None:
    """Open a call."""
    state.call_depth += 1
    if state.call_depth > MAX_CALL_DEPTH:
        raise FlintError(
            f"{state.where(op)}: calls nest deeper than {MAX_CALL_DEPTH}; "
            f"does @{op.attr('callee')} call itself?"
        )
    outer = state.origins.enter(op)
    open_instead(state, scope, op, state.module.functions[op.attr("callee")], op.operands)
    state.origins.leave(outer)
    state.call_depth -= 1


def _region(state: WalkState, scope: Scope, op: Op) -> None:
    """Open an op whose region runs once with its operands (async_start, manual computations)."""
    block = op.regions[0]
    for operand, argument in zip(op.operands, block.args, strict=True):
        _as(state, scope, op, operand, argument)
    state.block(scope, block)
    if len(op.results) == len(block.yields) and op.name != "async_start":
        for value, result in zip(block.yields, op.results, strict=True):
            _as(state, scope, op, value, result)
    else:
        state.know(op.results[0], Known(elements=block.yields))


def _as(state: WalkState, scope: Scope, op: Op, value: int, name: int) -> None:
    """Make ``name`` another name for ``value``; through a view if one is a whole tensor and the
    other a shard.
    """
    state.alias(scope, value, name)
    scope.values[name] = state.view(scope, op, value, state.module.value_type[name])


def _async_done(state: WalkState, scope: Scope, op: Op) -> None:
    """Return what the matching async_start has computed.

    In a schedule the end has its own position: a node that takes no time and waits for the start.
    """
    promised = state.known.get(op.operands[0], NOTHING).elements
    state.aliases(scope, op.operands if promised is None else promised, op.results)
    if state.module.scheduled:
        operands = [scope.use(value) for value in op.results]
        results = state.free_node(scope, op, operands, state.types(op.results), DONE)
        scope.values.update(zip(op.results, results, strict=True))


def _tuple(state: WalkState, scope: Scope, op: Op) -> None:
    """Keep a tuple's elements; the tuple itself is a value only if something else uses it."""
    simple(state, scope, op)
    state.know(op.results[0], Known(elements=op.operands))


def _get_tuple_element(state: WalkState, scope: Scope, op: Op) -> None:
    """Return a tuple's element."""
    elements = state.known.get(op.operands[0], NOTHING).elements
    if elements is None:
        simple(state, scope, op)
    else:
        state.alias(scope, elements[op.attr("index")], op.results[0])


def _optimization_barrier(state: WalkState, scope: Scope, op: Op) -> None:
    """One free node that passes on each operand: its results exist when all its operands do."""
    if state.options.drop_barriers:
        state.aliases(scope, op.operands, op.results)
        return
    operands = [scope.use(value) for value in op.operands]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        state.tables.op(op.name),
        operands,
        state.types(op.results),
        role=Role.ALIAS,
        source=state.source(op.loc),
        order=scope.order(operands),
    )
    scope.values.update(zip(op.results, results, strict=True))
    for operand, result in zip(op.operands, op.results, strict=True):
        # The elements of a tuple also come after the barrier: they cannot bypass it.
        state.know(result, state.known.get(operand, NOTHING)._replace(elements=None))


HANDLERS: dict[str, Handler] = {
    "async_done": _async_done,
    "async_start": _region,
    "call": _call,
    "get_tuple_element": _get_tuple_element,
    "optimization_barrier": _optimization_barrier,
    "sdy.manual_computation": _region,
    "sdy.named_computation": _region,
    "tuple": _tuple,
}
