"""Converting post-execution traces: files of one or more ranks in, a workload out.

The idea: every traced rank becomes a separate program, with its own measured times.  A rank without
a trace gets a program that only responds: its side of exchanges with traced ranks, at once and
without computing, so that simulators, which need all ranks, can run the others.

    workload = convert_traces([Path("rank0.json.gz"), Path("rank1.json.gz")])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from flint import registry
from flint.errors import NoProgramError, UsageError
from flint.graph.distinct import distinct
from flint.host.collection import uncollected
from flint.host.packed_files import MEMORY_LIMIT
from flint.host.reading_memory import allowed
from flint.mesh.mesh import Mesh, MeshLike, as_mesh
from flint.mesh.ragged import row_of_entry
from flint.mesh.ranks import from_mask
from flint.observed.columns import UNKNOWN_RANK, Observed
from flint.observed.reading import is_jax_profile
from flint.observed.sources import openable
from flint.post_execution.communications import Communications
from flint.post_execution.exchanges import unused_groups
from flint.post_execution.flows import flows_of
from flint.post_execution.graphs import Flows, graph_of, phases_of, work_lacking
from flint.post_execution.load_rank import (
    Choices,
    Linked,
    Recorded,
    in_one_step,
    read_linked,
    with_exchanges,
)
from flint.post_execution.meetings import meet
from flint.post_execution.order import edges_of
from flint.post_execution.rank_names import named
from flint.post_execution.roots import agree
from flint.post_execution.same_process import once
from flint.post_execution.source_lines import lines_of
from flint.post_execution.timings import clocks_of, hosts_clocks, timings_of, together
from flint.post_execution.trace_files import (
    NO_TRACES,
    Digests,
    accesses_by_rank,
    is_chakra,
    sorted_files,
)
from flint.post_execution.units import Units, say_idle
from flint.post_execution.untraced_ranks import answering
from flint.post_execution.worlds import stated_world_of, world_of
from flint.workload.programs import Level, Order, Program, ProgramInput, with_communicators
from flint.workload.uneven import uneven_remarks, with_largest_sizes
from flint.workload.workload import Workload


@uncollected
def convert_traces(
    paths: Sequence[str | Path],
    *,
    execution_traces: Sequence[str | Path] = (),
    mesh: MeshLike | None = None,
    axes: Sequence[str] | None = None,
    step: str | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    strict: bool = False,
    scale_out: Mapping[str, int] | None = None,
    trip_count: int | Mapping[str, int] | None = None,
    branch: int | Mapping[str, int] | None = None,
    memory_limit: int | None = MEMORY_LIMIT,
) -> Workload:
    """Convert profiles of a run to a workload with measured durations.

    Args:
        paths: Kineto traces or PyTorch execution traces, one per rank, or folders of such; or one
            profile folder of JAX; or the Chakra execution traces of all ranks, or their folder.  An
            archive (tar, zip) stands for its folder; a pipe is read once.
        execution_traces: execution traces of the same run as the Kineto traces, or folders.
        mesh: device grid; default: one axis of all ranks.
        axes: names of the mesh axes.
        step: the step to convert, ``ProfilerStep#4`` or ``4``, or ``all`` for the whole of
            PyTorch's traces; default: the last one in which something ran.
        groups: ranks of process groups that the traces do not record, by the name of the group or
            of the collective.
        strict: refuse communications whose group, size or peer is not recorded, instead of
            inferring it or keeping them as kernels with their time.
        scale_out: sizes of mesh axes on which the measured ranks are mirrored; ``mesh`` is then
            that of the run, by default one axis, the first scaled one (see
            ``flint.post_execution.scale_out``).
        trip_count, branch: for JAX programs, as in ``flint.convert``.
        memory_limit: bytes of memory that reading a file may take in this process; None for no
            limit.

    Raises:
        UsageError: no such file or step, two traces of one rank, or a mesh that does not fit.
        FlintError: a trace is damaged, or traces do not belong to one run.
    """
    stated = {name: tuple(sorted(ranks)) for name, ranks in (groups or {}).items()}
    choices = Choices(step, stated, strict)
    with (
        allowed(memory_limit),
        openable([Path(path) for path in paths]) as given,
        openable([Path(path) for path in execution_traces]) as beside,
    ):
        # If the run's mesh is not given, the first scaled axis has all ranks.
        names = axes or (tuple(scale_out)[:1] if scale_out and mesh is None else None)

        def of_ranks(files: list[Path], beside: list[Path], others: list[Path]) -> Workload:
            left_out = {NO_TRACES.format(other.name): 1 for other in others}
            return _of_ranks(
                files, beside, choices, lambda world: _grid(mesh, names, world), scale_out, left_out
            )

        if any(map(is_chakra, given.paths)):
            if execution_traces or step is not None:
                raise UsageError(
                    f"{paths[0]} is a Chakra execution trace, one step of all ranks: it has no "
                    "other steps, and no PyTorch execution trace (--et) completes it"
                )
            found = registry.converter("chakra-workload")(
                given.paths, mesh=mesh, axes=names, groups=stated, scale_out=scale_out,
                strict=strict,
            )  # fmt: skip
            assert isinstance(found, Workload)
            return found
        if not any(map(is_jax_profile, given.paths)):
            return of_ranks(*sorted_files(given.paths, beside.paths))
        # It contains whole programs: importing their reader costs other profiles a tenth of their
        # start.
        from flint.post_execution.modules import convert_profile

        if len(paths) > 1 or execution_traces:
            raise UsageError(
                f"{paths[0]} is a JAX profile, which contains all devices of its host: give only "
                "this one"
            )
        if scale_out:
            raise UsageError(
                f"{paths[0]} is a JAX profile, whose program is for its own number of devices: "
                "capture the step on a larger mesh instead of scaling its profile out"
            )
        try:
            return convert_profile(
                given.paths[0],
                mesh=mesh,
                axes=axes,
                step=step,
                trip_count=trip_count,
                branch=branch,
            )
        except NoProgramError:  # TensorFlow's profiler writes such files, too
            return of_ranks([given.paths[0]], [], [])


def _of_ranks(
    files: list[Path],
    beside: list[Path],
    choices: Choices,
    grid_of: Callable[[int], Mesh],
    scale_out: Mapping[str, int] | None,
    warnings: dict[str, int],
) -> Workload:
    """Convert profiles of PyTorch's, one per rank.

    Args:
        files: the profiles.
        beside: execution traces that complete them.
        choices: the user's choices.
        grid_of: number of ranks -> mesh.
        scale_out: sizes of axes on which the measured ranks are mirrored.
        warnings: further ones are added.
    """
    linked: dict[int, Linked] = {}
    memory = accesses_by_rank(beside)
    read = once(list(read_linked(files, choices, memory)), warnings)
    for item in named(read, choices.strict, warnings):
        rank = item.units.rank
        if rank in linked:
            note = "" if UNKNOWN_RANK not in item.trace.notes else f" ({UNKNOWN_RANK})"
            raise UsageError(
                f"{linked[rank].trace.path} and {item.trace.path} are both for rank {rank}{note}: "
                "give one trace per rank, or name the files rank0.json, rank1.json, ..."
            )
        linked[rank] = item
    digests = Digests((*files, *beside))
    unused = sorted(set(memory) - set(linked))
    if unused:
        raise UsageError(
            f"{memory[unused[0]][0].path} is of rank {unused[0]}, which has no Kineto trace"
        )
    linked = in_one_step(linked, choices, memory, warnings)
    stated_world = stated_world_of(linked)
    recorded = with_exchanges(linked, stated_world, choices, warnings)
    world = world_of(recorded, stated_world)
    exchanged = chain.from_iterable(item.exchanges for item in recorded.values())
    warnings |= unused_groups(choices.groups, exchanged)
    grid = grid_of(world)
    meetings = meet(
        {
            rank: [item for item in found.exchanges if item is not None]
            for rank, found in recorded.items()
        }
    )
    agree({rank: item.exchanges for rank, item in recorded.items()}, meetings)
    hosts = {rank: item.trace.host for rank, item in recorded.items()}
    clocks = clocks_of(recorded, meetings, hosts_clocks(recorded, meetings, hosts))
    recorded = together(recorded, meetings, clocks)
    timings = timings_of(recorded, clocks)
    described = Communications(world)
    programs = [
        replace(_traced(rank, item, described, warnings), timing=timings.get(rank))
        for rank, item in recorded.items()
    ]
    if scale_out:
        from flint.post_execution.scale_out import scaled_out

        grid, programs = scaled_out(programs, grid, scale_out, warnings)
    else:
        programs += answering(meetings, sorted(recorded), described, warnings)
    finished = with_largest_sizes(with_communicators(tuple(programs)), grid.size)
    workload = Workload(
        mesh=grid,
        programs=finished,
        level=Level.OPTIMIZED,
        order=Order.RECORDED,
        options={
            "step": choices.step,
            **({"scale_out": dict(scale_out)} if scale_out else {}),
            "measured": any(item.units.timed for item in recorded.values()),
            "device": _device([item.trace for item in recorded.values()]),
        },
        input={"file": ", ".join(file.name for file in files), "sha256": digests.together()},
        warnings=warnings | uneven_remarks(finished),
    )
    workload.verify()
    return workload


def _device(traces: Sequence[Observed]) -> str:
    """The driver's name for the devices; "" if no trace shows it, or that there were none."""
    named = next((trace.device for trace in traces if trace.device), "")
    return named or ("CPU" if all(trace.backend == "cpu" for trace in traces) else "")


