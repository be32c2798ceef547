"""The walker: op records -> workload graph.

The idea: one pass over the entry function in text order.  Calls are opened in place, loops and
rank-dependent conditionals become nodes with bodies, collectives become communications, everything
else gets its role and work from the table of rules.  Text order is kept here; issue order is
computed by a pass.  Nothing is dropped: an op without a rule becomes a node with its types and a
warning.  ``handlers/`` defines what each kind of op becomes.

    walked = walk(read_mlir(data), mesh=None, options=WalkOptions())
    walked.graph, walked.mesh, walked.warnings
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from flint.errors import FlintError
from flint.graph.building import GraphBuilder
from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.scalars import constant
from flint.host.collection import uncollected
from flint.mesh.mesh import Mesh
from flint.passes.routed import routed
from flint.stablehlo.collectives.devices import mesh_of, world_of
from flint.stablehlo.collectives.world import World
from flint.stablehlo.handlers import HANDLERS
from flint.stablehlo.handlers.simple import simple
from flint.stablehlo.options import WalkOptions, unused_choices
from flint.stablehlo.read.records import Module, is_sharded
from flint.stablehlo.recorded.fused_order import issued
from flint.stablehlo.recorded.scheduled import issued_as_scheduled
from flint.stablehlo.sources.borrowed_sources import with_borrowed_sources
from flint.stablehlo.values.elementwise import is_scalar_integer
from flint.stablehlo.verification.verifier import verify
from flint.stablehlo.walk.known import Known
from flint.stablehlo.walk.opened import check_opened
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.shard_ends import with_shards_at_ends
from flint.stablehlo.walk.state import WalkState


@dataclass(frozen=True, slots=True)
class Walked:
    """The result of a walk.

    Attributes:
        graph: the program, in text order.
        mesh: the mesh given, or the module's own.
        world: partitions and replicas.
        per_device: whether all shapes are those of one device; False before partitioning.
        warnings: text -> count.
        ops: number of ops walked (calls opened, loop bodies once).
        unused: choices by name that no loop or conditional needed.
        by_values: trip counts and branches that follow from values of inputs, by name.
    """

    graph: WorkloadGraph
    mesh: Mesh
    world: World
    per_device: bool
    warnings: dict[str, int]
    ops: int
    unused: frozenset[str] = frozenset()
    by_values: Mapping[str, int] = field(default_factory=dict)


@uncollected
def walk(
    module: Module,
    mesh: Mesh | None = None,
    options: WalkOptions | None = None,
    *,
    replicate: bool = False,
    values: Mapping[int, int] | None = None,
) -> Walked:
    """The workload graph of a module's entry function.

    Args:
        module: op records.
        mesh: the mesh of the result; it must have as many devices as the module is for.
        options: the user's choices.
        replicate: the mesh may hold independent copies of the module, see ``world_of``.
        values: number of an input that is one integer -> its value in this step.  They choose
            branches and trip counts that depend on them, unless the user chooses.

    Raises:
        UsageError: a mesh of another size.
        FlintError: an op with unsuitable operands or results, a loop without a trip count, a
            data-dependent conditional whose branches communicate differently, groups that do not
            fit, or, with ``strict``, an unknown op.
    """
    world = world_of(module, mesh, replicate=replicate)
    handlers = defaultdict(lambda: simple, HANDLERS)
    state = WalkState(module, world, options or WalkOptions(), handlers)
    verify(module, state.where)
    try:
        graph = _graph(state, values or {})
    except FlintError:
        _check_counts(state)  # the reason may be the count that was taken for now
        raise
    _check_counts(state)
    if state.options.routing is not None and not module.issues:  # recorded modules have sizes
        graph, remarks = routed(graph, state.options.routing)
        state.warnings.update(remarks)
    unused = state.options.names - state.used_options
    graph, complete = with_shards_at_ends(graph)
    per_device = complete and (module.partitioned or _shards_alone(module, graph))
    return Walked(
        graph=graph,
        mesh=mesh or mesh_of(module, world),
        world=world,
        per_device=per_device,
        warnings=dict(state.warnings) | unused_choices(state.options, ("",), (unused,)),
        ops=state.ops,
        unused=unused,
        by_values=dict(state.by_values),
    )


def _check_counts(state: WalkState) -> None:
    """Name all loops whose trip counts are unknown.

    Raises:
        FlintError: there is one.
    """
    loops = state.unknown_counts
    if not loops:
        return
    several = len(loops) > 1
    options = " ".join(f"--trip-count {name}=N" for name in loops)
    raise FlintError(
        f"the trip count{'s' if several else ''} of {'; of '.join(loops.values())} "
        f"depend{'' if several else 's'} on data, or on values that ranks and counters do not "
        f"determine: give {'them' if several else 'it'} with --trip-count N (or {options})"
    )


def _shards_alone(module: Module, graph: WorkloadGraph) -> bool:
    """Whether every parameter and result with a sharding has the type of its shard in ``graph``,
    and no op says how a tensor is spread over devices.
    """
    main = module.functions["main"]
    ends = zip(
        (*main.args, *main.yields), (*range(len(main.args)), *graph.outputs.tolist()), strict=True
    )
    # Where a file states no shardings of its results, there are none.
    stated = (*module.input_shardings, *module.output_shardings)
    return not module.annotated and all(
        graph.type_of(value) != module.type_of(whole)
        for (whole, value), sharding in zip(ends, stated, strict=False)
        if is_sharded(sharding)
    )


def _graph(state: WalkState, values: Mapping[int, int]) -> WorkloadGraph:
    """Walk ``@main``, and add the issue order of its ops if the module has one."""
    module = state.module
    main = module.functions["main"]
    scope = Scope(GraphBuilder(state.tables), module, None)
    for argument in main.args:
        scope.values[argument] = scope.builder.input(module.value_type[argument])
    for number, value in values.items():
        if is_scalar_integer(module.type_of(main.args[number])):
            state.know(main.args[number], Known(now=constant(value)))
            state.has_values = True
    try:
        check_opened(state, main)
        state.block(scope, main)
    except RecursionError:
        raise FlintError("the module nests calls or regions too deeply") from None
    outputs = [scope.use(value) for value in main.yields]
    graph = with_tables(scope.builder.finish(outputs), state.tables.finish())
    if module.issues:
        return issued(state, graph, scope)
    graph = with_borrowed_sources(graph)
    return issued_as_scheduled(graph) if module.scheduled else graph
