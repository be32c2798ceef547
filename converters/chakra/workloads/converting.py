"""Converting execution traces: a set of one file per rank in, a workload out.

The idea: ranks with the same nodes and the same groups run one program.  What a trace does not say
is asked for, or told.

    workload = convert([Path("et/")], mesh=(2, 4))
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from flint.converters.chakra.network import Network
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.read.trace_set import TraceSet
from flint.converters.chakra.schema import NodeType
from flint.converters.chakra.workloads.common_order import Side, in_common_order
from flint.converters.chakra.workloads.exchanged import Exchanges, ends_of
from flint.converters.chakra.workloads.files import traces_of
from flint.converters.chakra.workloads.graphs import graph_of
from flint.converters.chakra.workloads.hosted import timing_of
from flint.converters.chakra.workloads.issued import Issued, issued
from flint.converters.chakra.workloads.messages import Message, channels_of
from flint.converters.chakra.workloads.ranks_alone import answering_ranks
from flint.errors import FlintError, UsageError
from flint.mesh.mesh import Mesh, MeshLike, as_mesh
from flint.mesh.ranks import from_mask
from flint.post_execution.trace_files import Digests
from flint.workload.programs import EXECUTION_TRACES, Level, Order, Program, with_communicators
from flint.workload.uneven import uneven_remarks, with_largest_sizes
from flint.workload.workload import Workload

ALONE = (
    "communications in the trace of one rank, and nothing names another: with one rank they take "
    "no time; --mesh says how many there were"
)


def convert(
    paths: Sequence[Path],
    *,
    mesh: MeshLike | None = None,
    axes: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    scale_out: Mapping[str, int] | None = None,
    strict: bool = False,
) -> Workload:
    """The workload of execution traces.

    Args:
        paths: a folder of ``PREFIX.<rank>.et``, or such files.
        mesh: device grid, the network's dims in reverse; default: that of the network file beside
            the traces, else one axis.
        axes: names of its axes.
        groups: name of a process group -> its ranks, for groups that no table lists.
        scale_out: sizes of axes on which the ranks are mirrored.
        strict: refuse what the traces do not say instead of assuming it.

    Raises:
        UsageError: no such files, or a fact that the traces do not have.
        FlintError: a trace is damaged, or the ranks' traces do not fit together.
    """
    found = traces_of(paths, groups or {})
    notes: dict[str, int] = {}
    grid, network = _grid(found.traces, mesh, axes, found.least)
    exchanges = Exchanges(grid.size, network, found.groups)
    programs = _programs(found.traces, exchanges, notes)
    for text, count in exchanges.notes.items():
        if strict:
            raise FlintError(f"--strict: {text} ({count})")
        notes[text] = notes.get(text, 0) + count
    if not any(len(program.graph) for program in programs):
        raise FlintError(f"{found.files[0]}: no node that runs: all are metadata")
    if scale_out:
        from flint.post_execution.scale_out import scaled_out

        grid, programs = scaled_out(_one_by_one(programs), grid, scale_out, notes)
    else:
        programs += answering_ranks(programs, grid.size, notes)
    finished = with_largest_sizes(with_communicators(tuple(programs)), grid.size)
    if grid.size == 1 and any(program.graph.tables.communications for program in finished):
        notes[ALONE] = 1
    digests = Digests(found.files)
    workload = Workload(
        mesh=grid,
        programs=finished,
        level=Level.OPTIMIZED,
        order=Order.RECORDED,
        options={
            EXECUTION_TRACES: len(found.files),
            "measured": any(program.timing is not None for program in finished),
            **({"scale_out": dict(scale_out)} if scale_out else {}),
        },
        input={"file": ", ".join(file.name for file in found.files), "sha256": digests.together()},
        warnings=notes | uneven_remarks(finished),
    )
    workload.verify()
    return workload


def _grid(
    traces: TraceSet, mesh: MeshLike | None, axes: Sequence[str] | None, least: int
) -> tuple[Mesh, Network | None]:
    """The mesh, and the network dims that ``involved_dim`` names; None if they are not known."""
    if mesh is not None:
        grid = as_mesh(mesh, axes)
        if grid.size < least:
            raise UsageError(f"mesh {grid} has {grid.size} ranks; the traces name {least}")
        return grid, Network(tuple(reversed(grid.shape)))
    if traces.network is not None:
        shape = tuple(reversed(traces.network.npus_count))
        named = axes or tuple(f"dim{len(shape) - 1 - place}" for place in range(len(shape)))
        return as_mesh(shape, named), traces.network
    return Mesh((least,), tuple(axes or ("rank",))), None


def _programs(traces: TraceSet, exchanges: Exchanges, notes: dict[str, int]) -> list[Program]:
    nodes = [issued(trace, notes) for trace in traces.traces]
    channels = _channels(traces, nodes)
    sides = [
        Side(rank, trace, order, exchanges.of(trace, rank, channels))
        for trace, order, ranks in zip(traces.traces, nodes, traces.ranks, strict=True)
        for rank in ranks.tolist()
    ]
    alike = _alike(sides)
    if len(alike) > 1:
        alike = _alike(in_common_order(sides))
    programs = []
    for members in sorted(alike, key=lambda members: members[0].rank):
        first = members[0]
        mask = np.zeros(exchanges.world, np.bool_)
        mask[[side.rank for side in members]] = True
        graph = graph_of(first.trace, first.nodes, first.exchanged, notes)
        found = first.nodes.played
        timing = None if found is None else timing_of(found, first.nodes.rows)
        programs.append(Program(f"rank_{first.rank}", graph, from_mask(mask), (), timing=timing))
    return programs


def _alike(sides: Sequence[Side]) -> list[list[Side]]:
    """Ranks that run the same program."""
    found: dict[object, list[Side]] = {}
    contents: dict[tuple[int, int], bytes] = {}
    for side in sides:
        place = id(side.trace), id(side.nodes)
        if place not in contents:
            contents[place] = _content(side.trace, side.nodes)
        key = contents[place], side.exchanged.table, side.exchanged.places
        found.setdefault(key, []).append(side)
    return list(found.values())


def _channels(traces: TraceSet, nodes: Sequence[Issued]) -> dict[Message, int]:
    sent: list[Message] = []
    received: list[Message] = []
    for trace, order, ranks in zip(traces.traces, nodes, traces.ranks, strict=True):
        for kind, messages in ((NodeType.SEND, sent), (NodeType.RECV, received)):
            rows = order.rows[trace.type[order.rows] == kind].tolist()
            for rank in ranks.tolist() if rows else ():
                for row in rows:
                    ends = ends_of(trace, row, rank)
                    if ends is not None:
                        what = int(trace.comm_tag[row]), int(trace.comm_size[row])
                        messages.append((*ends, *what))
    known = [rank for ranks in traces.ranks for rank in ranks.tolist()]
    return channels_of(sent, received, known)


#: Columns that tell what a node is; who other ranks are, the communications tell.
_TELLING = ("type", "duration", "name", "num_ops", "tensor_size")


def _content(trace: Trace, nodes: Issued) -> bytes:
    """Equal for traces whose nodes differ only in their numbers and in the ranks that they name."""
    digest = hashlib.blake2b("\0".join(trace.names).encode(), digest_size=16)
    for name in _TELLING:
        digest.update(getattr(trace, name)[nodes.rows].tobytes())
    times = () if nodes.played is None else (nodes.played.start, nodes.played.launch)
    for column in (nodes.before, nodes.after, *times):
        digest.update(column.tobytes())
    return digest.digest()


def _one_by_one(programs: Sequence[Program]) -> list[Program]:
    """A program per rank, as profiles have them."""
    made = []
    for program in programs:
        for rank in program.ranks.array().tolist():
            mask = np.arange(program.ranks.world) == rank
            made.append(replace(program, name=f"rank_{rank}", ranks=from_mask(mask)))
    return made
