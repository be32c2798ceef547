"""Writes Chakra execution traces: one file per rank, at little more than the cost of the bytes.

The idea: ranks of a program fall into a few structures (the same nodes) and classes (the same byte
layout).  A class is encoded once, in bulk, from the graph's columns; a rank is that buffer with its
peers' and groups' numbers stamped in, or a hard link if nothing differs.

    write([(graph, np.arange(512))], mesh, Path("out"), system=load_system("dgx-h100"))

    out/et/trace.<rank>.et     the traces             out/et/nodes.parquet   what each node is
    out/astra-sim/*            system, network, remote memory, communicator groups
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from flint.converters.chakra.astra_sim.files import groups_text, write_astra_sim_files
from flint.converters.chakra.astra_sim.forecast import Forecast, forecast
from flint.converters.chakra.comm_groups import GroupIds
from flint.converters.chakra.write.manifest import Manifest
from flint.converters.chakra.write.plans import Build, Plan, plan_of
from flint.converters.chakra.write.records import metadata_record
from flint.converters.chakra.write.trace_files import FileWriter
from flint.cost.hardware import System
from flint.errors import FlintError, UsageError
from flint.execution.chains import CommunicationOrder, as_communication_order
from flint.graph.distinct import distinct
from flint.graph.graph import WorkloadGraph
from flint.graph.transfers import has_transfers
from flint.graph.unrolling import Lookahead
from flint.host.environment import DISTRIBUTION, installed_version
from flint.host.readable import human_bytes
from flint.mesh.mesh import Mesh
from flint.mesh.network_dims import network_dims
from flint.mesh.ragged import Ints

#: Disk space that must stay free.
_RESERVE = 1 << 20


def write(
    programs: Sequence[tuple[WorkloadGraph, Ints]],
    mesh: Mesh,
    folder: Path,
    *,
    system: System,
    ranks: Ints | None = None,
    annotate: bool = False,
    lookahead: Lookahead = "own",
    communication_order: str = CommunicationOrder.RANK,
    unordered_starts: bool = False,
    whole: Mesh | None = None,
    metadata: Mapping[str, str] | None = None,
    announce: Callable[[int, int], None] | None = None,
    expect: Callable[[Forecast], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Manifest:
    """Write the traces of a workload and ASTRA-sim's files for them.

    Args:
        programs: graphs and the ranks that run them; together all ranks of the mesh, each once.
        mesh: the devices.
        folder: an existing folder without ``et/`` and ``astra-sim/``.
        system: the cluster that durations are computed for.
        ranks: ranks to write; all by default.
        annotate: put op, layer, source, phase, shapes and dtype into every node.
        lookahead: iterations that may overlap, for all loops; each loop's own by default.
        communication_order: "rank" chains all communications of a rank, "communicator" those of
            each communicator (for consumers with one stream per communicator).
        unordered_starts: leave compute nodes that wait for nothing without dependencies, instead of
            one after another (see ``flint.converters.chakra.write.starts``).
        whole: the mesh that this one represents (see ``flint.workload.reducing``).
        metadata: further texts for the traces' metadata.
        announce: called with (bytes, files) once it is known that the disk has room for them,
            before the first is written.
        expect: called, before the first trace is written, with what ASTRA-sim will need for traces
            of all ranks.
        progress: called with (ranks written, ranks to write).

    Raises:
        UsageError: ranks outside the mesh, an unknown communication order.
        FlintError: programs do not fit together, or the disk is full or fails.
    """
    world = mesh.size
    wanted = _wanted(ranks, world)
    order = as_communication_order(communication_order)
    plans = [plan_of(graph, np.sort(members), wanted, order) for graph, members in programs]
    _check_cover(plans, world)
    dims = network_dims(mesh)
    ids = GroupIds(dims, (groups for plan in plans for groups in plan.collective_groups()))
    head = metadata_record(_metadata(mesh, system, metadata or {}))
    build = Build(plans, ids, dims, system, head, annotate, lookahead, world, unordered_starts)
    groups: dict[str, list[int]] = {}
    for plan in plans:
        for used in dict.fromkeys(plan.collective_groups()):
            if ids.mask(used) is None and len(plan.written):
                groups.update(ids.members(used, plan.written))
    groups = dict(sorted(groups.items()))
    table = build.table.content()
    needed = sum(item.bytes for item in build.files) + len(table) + len(groups_text(groups))
    _check_space(folder, needed)
    total = sum(len(item.ranks) for item in build.files)
    if announce is not None:
        announce(needed, total)
    expected = forecast(build.nodes, build.messages) if total == world else None
    if expect is not None and expected is not None:
        expect(expected)
    try:
        (folder / "et").mkdir()
        (folder / "astra-sim").mkdir()
        writer = FileWriter(folder / "et", total, progress)
        for item in build.files:
            writer.write(item)
        writer.finish()
        (folder / "et/nodes.parquet").write_bytes(table)
        beside = write_astra_sim_files(
            folder / "astra-sim", dims, system, groups, network_dims(whole) if whole else None,
            copies=any(has_transfers(graph) for graph, _ in programs),
        )  # fmt: skip
    except OSError as error:
        raise FlintError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return Manifest(
        bytes=writer.bytes + len(table) + beside,
        trace_bytes=sum(len(item.ranks) * len(item.data) for item in build.files),
        files=total,
        distinct_files=writer.copies,
        structures=tuple(build.summaries),
        groups=len(groups),
        tags=build.tags.count,
        system=system.name,
        order=f"one chain per {order}",
        ordered_starts=build.ordered_starts,
        forecast=expected,
        sums=writer.seal(),
    )


def _metadata(mesh: Mesh, system: System, more: Mapping[str, str]) -> dict[str, str]:
    version = installed_version(DISTRIBUTION) or "unknown"
    return {"flint": version, "mesh": str(mesh), "system": system.name, **more}


def _wanted(ranks: Ints | None, world: int) -> Ints | None:
    if ranks is None:
        return None
    wanted = distinct(np.asarray(ranks, np.int64))
    if not len(wanted) or wanted[0] < 0 or wanted[-1] >= world:
        raise UsageError(f"ranks to write must be in 0..{world - 1}")
    return wanted


def _check_cover(plans: Sequence[Plan], world: int) -> None:
    everybody = np.concatenate([plan.ranks for plan in plans] or [np.zeros(0, np.int64)])
    if len(everybody) and (everybody.min() < 0 or everybody.max() >= world):
        raise UsageError(f"a program runs on ranks outside 0..{world - 1}")
    counts = np.bincount(everybody, minlength=world)
    for wrong, words in ((counts == 0, "runs no program"), (counts > 1, "runs two programs")):
        if wrong.any():
            raise FlintError(f"rank {int(np.argmax(wrong))} of {world} {words}")


def _check_space(folder: Path, needed: int) -> None:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise FlintError(f"{folder}: {error.strerror or error}") from error
    if needed + _RESERVE > free:
        raise FlintError(
            f"{folder.parent}: the traces need {human_bytes(needed)} and the disk has "
            f"{human_bytes(free)} free, of which {human_bytes(_RESERVE)} stay reserved: free some "
            "space, choose another folder, a coarser granularity or fewer --ranks"
        )
