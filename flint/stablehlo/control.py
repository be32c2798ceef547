"""Control flow and structure: calls, loops, branches, async pairs, tuples, barriers, composites.

The idea: one handler per op that has regions or plumbing instead of work, in the table ``HANDLERS``.
Calls are opened; a loop is a node with a body; a branch that the rank decides is a conditional node
(a pass splits the ranks), one that data decides is opened after its predicate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from flint.building import GraphBuilder, with_tables
from flint.errors import FlintError, UsageError
from flint.graph import Conditional, Loop, NodeKind, WorkloadGraph
from flint.scalars import Scalar, combine, constant
from flint.stablehlo.loops import argument_scalars, counters, trip_count
from flint.stablehlo.records import Block, Op
from flint.stablehlo.rules import rule_for
from flint.stablehlo.scope import Scope
from flint.work import Role, Work, WorkItem

if TYPE_CHECKING:
    from flint.stablehlo.walker import Walker

Handler = Callable[["Walker", Scope, Op, Block], None]


def open_block(walker: Walker, scope: Scope, block: Block, operands: tuple[int, ...]) -> None:
    """Walk a block in place, its arguments bound to values of ``scope``."""
    for argument, operand in zip(block.args, operands, strict=True):
        walker.alias(scope, _NOTHING, operand, argument)
        if operand in walker.constants:
            walker.constants[argument] = walker.constants[operand]
    walker.block(scope, block)


_NOTHING = Op("", (), ())


def call(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Open a call."""
    callee = walker.module.functions[op.attr("callee")]
    walker.call_depth += 1
    if walker.call_depth > 200:
        raise FlintError(f"{walker.where(op)}: @{op.attr('callee')} calls itself")
    open_block(walker, scope, callee, op.operands)
    walker.call_depth -= 1
    for value, result in zip(callee.yields, op.results, strict=True):
        walker.alias(scope, op, value, result)


