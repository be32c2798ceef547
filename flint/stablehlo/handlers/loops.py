"""Loops: ``while`` ops -> loop nodes.

The idea: ``loops/`` finds what is carried, what is invariant and how often the loop runs; here the
body becomes a graph and the loop a node.  A loop that is not counted runs its condition in every
iteration, before the body, and once more after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from flint.errors import FlintError, UsageError
from flint.graph.building import GraphBuilder
from flint.graph.graph import Conditional, Loop
from flint.graph.scalars import Scalar
from flint.host.readable import counted
from flint.stablehlo.loops.counters import after_loop, argument_scalars, counters
from flint.stablehlo.loops.loop_stacks import stacked
from flint.stablehlo.loops.trip_counts import (
    TripCount,
    always,
    going_on,
    necessary,
    stepped_trips,
    trip_count,
)
from flint.stablehlo.options import ALL_LOOPS
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.values.arrays import Lookup
from flint.stablehlo.walk.blocks import communicates, open_block, wait_for
from flint.stablehlo.walk.known import NOTHING, Known
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import Handler, WalkState

#: More than a counter of 64 bits can count.
_LONGEST = 2**63


def _while(state: WalkState, scope: Scope, op: Op) -> None:
    """A loop: one node with a body, its trip count proved, stated or given."""
    condition, body = op.regions
    name = state.name("while")
    steps, inits, arguments = _counted(state, scope, op, state.scalar)
    dtypes = [state.module.type_of(value).dtype for value in op.operands]

    def describe() -> str:
        return f"loop {name} ({state.where(op)})"

    trips = _proved(state, scope, op, steps, arguments, describe, state.scalar)
    # A condition that only counts costs nothing, nor does that of a loop whose module states how
    # often it runs (XLA's WhileThunk); others run before each iteration and once more, also where a
    # profile tells how often that was.
    stated = op.attr("trip_count") is not None and not op.attr("observed_trip_count")
    counts = trips is not None or stated
    decided = not counts or communicates(state, condition)
    if trips is None:
        trips = _from_outside(state, scope, op, name, describe, arguments)
    invariant = [
        step == 0 and body.yields[number] == body.args[number] for number, step in enumerate(steps)
    ]
    carried = [i for i, fixed in enumerate(invariant) if not fixed]
    fixed = [i for i, is_fixed in enumerate(invariant) if is_fixed]
    most = trips.counts[-1]
    inner = Scope(GraphBuilder(state.tables), state.module, scope, (*scope.around, most))
    for number in (*carried, *fixed):
        argument = body.args[number]
        inner.values[argument] = inner.builder.input(state.module.value_type[argument])
        known = state.known.get(op.operands[number], NOTHING) if steps[number] == 0 else NOTHING
        state.know(argument, Known(arguments[number], known.array, known.stack, now=known.now))
    if decided:
        inner.gate(_condition(state, inner, condition, body.args))
    state.block(inner, body)
    outputs = [
        state.view(inner, op, body.yields[number], state.module.value_type[body.args[number]])
        for number in carried
    ]
    stacks = {
        number: stacked(state.module, body, number, most, scope.level, state.scalar)
        for number in carried
        if not decided and len(trips.counts) == 1
    }
    lookahead = state.options.lookahead
    loop = Loop(inner.builder.finish(outputs), len(carried), most, lookahead, trips.known_by)
    operands = [
        state.view(scope, op, op.operands[number], state.module.value_type[body.args[number]])
        for number in (*carried, *fixed)
    ]
    operands += [scope.use(value) for value in inner.captured]
    results = _add(state, scope, op, loop, trips, operands)
    for number, result in zip(carried, results, strict=True):
        value, step = op.results[number], steps[number]
        scope.values[value] = result
        scalar = after_loop(inits[number], step, trips.count, dtypes[number])
        array = state.array(op.operands[number]) if step == 0 else None
        state.know(value, Known(scalar, array, stacks.get(number)))
    for number in fixed:
        state.alias(scope, op.operands[number], op.results[number])
    if decided:
        # The condition runs once more than the body, on what the last iteration yields; users
        # of the loop's results wait until it is false.
        before = scope.builder.results
        predicate = _condition(state, scope, condition, op.results)
        if predicate >= before:
            wait_for(state, scope, op, predicate, [op.results[i] for i in carried])


def _counted(
    state: WalkState, scope: Scope, op: Op, lookup: Lookup
) -> tuple[list[int | None], list[Scalar | None], list[Scalar | None]]:
    """What a loop's values grow by, and their expressions before it and in an iteration."""
    steps = counters(op.regions[1], state.module, lookup)
    inits = [lookup(value) for value in op.operands]
    dtypes = [state.module.type_of(value).dtype for value in op.operands]
    return steps, inits, argument_scalars(inits, steps, dtypes, scope.level)


