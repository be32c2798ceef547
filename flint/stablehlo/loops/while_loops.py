"""Loops: ``while`` ops -> loop nodes.

The idea: what is carried, what is invariant and how often the loop runs is found in ``counted.py``;
here the body becomes a graph and the loop a node.  A loop that is not counted runs its condition in
every iteration, in front of the body, and once more behind the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flint.errors import FlintError, UsageError
from flint.graph.building import GraphBuilder
from flint.graph.graph import Conditional, Loop
from flint.graph.scalars import Scalar, constant
from flint.stablehlo.loops.counted import (
    after_loop,
    argument_scalars,
    counters,
    going_on,
    stepped_trips,
    trip_count,
)
from flint.stablehlo.loops.loop_stacks import stacked
from flint.stablehlo.loops.varying_loops import Trips, varying_trips
from flint.stablehlo.opening import behind, communicates, open_block
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.scope import Scope

if TYPE_CHECKING:
    from flint.stablehlo.walker import Walker


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

    _forget(walker, condition)
    goes_on = going_on(condition, walker.module, arguments, scope.scalar, walker.constants.get)
    trips = None if goes_on is None else trip_count(goes_on, level, describe)
    varying = None
    if goes_on is not None and trips is None:
        world = walker.world
        varying = varying_trips(goes_on, level, scope.around, world.partitions, world.replicas)
        if varying is not None:
            trips = varying.counts[-1]
    if goes_on is None:
        _forget(walker, body)
        for number, argument in enumerate(body.args):
            if steps[number] == 0 and body.yields[number] == argument:
                walker.keep_array(op.operands[number], argument)
        tables = walker.constants.get
        trips = stepped_trips(condition, body, walker.module, inits, scope.scalar, tables)
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
    inner = Scope(GraphBuilder(walker.tables), walker.module, scope, (*scope.around, trips))
    for number in (*carried, *fixed):
        argument = body.args[number]
        inner.values[argument] = inner.builder.input(walker.module.value_type[argument])
        _bind(inner, argument, arguments[number])
        if steps[number] == 0:
            walker.keep_array(op.operands[number], argument)
        else:
            walker.constants.pop(argument, None)
            walker.stacks.pop(argument, None)
    if decided:
        inner.gate(_condition(walker, inner, condition, body.args))
    walker.block(inner, body)
    outputs = [
        walker.view(inner, op, body.yields[number], walker.module.value_type[body.args[number]])
        for number in carried
    ]
    stacks = {
        number: None
        if decided or varying is not None
        else stacked(walker.module, body, number, trips, level, inner.scalar)
        for number in carried
    }
    loop = Loop(
        inner.builder.finish(outputs),
        len(carried),
        trips,
        walker.options.lookahead,
        known_by,
    )
    operands = [
        walker.view(scope, op, op.operands[number], walker.module.value_type[body.args[number]])
        for number in (*carried, *fixed)
    ]
    operands += [scope.use(value) for value in inner.captured]
    results = _add(walker, scope, op, loop, varying, operands)
    times = constant(trips) if varying is None else varying.count
    for number, result in zip(carried, results, strict=True):
        value = op.results[number]
        scope.values[value] = result
        _bind(scope, value, after_loop(inits[number], steps[number], times, dtypes[number]))
        if steps[number] == 0:
            walker.keep_array(op.operands[number], value)
        walker.keep_stack(stacks[number], value)
    for number in fixed:
        walker.alias(scope, op.operands[number], op.results[number])
    if decided:
        # The condition runs once more than the body, on what the last iteration yields; whoever
        # uses the loop's results waits until it is false.
        before = scope.builder.results
        predicate = _condition(walker, scope, condition, op.results)
        if predicate >= before:
            behind(walker, scope, op, [op.results[i] for i in carried], predicate)


def _add(
    walker: Walker, scope: Scope, op: Op, loop: Loop, varying: Trips | None, operands: list[int]
) -> range:
    """Add a loop, by a conditional with a branch per number of iterations where that differs."""
    source, order = walker.source(op.loc), scope.order(operands)
    if varying is None or len(varying.counts) == 1:
        return scope.builder.loop(loop, operands, source=source, order=order)
    branches = []
    for count in varying.counts:
        builder = GraphBuilder(walker.tables)
        inputs = [builder.input(int(kind)) for kind in loop.body.input_type]
        outputs: Sequence[int] = inputs[: loop.carried]
        if count:
            outputs = builder.loop(replace(loop, trip_count=count), inputs, source=source)
        branches.append(builder.finish(outputs))
    kinds = loop.body.input_type[: loop.carried].tolist()
    which = Conditional(tuple(branches), varying.which, len(branches) - 1, "predicate")
    return scope.builder.conditional(which, operands, kinds, source=source, order=order)


def _condition(walker: Walker, scope: Scope, condition: Block, values: tuple[int, ...]) -> int:
    """Walk a loop condition on ``values``; the number of its result."""
    open_block(walker, scope, condition, values)
    return scope.use(condition.yields[0])


def _forget(walker: Walker, block: Block) -> None:
    """Arrays that a block had when it was walked before, called from somewhere else."""
    for op in block.ops:
        for value in op.results:
            walker.constants.pop(value, None)
        for region in op.regions:
            _forget(walker, region)
    for value in block.args:
        walker.constants.pop(value, None)


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
            raise UsageError(f"--trip-count {given[key]}: a trip count is 0 or more")
        return given[key], "given"
    stated = op.attr("trip_count")
    if stated is not None:
        return int(stated), "stated"
    raise FlintError(
        f"the trip count of {describe()} depends on data, or on a value that ranks and counters "
        f"do not determine: give it with --trip-count N (or --trip-count {name}=N)"
    )