def region(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Open an op whose region runs once with its operands (async_start, manual computations)."""
    block = op.regions[0]
    open_block(walker, scope, block, op.operands)
    if len(op.results) == len(block.yields) and op.name != "async_start":
        for value, result in zip(block.yields, op.results, strict=True):
            walker.alias(scope, op, value, result)
    else:
        walker.futures[op.results[0]] = block.yields


def async_done(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Hand out what the matching async_start has computed."""
    values = walker.futures.get(op.operands[0], op.operands)
    for value, result in zip(values, op.results, strict=True):
        walker.alias(scope, op, value, result)


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
        walker.alias(scope, op, elements[op.attr("index")], op.results[0])


def optimization_barrier(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Pass each operand through; with ``keep_barriers`` one node joins them."""
    types = [walker.module.value_type[value] for value in op.results]
    operands = [scope.use(value) for value in op.operands]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        walker.tables.op(op.name),
        operands,
        types,
        role=Role.OPAQUE if walker.options.keep_barriers else Role.ALIAS,
        source=walker.source(op.loc),
    )
    for value, number in zip(op.results, results, strict=True):
        scope.values[value] = number
    for operand, result in zip(op.operands, op.results, strict=True):
        scalar = scope.scalar(operand)
        if scalar is not None:
            scope.scalars[result] = scalar


def dynamic_slice(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """A slice; nothing when a reduce-scatter gives the shard already."""
    if not walker.slice_of_shard(scope, op):
        walker.simple(scope, op)


def composite(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """One kernel with its decomposition's FLOPs; opened when it communicates."""
    decomposition = walker.module.functions[op.attr("decomposition")]
    if _communicates(walker, decomposition):
        open_block(walker, scope, decomposition, op.operands)
        for value, result in zip(decomposition.yields, op.results, strict=True):
            walker.alias(scope, op, value, result)
        return
    ins = [walker.module.type_of(value) for value in op.operands]
    outs = [walker.module.type_of(value) for value in op.results]
    work = Work(
        work_inside(walker, decomposition, 0),
        sum(item.bytes for item in ins),
        sum(item.bytes for item in outs),
    )
    operands = [scope.use(value) for value in op.operands]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        walker.tables.op(str(op.attr("name", "composite"))),
        operands,
        [walker.module.value_type[value] for value in op.results],
        role=Role.OPAQUE,
        work=work,
        source=walker.source(op.loc),
        order=walker.gate(scope, operands),
    )
    for value, number in zip(op.results, results, strict=True):
        scope.values[value] = number


def work_inside(walker: Walker, block: Block, depth: int) -> tuple[WorkItem, ...]:
    """Work items of everything a block does, by unit, type and GEMM size; loops are not counted."""
    if depth > 100:
        raise FlintError("composites or calls nest too deeply")
    total: dict[tuple[object, ...], WorkItem] = {}

    def add(items: tuple[WorkItem, ...]) -> None:
        for item in items:
            key = (item.unit, item.dtype, item.dims)
            known = total.get(key)
            total[key] = item if known is None else item._replace(flops=known.flops + item.flops)

    for op in block.ops:
        inner = op.attr("callee") or op.attr("decomposition")
        if inner is not None:
            add(work_inside(walker, walker.module.functions[inner], depth + 1))
            continue
        rule, _ = rule_for(op)
        if rule.role == Role.CONTROL:
            for body in op.regions:
                add(work_inside(walker, body, depth + 1))
            if op.name == "while":
                walker.warnings["a loop inside a composite: its FLOPs are counted once"] += 1
            continue
        type_of = walker.module.type_of
        add(
            rule.work(op, [type_of(v) for v in op.operands], [type_of(v) for v in op.results]).items
        )
    return tuple(total.values())


def _communicates(walker: Walker, block: Block, depth: int = 0) -> bool:
    for op in block.ops:
        if walker.exchange.kind_of(op) is not None:
            return True
        inner = op.attr("callee") or op.attr("decomposition")
        if inner is not None and depth < 100:
            if _communicates(walker, walker.module.functions[inner], depth + 1):
                return True
        if any(_communicates(walker, body, depth + 1) for body in op.regions):
            return True
    return False


def while_(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """A loop: one node with a body, its trip count proved, stated or given."""
    condition, body = op.regions
    name = walker.name("while")
    level = scope.level
    steps = counters(body, walker.module, scope.scalar)
    inits = [scope.scalar(value) for value in op.operands]
    arguments = argument_scalars(inits, steps, level)

    def describe() -> str:
        return f"loop {name} ({walker.where(op)})"

    trips = trip_count(
        condition, walker.module, arguments, level, scope.scalar, walker.constants, describe
    )
    known_by = "proved"
    counted = trips is not None
    if trips is None:
        trips, known_by = _trips_from_outside(walker, op, name, describe)
    invariant = [
        step == 0 and body.yields[number] == body.args[number] for number, step in enumerate(steps)
    ]
    carried = [i for i, fixed in enumerate(invariant) if not fixed]
    fixed = [i for i, is_fixed in enumerate(invariant) if is_fixed]
    inner = Scope(GraphBuilder(walker.tables), walker.module, scope, level + 1)
    for number in (*carried, *fixed):
        argument = body.args[number]
        inner.values[argument] = inner.builder.input(walker.module.value_type[argument])
        _bind(inner, argument, arguments[number])
    if not counted:
        _condition(walker, inner, condition, body.args)
    walker.block(inner, body)
    outputs = [inner.use(body.yields[number]) for number in carried]
    loop = Loop(
        inner.builder.finish(outputs),
        len(carried),
        trips,
        walker.options.lookahead,
        known_by,
    )
    operands = [scope.use(op.operands[number]) for number in (*carried, *fixed)]
    operands += [scope.use(value) for value in inner.captured]
    results = scope.builder.loop(
        loop, operands, source=walker.source(op.loc), order=walker.gate(scope, operands)
    )
    for number, result in zip(carried, results, strict=True):
        value = op.results[number]
        scope.values[value] = result
        _bind(scope, value, _after(inits[number], steps[number], trips))
    for number in fixed:
        walker.alias(scope, op, op.operands[number], op.results[number])
    if not counted:
        # The condition runs once more than the body, on what the last iteration yields.
        _condition(walker, scope, condition, op.results, gate=False)


def _condition(
    walker: Walker, scope: Scope, condition: Block, values: tuple[int, ...], gate: bool = True
) -> None:
    """Walk a loop condition on ``values``; what follows in the iteration waits for it."""
    for argument, value in zip(condition.args, values, strict=True):
        walker.alias(scope, _NOTHING, value, argument)
    walker.block(scope, condition)
    number = scope.use(condition.yields[0])
    if gate and number >= 0:
        scope.gate = scope.builder.producer_of(number)


def _bind(scope: Scope, value: int, scalar: Scalar | None) -> None:
    if scalar is None:
        scope.scalars.pop(value, None)
    else:
        scope.scalars[value] = scalar


def _after(init: Scalar | None, step: int | None, trips: int) -> Scalar | None:
    if init is None or step is None:
        return None
    return combine("add", (init, constant(step * trips)))


def _trips_from_outside(
    walker: Walker, op: Op, name: str, describe: Callable[[], str]
) -> tuple[int, str]:
    given = walker.options.trip_counts
    key = name if name in given else ""
    if key in given:
        walker.used_options.add(key)
        if given[key] < 0:
            raise UsageError(f"--trip-count {given[key]}: a loop runs 0 times or more")
        return given[key], "given"
    stated = op.attr("trip_count")
    if stated is not None:
        return int(stated), "stated"
    raise FlintError(
        f"the trip count of {describe()} depends on data: "
        f"give it with --trip-count N (or --trip-count {name}=N)"
    )


def case(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """A conditional: opened when constant, a node when the rank decides, else one branch."""
    name = walker.name("case")
    predicate = scope.scalar(op.operands[0])
    if predicate is not None and op.name == "if":
        predicate = combine("select", (predicate, constant(0), constant(1)))
    elif predicate is not None:
        predicate = _clamped(predicate, len(op.regions))
    if predicate is None:
        _by_data(walker, scope, op, name)
    elif predicate.op == "constant":
        _open_branch(walker, scope, op, int(predicate.value))
    else:
        _by_rank(walker, scope, op, predicate)


def _clamped(index: Scalar, branches: int) -> Scalar | None:
    """``case`` takes its last branch for an index out of range."""
    last = constant(branches - 1)
    low = combine("compare", (index, constant(0)), "LT")
    high = combine("compare", (index, last), "GT")
    outside = None if low is None or high is None else combine("or", (low, high))
    return None if outside is None else combine("select", (outside, last, index))


def _open_branch(walker: Walker, scope: Scope, op: Op, branch: int) -> None:
    block = op.regions[branch]
    walker.block(scope, block)
    for value, result in zip(block.yields, op.results, strict=True):
        walker.alias(scope, op, value, result)


def _by_rank(walker: Walker, scope: Scope, op: Op, predicate: Scalar) -> None:
    """A conditional node; all branches get the same inputs."""
    scopes = []
    for block in op.regions:
        inner = Scope(GraphBuilder(walker.tables), walker.module, scope, scope.level)
        walker.block(inner, block)
        outputs = [inner.use(value) for value in block.yields]
        scopes.append((inner, outputs))
    captured = list(dict.fromkeys(value for inner, _ in scopes for value in inner.captured))
    branches = tuple(_with_inputs(inner, captured, outputs) for inner, outputs in scopes)
    conditional = Conditional(branches, predicate, 0, "predicate")
    results = scope.builder.conditional(
        conditional,
        [scope.use(value) for value in captured],
        [walker.module.value_type[value] for value in op.results],
        source=walker.source(op.loc),
    )
    for value, number in zip(op.results, results, strict=True):
        scope.values[value] = number
        scope.scalars.pop(value, None)


def _with_inputs(scope: Scope, captured: list[int], outputs: list[int]) -> WorkloadGraph:
    """The scope's graph with one input per captured value, in the given order."""
    builder = scope.builder
    for value in captured:
        scope.use(value)
    place = {value: number for number, value in enumerate(captured)}
    new_number = {-1 - i: -1 - place[value] for i, value in enumerate(scope.captured)}
    for i, number in enumerate(builder.operand):
        if number < 0:
            builder.operand[i] = new_number[number]
    builder.input_type = [scope.module.value_type[value] for value in captured]
    return builder.finish([new_number.get(number, number) for number in outputs])


def _by_data(walker: Walker, scope: Scope, op: Op, name: str) -> None:
    """Open one branch of a conditional that data decides, behind its predicate."""
    branch = _chosen(walker, scope, op, name)
    number = scope.use(op.operands[0])
    outer_gate = scope.gate
    if number >= 0:
        scope.gate = scope.builder.producer_of(number)
    _open_branch(walker, scope, op, branch)
    scope.gate = outer_gate


def _chosen(walker: Walker, scope: Scope, op: Op, name: str) -> int:
    given = walker.options.branches
    key = name if name in given else ""
    if key in given:
        walker.used_options.add(key)
        if not 0 <= given[key] < len(op.regions):
            raise UsageError(
                f"--branch {given[key]}: {name} ({walker.where(op)}) has branches "
                f"0 to {len(op.regions) - 1}"
            )
        return given[key]
    trials = [_trial(walker, scope, block) for block in op.regions]
    if len({exchanged for _, exchanged in trials}) > 1:
        raise FlintError(
            f"the branches of {name} ({walker.where(op)}) communicate differently and its "
            f"predicate depends on data: choose with --branch N (or --branch {name}=N)"
        )
    best = max(range(len(trials)), key=lambda i: trials[i][0])
    walker.warnings[
        "a conditional that data decides: its most expensive branch is taken (--branch chooses)"
    ] += 1
    return best


def _trial(walker: Walker, scope: Scope, block: Block) -> tuple[int, tuple[object, ...]]:
    """(cost, what is exchanged) of a branch, walked for comparison and thrown away."""
    before = len(walker.tables.communications)
    warnings, names, ops = walker.warnings.copy(), walker.names.copy(), walker.ops
    inner = Scope(GraphBuilder(walker.tables), walker.module, scope, scope.level)
    outer = [dict(s.values) for s in _chain(scope)], [list(s.captured) for s in _chain(scope)]
    inputs = [list(s.builder.input_type) for s in _chain(scope)]
    walker.block(inner, block)
    graph = with_tables(inner.builder.finish(()), walker.tables.finish())
    cost, exchanged = 0, []
    for part, times in graph.walk():
        flops = part.flops_by_node() + part.transcendentals_by_node()
        moved = part.bytes_read + part.bytes_written
        cost += times * int(flops.sum() + moved.sum())
        for index in (part.kind == NodeKind.COMMUNICATION).nonzero()[0]:
            item = graph.tables.communications[int(part.detail[index])]
            exchanged.append((item, times))
    del walker.tables.communications[before:]
    walker.warnings, walker.names, walker.ops = warnings, names, ops
    for s, values, captured, types in zip(_chain(scope), *outer, inputs, strict=True):
        s.values, s.captured, s.builder.input_type = values, captured, types
    return cost, tuple(exchanged)


def _chain(scope: Scope | None) -> list[Scope]:
    scopes = []
    while scope is not None:
        scopes.append(scope)
        scope = scope.parent
    return scopes


HANDLERS: dict[str, Handler] = {
    "async_done": async_done,
    "async_start": region,
    "call": call,
    "case": case,
    "composite": composite,
    "dynamic_slice": dynamic_slice,
    "get_tuple_element": get_tuple_element,
    "if": case,
    "optimization_barrier": optimization_barrier,
    "sdy.manual_computation": region,
    "sdy.named_computation": region,
    "tuple": tuple_,
    "while": while_,
}