def _grid(mesh: MeshLike | None, axes: Sequence[str] | None, world: int) -> Mesh:
    if mesh is None:
        return Mesh((world,), tuple(axes or ("rank",)))
    grid = as_mesh(mesh, axes)
    if grid.size != world:
        raise UsageError(
            f"mesh {grid} has {grid.size} ranks; the traces are from a run with {world}"
        )
    return grid


def _traced(
    rank: int, item: Recorded, described: Communications, warnings: dict[str, int]
) -> Program:
    units = item.units
    notes: dict[str, int] = {}
    flows = flows_of(units, item.tensors, notes) if item.tensors is not None else None
    edges = edges_of(units, item.trace, item.links, _with_consumers(units, flows))
    for found in (notes, edges.notes, work_lacking(units, item.trace.form)):
        for text, count in found.items():
            warnings[text] = warnings.get(text, 0) + count
    say_idle(units, warnings)
    communications = {
        unit: described.of(exchange)
        for unit, exchange in enumerate(item.exchanges)
        if exchange is not None
    }
    phases = phases_of(units, item.trace, item.links)
    frames = item.links.frames if item.links is not None else ()
    lines = lines_of(units.thread, units.issued, frames) if frames else None
    graph = graph_of(units, edges, communications, flows, phases, lines)
    alone = np.arange(described.world) == rank
    inputs = tuple(ProgramInput(graph.type_of(number)) for number in range(graph.inputs))
    return Program(f"rank_{rank}", graph, from_mask(alone), inputs)


def _with_consumers(units: Units, flows: Flows | None) -> set[int]:
    """Collectives whose result is known to be read."""
    if flows is None:
        return set()
    consumer = row_of_entry(flows.operand_ptr)
    inside = (flows.operand >= 0) & ~units.collective[consumer]
    sources = distinct(flows.operand[inside])
    return set(sources[units.collective[sources]].tolist())
