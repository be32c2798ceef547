"""Conditionals: ``case`` and ``if`` ops.

The idea: a constant predicate opens its branch.  One that follows from the rank (and loop counters)
makes a conditional node, which a pass resolves per rank.  One that depends on data opens one branch
after the predicate: the user's choice, else that of this step's known inputs (a counter), else the
most expensive, and never silently.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flint.errors import FlintError, UsageError
from flint.graph import exact_sums
from flint.graph.building import GraphBuilder
from flint.graph.communication import Communication
from flint.graph.graph import Conditional, NodeKind, WorkloadGraph, with_tables
from flint.graph.scalars import Scalar, combine, constant
from flint.stablehlo.options import ALL_CONDITIONALS
from flint.stablehlo.read.records import BRANCH, Block, Op
from flint.stablehlo.walk.blocks import open_instead, wait_for
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import Handler, WalkState


def _case(state: WalkState, scope: Scope, op: Op) -> None:
    """A conditional: opened when constant, a node when the rank decides, else one branch."""
    name = state.name("case")
    predicate = _branch(op, state.scalar(op.operands[0]))
    if predicate is None:
        _by_data(state, scope, op, name)
    elif predicate.op == "constant":
        open_instead(state, scope, op, op.regions[int(predicate.value)], ())
    else:
        _by_rank(state, scope, op, predicate)


def _branch(op: Op, predicate: Scalar | None) -> Scalar | None:
    """The number of the branch that a predicate chooses; None if it is not known."""
    if len(op.regions) == 1:
        return constant(0)
    if predicate is None:
        return None
    if op.name == "if":
        return combine("select", (predicate, constant(0), constant(1)))
    return _clamped(predicate, len(op.regions))


def _clamped(index: Scalar, branches: int) -> Scalar | None:
    """``case`` takes its last branch for an index out of range."""
    last = constant(branches - 1)
    low = combine("compare", (index, constant(0)), "LT")
    high = combine("compare", (index, last), "GT")
    outside = None if low is None or high is None else combine("or", (low, high))
    return None if outside is None else combine("select", (outside, last, index))


def _by_rank(state: WalkState, scope: Scope, op: Op, predicate: Scalar) -> None:
    """A conditional node; all branches get the same inputs."""
    scopes = []
    for block in op.regions:
        inner = Scope(GraphBuilder(state.tables), state.module, scope, scope.around)
        state.block(inner, block)
        outputs = [
            state.view(inner, op, value, state.module.value_type[result])
            for value, result in zip(block.yields, op.results, strict=True)
        ]
        scopes.append((inner, outputs))
    captured = list(dict.fromkeys(value for inner, _ in scopes for value in inner.captured))
    branches = tuple(_with_inputs(inner, captured, outputs) for inner, outputs in scopes)
    conditional = Conditional(branches, predicate)
    operands = [scope.use(value) for value in captured]
    results = scope.builder.conditional(
        conditional,
        operands,
        state.types(op.results),
        source=state.source(op.loc),
        order=scope.order(operands),
    )
    scope.values.update(zip(op.results, results, strict=True))


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


def _by_data(state: WalkState, scope: Scope, op: Op, name: str) -> None:
    """Open one branch of a data-dependent conditional, after its predicate."""
    state.deciding += 1
    branch = _chosen(state, scope, op, name)
    predicate = scope.use(op.operands[0])
    outer = scope.gates, scope.gated_from
    scope.gate(predicate)
    inside = scope.gated_from
    open_instead(state, scope, op, op.regions[branch], ())
    scope.gates, scope.gated_from = outer
    state.deciding -= 1
    if not state.deciding:
        state.choices.clear()
    if predicate >= 0:
        passed = [value for value in op.results if scope.values[value] < inside]
        wait_for(state, scope, op, predicate, passed)


def _chosen(state: WalkState, scope: Scope, op: Op, name: str) -> int:
    given = state.options.branches
    key = name if name in given else ""
    if key in given:
        state.used_options.add(key or ALL_CONDITIONALS)
        if not 0 <= given[key] < len(op.regions):
            raise UsageError(
                f"--branch {given[key]}: {name} ({state.where(op)}) has branches "
                f"0 to {len(op.regions) - 1}"
            )
        return given[key]
    now = _branch(op, state.now(op.operands[0]))
    if now is not None and now.op == "constant":
        chosen = state.by_values[name] = int(now.value)
        state.warnings[
            f"{name} ({state.where(op)}) takes its branch {chosen}, as values of the step's inputs "
            f"say, such as a counter (--branch {name}=N takes another)"
        ] += 1
        return chosen
    stated = op.attr(BRANCH)
    if stated is not None and 0 <= stated < len(op.regions):
        return int(stated)
    best = state.choices.get(id(op))
    if best is None:
        state.trials += 1
        trials = [_trial(state, scope, block) for block in op.regions]
        state.trials -= 1
        if len({exchanged for _, exchanged in trials}) > 1:
            each = (f"{i}: {_in_words(exchanged)}" for i, (_, exchanged) in enumerate(trials))
            raise FlintError(
                f"the branches of {name} ({state.where(op)}) communicate differently and its "
                f"predicate depends on data: choose with --branch N (or --branch {name}=N), where "
                f"N is {'; '.join(each)}"
            )
        best = max(range(len(trials)), key=lambda i: trials[i][0])
        if state.trials:
            # An outer conditional will walk this one again: in its own trial and for its result.
            state.choices[id(op)] = best
    state.warnings[
        f"a conditional that depends on data ({state.where(op)}): branch {best}, its most "
        "expensive, is taken (--branch selects another)"
    ] += 1
    return best


def _trial(state: WalkState, scope: Scope, block: Block) -> tuple[int, tuple[object, ...]]:
    """(cost, what is exchanged) of a branch, walked for comparison and thrown away."""
    before = len(state.tables.communications)
    warnings, names, ops = state.warnings.copy(), state.names.copy(), state.ops
    by_values = state.by_values.copy()
    inner = Scope(GraphBuilder(state.tables), state.module, scope, scope.around, trial=True)
    state.block(inner, block)
    graph = with_tables(inner.builder.finish(()), state.tables.finish())
    found = _cost(graph), _exchanged(graph)
    del state.tables.communications[before:]
    state.warnings, state.names, state.ops = warnings, names, ops
    state.by_values = by_values
    return found


def _cost(graph: WorkloadGraph) -> int:
    """FLOPs, transcendentals and bytes of a graph, with loops multiplied, for its most expensive
    rank.
    """
    flops = graph.flops_by_node() + graph.transcendentals_by_node()
    cost = sum(map(exact_sums.total, (flops, graph.bytes_read, graph.bytes_written)))
    cost += sum(loop.trip_count * _cost(loop.body) for loop in graph.loops)
    return cost + sum(max(map(_cost, item.branches)) for item in graph.conditionals)


def _exchanged(graph: WorkloadGraph) -> tuple[object, ...]:
    """What a graph communicates, in order, without channel ids: equal for equal exchanges."""
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
                items.append((item.predicate.key, branches))
    return tuple(items)


def _in_words(exchanged: tuple[object, ...]) -> str:
    """Number of communications of each kind: ``2 all_reduce, 1 all_gather``."""
    counts = _calls(exchanged)
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no communication"


def _calls(exchanged: tuple[object, ...]) -> Counter[str]:
    """Calls by kind in the result of ``_exchanged``; for branches that depend on ranks, the
    maximum.
    """
    counts: Counter[str] = Counter()
    for item in exchanged:
        match item:
            case Communication():
                counts[item.kind] += 1
            case (int() as times, tuple() as inside):
                for kind, count in _calls(inside).items():
                    counts[kind] += times * count
            case (_, tuple() as branches):
                most: Counter[str] = Counter()
                for branch in branches:
                    most |= _calls(branch)
                counts += most
    return counts


HANDLERS: dict[str, Handler] = {"case": _case, "if": _case}
