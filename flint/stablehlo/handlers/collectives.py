"""Collectives and custom calls.

The idea: a record that exchanges data becomes a communication.  An all-reduce of which each rank
keeps only its own shard becomes a reduce-scatter: the ops up to the slice work on the shard, and
the slice does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flint.errors import FlintError
from flint.graph.communication import UPPER_BOUND, Communication
from flint.graph.graph import NodeKind
from flint.graph.scalars import Scalar
from flint.graph.tensor_types import TensorType, tensor_type
from flint.stablehlo.collectives.communications import KINDS, kind_of
from flint.stablehlo.collectives.reduce_scatter import Finder
from flint.stablehlo.collectives.remote_copies import messages_of
from flint.stablehlo.handlers.simple import simple
from flint.stablehlo.read.records import REMOTE_COPIES, Op
from flint.stablehlo.rules import rule_for
from flint.stablehlo.values.arrays import array_of
from flint.stablehlo.values.elementwise import is_scalar_integer
from flint.stablehlo.values.scalars import scalar_of
from flint.stablehlo.walk.blocks import is_or_holds_communication, wait_for
from flint.stablehlo.walk.known import Known
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import Handler, WalkState


def _custom_call(state: WalkState, scope: Scope, op: Op) -> None:
    """A custom call: a communication or a kernel, by its target.

    How the target uses computations that are passed to it is unknown; they may not communicate.

    Raises:
        FlintError: a communication inside: when and how often it runs is unknown.
    """
    if kind_of(op) is not None:
        _collective(state, scope, op)
        return
    sends = op.attr(REMOTE_COPIES)
    if sends is not None:
        _sending_kernel(state, scope, op, str(sends))
        return
    if is_or_holds_communication(state, op):
        raise FlintError(
            f"{state.where(op)}: custom_call @{op.attr('target', '')} calls a computation with a "
            "communication, and how often it runs is unknown"
        )
    simple(state, scope, op)


def _sending_kernel(state: WalkState, scope: Scope, op: Op, stated: str) -> None:
    """A kernel that copies to other devices: it runs beside its messages, and its results wait for
    them.

    Raises:
        FlintError: the messages do not fit the devices.
    """
    operands = [scope.use(value) for value in op.operands]
    simple(state, scope, op)
    try:
        sent = messages_of(stated, state.world)
    except FlintError as error:
        raise FlintError(f"{state.where(op)}: {error}") from error
    for item in sent:
        received = tensor_type((item.bytes_out,), "ui8")
        (arrived,) = scope.builder.communication(
            item, operands, [received], source=state.source(op.loc), order=scope.order(operands)
        )
        wait_for(state, scope, op, arrived, list(op.results))


def _collective(state: WalkState, scope: Scope, op: Op) -> None:
    """A communication."""
    kind = kind_of(op)
    if kind is None or op.attr("is_host_transfer", False):
        state.warnings[f"{op.name} to the host: counted as data movement"] += 1
        simple(state, scope, op)
        return
    try:
        item = state.collectives.communication(op, kind, state.array)
    except FlintError as error:
        raise FlintError(f"{state.where(op)}: {error}") from error
    operands = [scope.use(value) for value in op.operands]
    types = [state.module.type_of(value) for value in op.results]
    if kind == "all_reduce" and _may_scatter(state):
        item, types = _scatter(state, scope, op, item, types)
    routes = state.options.routing is not None and kind == "ragged_all_to_all"
    if not item.exact and not routes:
        state.warnings[f"{kind} of data-dependent size: counted at {UPPER_BOUND}"] += 1
    results = scope.builder.communication(
        item, operands, types, source=state.source(op.loc), order=scope.order(operands)
    )
    scope.values.update(zip(op.results, results, strict=True))


def _may_scatter(state: WalkState) -> bool:
    """Whether a later backend would make reduce-scatters."""
    module = state.module
    return state.options.reduce_scatter and not (module.issues or module.optimized)


def _scatter(
    state: WalkState, scope: Scope, op: Op, item: Communication, types: list[TensorType]
) -> tuple[Communication, list[TensorType]]:
    """The reduce-scatter that an all-reduce is, or the all-reduce unchanged."""
    if state.scatters is None:
        state.scatters = Finder(state.module, state.world)
    found = state.scatters.find(op, scope.block, item, _on_demand(state, scope, state.scatters))
    if found is None:
        return item, types
    for between in found.between:
        state.instead[id(between)] = partial(_on_shard, found.shard)
    state.instead[id(found.slice)] = _is_shard
    shard = tensor_type(found.shard, types[0].dtype)
    scattered = replace(
        item, kind="reduce_scatter", result_bytes=(shard.bytes,), origin="all_reduce"
    )
    return scattered, [shard]


def _on_demand(state: WalkState, scope: Scope, finder: Finder) -> Callable[[int], Scalar | None]:
    """Expressions of values of the scope's block, also of later ops."""
    makers = finder.makers(scope.block)
    module = state.module
    ahead: dict[int, Scalar | None] = {}

    def scalar(value: int, depth: int = 0) -> Scalar | None:
        op = makers.get(value)
        if op is None or value in scope.values:
            return state.scalar(value)
        if value in ahead or depth > 64:
            return ahead.get(value)
        ahead[value] = None
        if value == op.results[0] and is_scalar_integer(module.type_of(value)):
            for operand in op.operands:
                made = makers.get(operand)
                if made is None or operand in state.known or made.name not in ("constant", "iota"):
                    continue
                table = array_of(made, module, state.scalar, state.array)
                state.know(operand, Known(array=table))
            ahead[value] = scalar_of(op, module, lambda v: scalar(v, depth + 1), state.array)
        return ahead[value]

    return scalar


def _on_shard(shape: tuple[int, ...], state: WalkState, scope: Scope, op: Op) -> None:
    """An op between an all-reduce that is a reduce-scatter and its slice: it works only on the
    shard.
    """
    ins = [tensor_type(shape, state.module.type_of(op.operands[0]).dtype)]
    outs = [tensor_type(shape, state.module.type_of(op.results[0]).dtype)]
    rule, _ = rule_for(op)
    (scope.values[op.results[0]],) = scope.builder.node(
        NodeKind.COMPUTE,
        state.tables.op(op.name),
        [scope.use(value) for value in op.operands],
        [state.tables.type(outs[0])],
        role=rule.role,
        work=rule.work(op, ins, outs),
        source=state.source(op.loc),
    )


def _is_shard(_state: WalkState, scope: Scope, op: Op) -> None:
    """The slice after such ops: the shard already exists."""
    scope.values[op.results[0]] = scope.values[op.operands[0]]


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(KINDS, _collective),
    **dict.fromkeys([f"mhlo.{name}" for name in KINDS], _collective),
    "custom_call": _custom_call,
}