def _proved(
    state: WalkState,
    scope: Scope,
    op: Op,
    steps: list[int | None],
    arguments: list[Scalar | None],
    describe: Callable[[], str],
    lookup: Lookup,
) -> TripCount | None:
    """How often a loop runs, if that follows from rank, counters and constants."""
    condition, body = op.regions
    module, world = state.module, state.world
    # An earlier walk of the same loop, from another call, may have stored something about them.
    for argument in (*condition.args, *body.args):
        state.know(argument, None)
    goes_on = going_on(condition, module, arguments, lookup, state.array)
    if goes_on is not None:
        return trip_count(goes_on, scope.around, world.partitions, world.replicas, describe)
    for number, argument in enumerate(body.args):
        if steps[number] == 0 and body.yields[number] == argument:
            state.know(argument, Known(array=state.array(op.operands[number])))
    inits = [lookup(value) for value in op.operands]
    trips = stepped_trips(condition, body, module, inits, lookup, state.array)
    return None if trips is None else always(trips, "proved")


def _most(state: WalkState, scope: Scope, op: Op, arguments: list[Scalar | None]) -> int | None:
    """The most iterations of a loop that data may end earlier; None if nothing bounds it."""
    world = state.world
    needed = necessary(op.regions[0], state.module, arguments, state.scalar, state.array)
    if needed is None:
        return None
    try:
        trips = trip_count(needed, scope.around, world.partitions, world.replicas, str)
    except FlintError:  # what is known always holds
        return None
    return None if trips is None else trips.counts[-1]


def _by_values(
    state: WalkState, scope: Scope, op: Op, name: str, describe: Callable[[], str]
) -> TripCount | None:
    """How often a loop runs in this step, if that follows from known values of its inputs."""
    if not state.has_values:
        return None
    steps, _, arguments = _counted(state, scope, op, state.now)
    trips = _proved(state, scope, op, steps, arguments, describe, state.now)
    if trips is None or len(trips.counts) > 1:
        return None
    count = state.by_values[name] = trips.counts[0]
    state.warnings[
        f"{describe()} runs {counted(count, 'time')}, as values of the step's inputs say "
        f"(--trip-count {name}=N sets another number)"
    ] += 1
    return always(count, "values")


def _from_outside(
    state: WalkState,
    scope: Scope,
    op: Op,
    name: str,
    describe: Callable[[], str],
    arguments: list[Scalar | None],
) -> TripCount:
    """How often a loop runs according to the user, else to values of inputs, else to the module.

    Raises:
        UsageError: a negative count.
        FlintError: the module's is not valid.

    If neither of them states it, it is noted, and the walk goes on to find all such loops.
    """
    given = state.options.trip_counts
    key = name if name in given else ""
    if key in given:
        state.used_options.add(key or ALL_LOOPS)
        if given[key] < 0:
            raise UsageError(f"--trip-count {given[key]}: expected 0 or more")
        if given[key] >= _LONGEST:
            raise UsageError(f"--trip-count {given[key]}: a counter has at most 64 bits")
        return always(given[key], "given")
    by_values = _by_values(state, scope, op, name, describe)
    if by_values is not None:
        return by_values
    stated = op.attr("trip_count")
    if stated is not None:
        if not 0 <= int(stated) < _LONGEST:
            raise FlintError(
                f"{describe()}: the module gives it {stated} iterations, which is not a valid trip "
                "count"
            )
        return always(int(stated), "stated")
    bound = _most(state, scope, op, arguments)
    state.unknown_counts[name] = describe() + ("" if bound is None else f", at most {bound}")
    return always(1, "given")


def _add(
    state: WalkState, scope: Scope, op: Op, loop: Loop, trips: TripCount, operands: list[int]
) -> range:
    """Add a loop; if its number of iterations differs, as a conditional with a branch per
    number.
    """
    source, order = state.source(op.loc), scope.order(operands)
    if len(trips.counts) == 1:
        return scope.builder.loop(loop, operands, source=source, order=order)
    branches = []
    for count in trips.counts:
        builder = GraphBuilder(state.tables)
        inputs = [builder.input(int(kind)) for kind in loop.body.input_type]
        outputs: Sequence[int] = inputs[: loop.carried]
        if count:
            outputs = builder.loop(replace(loop, trip_count=count), inputs, source=source)
        branches.append(builder.finish(outputs))
    kinds = loop.body.input_type[: loop.carried].tolist()
    which = Conditional(tuple(branches), trips.which)
    return scope.builder.conditional(which, operands, kinds, source=source, order=order)


def _condition(state: WalkState, scope: Scope, condition: Block, values: tuple[int, ...]) -> int:
    """Walk a loop condition on ``values``; the number of its result."""
    open_block(state, scope, condition, values)
    return scope.use(condition.yields[0])


HANDLERS: dict[str, Handler] = {"while": _while}
