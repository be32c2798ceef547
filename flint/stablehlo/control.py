"""Control flow and structure: calls, loops, branches, async pairs, tuples, barriers, composites.

The idea: one handler per op that has regions or plumbing instead of work, in the table
``HANDLERS``.  Calls are opened; a loop is a node with a body; a branch that the rank decides is a
conditional node (a pass splits the ranks), one that data decides is opened behind its predicate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from flint.building import GraphBuilder, with_tables
from flint.errors import FlintError, UsageError
from flint.graph import Conditional, EdgeKind, Loop, NodeKind, WorkloadGraph
from flint.scalars import Scalar, combine, constant
from flint.stablehlo.loops import after_loop, argument_scalars, counters, trip_count
from flint.stablehlo.records import Block, Op
from flint.stablehlo.scope import Scope
from flint.work import Role, Work, WorkItem

if TYPE_CHECKING:
    from flint.stablehlo.walker import Walker

Handler = Callable[["Walker", Scope, Op, Block], None]

#: Calls nested deeper than this are taken for a cycle.
MAX_CALL_DEPTH = 200


def open_block(walker: Walker, scope: Scope, block: Block, operands: tuple[int, ...]) -> None:
    """Walk a block in place, its arguments bound to values of ``scope``."""
    for argument, operand in zip(block.args, operands, strict=True):
        walker.alias(scope, operand, argument)
    walker.block(scope, block)


def call(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Open a call."""
    callee = walker.module.functions[op.attr("callee")]
    walker.call_depth += 1
    if walker.call_depth > MAX_CALL_DEPTH:
        raise FlintError(
            f"{walker.where(op)}: calls nest deeper than {MAX_CALL_DEPTH}; "
            f"does @{op.attr('callee')} call itself?"
        )
    open_block(walker, scope, callee, op.operands)
    walker.call_depth -= 1
    for value, result in zip(callee.yields, op.results, strict=True):
        walker.alias(scope, value, result)


