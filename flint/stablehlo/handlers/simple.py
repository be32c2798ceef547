"""Ops that their rule describes completely: one node each.

The idea: role and work follow from types, attributes and regions, so the row of each distinct op is
made once and cached.  For integers, the walk also keeps their expression in terms of rank, loop
counters and constants.
"""

from __future__ import annotations

from flint.errors import FlintError
from flint.graph.building import Row
from flint.graph.graph import NodeKind
from flint.graph.work import Role, Work
from flint.stablehlo.loops.loop_stacks import read
from flint.stablehlo.read.records import Op, details
from flint.stablehlo.rules import RULES, flops_known, rule_for, work_of
from flint.stablehlo.rules.forms import WITH_FORM, form_of
from flint.stablehlo.values.arrays import array_of, is_array
from flint.stablehlo.values.elementwise import SAME_ELEMENTS, is_scalar_integer
from flint.stablehlo.values.scalars import scalar_of
from flint.stablehlo.walk.blocks import communicates, free_values
from flint.stablehlo.walk.known import NOTHING, Known
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import WalkState

#: More FLOPs or bytes of one op are refused: sums must fit into 64 bits.
MAX_COUNT = 2**60

_TYPES_SUFFICE = {
    name
    for name, rule in RULES.items()
    if rule.types_only and rule.view is None and name not in WITH_FORM
}
_KINDS = {name: rule.kind for name, rule in RULES.items() if rule.kind is not None}


def simple(state: WalkState, scope: Scope, op: Op) -> None:
    """Add an op's node.

    Raises:
        FlintError: a communication inside an unknown op; an inconsistent op; with ``strict``, an
            unknown op.
    """
    if state.instead and id(op) in state.instead:
        state.instead.pop(id(op))(state, scope, op)
        return
    values = scope.values
    try:
        operands = [values[value] for value in op.operands]
    except KeyError:
        operands = [scope.use(value) for value in op.operands]
    if op.regions:
        _look_inside(state, scope, op, operands)
    name = op.name
    value_type = state.module.value_type
    key: tuple[object, ...] = (
        name,
        *[value_type[value] for value in op.operands],
        -1,
        *[value_type[value] for value in op.results],
    )
    if name not in _TYPES_SUFFICE:
        kind = _KINDS.get(name)
        key = (*key, details(op, value_type) if kind is None else kind(op))
    try:
        found = state.rows.get(key)
    except TypeError:  # an attribute that cannot be compared
        found = _row(state, op)
    if found is None:
        found = _row(state, op)
        if name in RULES and name != "custom_call":  # those warn each time
            state.rows[key] = found
    row, results, integer, array = found
    loc = op.loc
    source = state.origins.known.get(loc)
    if source is None:
        source = state.source(loc)
    order = scope.order(operands) if scope.gates else ()
    first = scope.builder.add(row, results, operands, source, order)
    if results == 1:
        values[op.results[0]] = first
    else:
        for number, value in enumerate(op.results):
            values[value] = first + number
    if integer or array:
        _keep(state, op, integer, array)


def _look_inside(state: WalkState, scope: Scope, op: Op, operands: list[int]) -> None:
    """Add the outside values that an op's regions use to its operands.

    Raises:
        FlintError: a communication inside an unknown op: how often it runs is unknown.
    """
    if op.name not in RULES and any(communicates(state, block) for block in op.regions):
        raise FlintError(
            f"{state.where(op)}: this unknown op contains a communication, and how often it runs "
            "is unknown"
        )
    for value in sorted(free_values(op.regions)):
        number = scope.use(value)
        if number not in operands:
            operands.append(number)


def _keep(state: WalkState, op: Op, integer: bool, array: bool) -> None:
    """Keep what is known about an op's first result."""
    module = state.module
    scalar = table = stack = now = None
    of_operand = state.known.get(op.operands[0], NOTHING) if op.operands else NOTHING
    if array:
        if op.name in SAME_ELEMENTS:
            stack = of_operand.stack
        table = array_of(op, module, state.scalar, state.array)
    if integer:
        scalar = scalar_of(op, module, state.scalar, state.array)
        if scalar is None and op.name == "dynamic_slice" and of_operand.stack is not None:
            scalar = read(op, module, of_operand.stack, state.scalar)
        if scalar is None and state.has_values:
            now = scalar_of(op, module, state.now, state.array)
    if not (scalar is None and table is None and stack is None and now is None):
        state.known[op.results[0]] = Known(scalar, table, stack, now=now)


def _row(state: WalkState, op: Op) -> tuple[int, int, bool, bool]:
    """(row, number of results, may the first have an expression, may it be an array)."""
    name, role, work = measure(state, op)
    types = tuple(state.types(op.results))
    row = state.tables.row(Row(int(NodeKind.COMPUTE), role, name, -1, 1, types, work))
    if not types:
        return row, 0, False, False
    first = state.module.types[types[0]]
    array = op.name == "constant" or is_array(first)
    return row, len(types), is_scalar_integer(first), array


def measure(state: WalkState, op: Op) -> tuple[int, int, Work]:
    """(op index, role, work) of an op by its rule.

    Raises:
        FlintError: the op contradicts itself, or is unknown (with ``strict``).
    """
    type_of = state.module.type_of
    ins = [type_of(value) for value in op.operands]
    outs = [type_of(value) for value in op.results]
    rule, known = rule_for(op)
    name = op.name if op.name != "custom_call" else str(op.attr("target", "custom_call"))
    if not known:
        _unknown(state, op, name)
    elif op.name == "custom_call" and not flops_known(op, ins, outs):
        what = "calls Python on the host: its time is" if "_python_" in name else "its FLOPs are"
        state.warnings[f"custom_call @{name}: {what} not known (counted as 0)"] += 1
    try:
        work = work_of(op, ins, outs)
    except FlintError as error:
        raise FlintError(f"{state.where(op)}: {error}") from error
    check_size(state, op, name, work)
    view = rule.view is not None and rule.view(op, ins, outs)
    op_index = state.tables.op(name, form=form_of(op, ins))
    return op_index, int(Role.ALIAS if view else rule.role), work


def check_size(state: WalkState, op: Op, name: str, work: Work) -> None:
    """Refuse an op with an impossible amount of work.

    Raises:
        FlintError: more than ``MAX_COUNT`` bytes or FLOPs.
    """
    if max(work.read, work.written, *(item.flops for item in work.items)) > MAX_COUNT:
        raise FlintError(f"{state.where(op)}: {name} has more than 2**60 FLOPs or bytes")


def _unknown(state: WalkState, op: Op, name: str) -> None:
    kind = "custom_call target" if op.name == "custom_call" else "op"
    if state.options.strict:
        raise FlintError(f"{state.where(op)}: unknown {kind} {name} (--strict)")
    state.warnings[f"unknown {kind} {name}: counted by the bytes of its operands and results"] += 1