def region(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Open an op whose region runs once with its operands (async_start, manual computations)."""
    block = op.regions[0]
    open_block(walker, scope, block, op.operands)
    if len(op.results) == len(block.yields) and op.name != "async_start":
        for value, result in zip(block.yields, op.results, strict=True):
            walker.alias(scope, value, result)
    else:
        walker.futures[op.results[0]] = block.yields


def async_done(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """Hand out what the matching async_start has computed."""
    values = walker.futures.get(op.operands[0], op.operands)
    for value, result in zip(values, op.results, strict=True):
        walker.alias(scope, value, result)


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
        order=scope.order(operands),
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
    function = op.attr("decomposition")
    decomposition = walker.module.functions[function]
    if communicates(walker, decomposition):
        open_block(walker, scope, decomposition, op.operands)
        for value, result in zip(decomposition.yields, op.results, strict=True):
            walker.alias(scope, value, result)
        return
    _kernel(walker, scope, op, str(op.attr("name", "composite")), _inside(walker, function, 0))


def fusion(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """A kernel that a backend has fused: the FLOPs of what is inside, the bytes of its boundary."""
    items = work_inside(walker, op.regions[0], 0) if op.regions else ()
    _kernel(walker, scope, op, op.name, items)


def _kernel(walker: Walker, scope: Scope, op: Op, name: str, items: tuple[WorkItem, ...]) -> None:
    ins = [walker.module.type_of(value) for value in op.operands]
    outs = [walker.module.type_of(value) for value in op.results]
    work = Work(items, sum(item.bytes for item in ins), sum(item.bytes for item in outs))
    operands = [scope.use(value) for value in op.operands]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        walker.tables.op(name),
        operands,
        [walker.module.value_type[value] for value in op.results],
        role=Role.OPAQUE,
        work=work,
        source=walker.source(op.loc),
        order=scope.order(operands),
    )
    for value, number in zip(op.results, results, strict=True):
        scope.values[value] = number


def _inside(walker: Walker, function: str, depth: int) -> tuple[WorkItem, ...]:
    """Work of a function, worked out once."""
    items = walker.work_of_function.get(function)
    if items is None:
        items = work_inside(walker, walker.module.functions[function], depth)
        walker.work_of_function[function] = items
    return items


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
        function = op.attr("callee") or op.attr("decomposition")
        if function is not None:
            add(_inside(walker, function, depth + 1))
        elif op.name in HANDLERS and op.regions:
            for body in op.regions:
                add(work_inside(walker, body, depth + 1))
            if op.name == "while":
                walker.warnings["a loop inside a kernel: its FLOPs are counted once"] += 1
            elif op.name in ("case", "if"):
                walker.warnings["a conditional inside a kernel: all its branches count"] += 1
        else:
            add(walker.measure(op)[2].items)
    return tuple(total.values())


def communicates(walker: Walker, block: Block, depth: int = 0) -> bool:
    """Whether anything that ``block`` runs is a communication."""
    known = walker.communicating.get(id(block))
    if known is None:
        if depth > MAX_CALL_DEPTH:
            raise FlintError("composites or calls nest too deeply")
        known = any(_is_or_holds_communication(walker, op, depth) for op in block.ops)
        walker.communicating[id(block)] = known
    return known


def _is_or_holds_communication(walker: Walker, op: Op, depth: int) -> bool:
    if walker.exchange.kind_of(op) is not None:
        return True
    function = op.attr("callee") or op.attr("decomposition")
    inside = [walker.module.functions[function]] if function is not None else []
    return any(communicates(walker, body, depth + 1) for body in (*inside, *op.regions))


def while_(walker: Walker, scope: Scope, op: Op, _block: Block) -> None:
    """A loop: one node with a body, its trip count proved, stated or given."""
    condition, body = op.regions
    name = walker.name("while")
    level = scope.level
    steps = counters(body, walker.module, scope.scalar)
    inits = [scope.scalar(value) for value in op.operands]
    dtypes = [walker.module.type_of(value).dtype for value in op.operands]
    arguments = argument_scalars(inits, steps, dtypes, level)

    def describe() -> str:
        return f"loop {name} ({walker.where(op)})"

    trips = trip_count(
        condition, walker.module, arguments, level, scope.scalar, walker.constants, describe
    )
    known_by = "proved"
    # A condition that only counts costs nothing; others run before each iteration and once more.
    decided = trips is None or communicates(walker, condition)
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
    if decided:
        inner.gate(_condition(walker, inner, condition, body.args))
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
        loop, operands, source=walker.source(op.loc), order=scope.order(operands)
    )
    for number, result in zip(carried, results, strict=True):
        value = op.results[number]
        scope.values[value] = result
        _bind(scope, value, after_loop(inits[number], steps[number], trips, dtypes[number]))
    for number in fixed:
        walker.alias(scope, op.operands[number], op.results[number])
    if decided:
        # The condition runs once more than the body, on what the last iteration yields; whoever
        # uses the loop's results waits until it is false.
        before = scope.builder.results
        predicate = _condition(walker, scope, condition, op.results)
        if predicate >= before:
            _behind(walker, scope, op, [op.results[i] for i in carried], predicate)


def _behind(walker: Walker, scope: Scope, op: Op, values: list[int], predicate: int) -> None:
    """Let ``values`` be what they are and, from here on, wait for ``predicate`` as well."""
    if not values:
        return
    operands = [scope.values[value] for value in values]
    results = scope.builder.node(
        NodeKind.COMPUTE,
        walker.tables.op(op.name),
        operands,
        [walker.module.value_type[value] for value in values],
        role=Role.ALIAS,
        source=walker.source(op.loc),
        order=[(scope.builder.producer_of(predicate), EdgeKind.ORDER)],
    )
    for value, number in zip(values, results, strict=True):
        scope.values[value] = number


def _condition(walker: Walker, scope: Scope, condition: Block, values: tuple[int, ...]) -> int:
    """Walk a loop condition on ``values``; the number of its result."""
    open_block(walker, scope, condition, values)
    return scope.use(condition.yields[0])


def _bind(scope: Scope, value: int, scalar: Scalar | None) -> None:
    if scalar is None:
        scope.scalars.pop(value, None)
    else:
        scope.scalars[value] = scalar


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
        walker.alias(scope, value, result)


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
    operands = [scope.use(value) for value in captured]
    results = scope.builder.conditional(
        conditional,
        operands,
        [walker.module.value_type[value] for value in op.results],
        source=walker.source(op.loc),
        order=scope.order(operands),
    )
    for value, number in zip(op.results, results, strict=True):
        scope.values[value] = number


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
    walker.deciding += 1
    branch = _chosen(walker, scope, op, name)
    predicate = scope.use(op.operands[0])
    outer = scope.gates, scope.gated_from
    scope.gate(predicate)
    inside = scope.gated_from
    _open_branch(walker, scope, op, branch)
    scope.gates, scope.gated_from = outer
    walker.deciding -= 1
    if not walker.deciding:
        walker.choices.clear()
    if predicate >= 0:
        passed = [value for value in op.results if scope.values[value] < inside]
        _behind(walker, scope, op, passed, predicate)


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
    best = walker.choices.get(id(op))
    if best is None:
        walker.choosing += 1
        trials = [_trial(walker, scope, block) for block in op.regions]
        walker.choosing -= 1
        if len({exchanged for _, exchanged in trials}) > 1:
            raise FlintError(
                f"the branches of {name} ({walker.where(op)}) communicate differently and its "
                f"predicate depends on data: choose with --branch N (or --branch {name}=N)"
            )
        best = max(range(len(trials)), key=lambda i: trials[i][0])
        if walker.choosing:
            # An outer conditional will walk this one again: once in its trial, once in earnest.
            walker.choices[id(op)] = best
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
    found = _cost(graph), _exchanged(graph)
    del walker.tables.communications[before:]
    walker.warnings, walker.names, walker.ops = warnings, names, ops
    for s, values, captured, types in zip(_chain(scope), *outer, inputs, strict=True):
        s.values, s.captured, s.builder.input_type = values, captured, types
    return found


def _cost(graph: WorkloadGraph) -> int:
    """FLOPs, transcendentals and bytes of a graph, loops multiplied out."""
    cost = 0
    for part, times in graph.walk():
        flops = part.flops_by_node() + part.transcendentals_by_node()
        cost += times * int(flops.sum() + (part.bytes_read + part.bytes_written).sum())
    return cost


def _exchanged(graph: WorkloadGraph) -> tuple[object, ...]:
    """What a graph communicates, in order, but for channel ids: equal for equal exchanges."""
    items: list[object] = []
    for index in (graph.kind != NodeKind.COMPUTE).nonzero()[0].tolist():
        kind, detail = int(graph.kind[index]), int(graph.detail[index])
        if kind == NodeKind.COMMUNICATION:
            items.append(replace(graph.tables.communications[detail], channel=0))
        elif kind == NodeKind.LOOP:
            loop = graph.loops[detail]
            inside = _exchanged(loop.body)
            if inside and loop.trip_count:
                items.append((loop.trip_count, inside))
        else:
            item = graph.conditionals[detail]
            branches = tuple(map(_exchanged, item.branches))
            if any(branches):
                key = None if item.predicate is None else item.predicate.key
                items.append((key, branches))
    return tuple(items)


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
    "fusion": fusion,
    "get_tuple_element": get_tuple_element,
    "if": case,
    "optimization_barrier": optimization_barrier,
    "sdy.manual_computation": region,
    "sdy.named_computation": region,
    "tuple": tuple_,
    "while": while_,
}
