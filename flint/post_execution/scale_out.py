"""Measured ranks on a larger mesh: every rank is a measured one, or a mirror of one.

The idea: a rank's program is what its profile shows, wherever on the mesh it runs.  The groups of
its collectives are along mesh axes; if such an axis gets longer, so does the group, and each
member's contribution follows from the collective's kind.  The batch of a rank stays the same, so
kernels keep their measured time; a collective among another number of ranks loses its measured time
and is priced on the system.

    kind a rank sends a rank gets
    all_reduce        as measured                 the same
    all_gather        whole / ranks, rounded up   the whole, which stays as measured
    reduce_scatter    the whole, as measured      whole / ranks, rounded up
    all_to_all        as measured                 the same
    broadcast, send   as measured                 the same

An all-reduce of what a reduce-scatter left shrinks with it (``sums_of_shards``).

    mesh, programs = scaled_out(programs, Mesh((2,), ("dp",)), {"dp": 64}, warnings)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.errors import UsageError
from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import DTYPE_BITS
from flint.graph.work import Unit
from flint.host.readable import counted
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation
from flint.mesh.ragged import row_of_entry
from flint.mesh.ranks import from_mask
from flint.post_execution.roots import root_first
from flint.post_execution.sums_of_shards import SUMS, of_shards
from flint.workload.programs import Program

#: A rank cannot be mirrored along an axis with messages.
_NEVER: Final = 1 << 20


@dataclass(frozen=True, eq=False, slots=True)
class _Grids:
    """The mesh of the run and the larger one.

    Attributes:
        old, new: meshes; the new one has all axes of the old one.
        scaled: axes of the old one that get another size.
    """

    old: Mesh
    new: Mesh
    scaled: tuple[str, ...]

    def size(self, axis: str) -> int:
        """Of an axis of the new mesh."""
        return self.new.shape[self.new.axes.index(axis)]


def scaled_out(
    programs: Sequence[Program],
    mesh: Mesh,
    sizes: Mapping[str, int],
    warnings: dict[str, int],
) -> tuple[Mesh, list[Program]]:
    """The measured ranks' programs on a mesh of other sizes.

    Args:
        programs: one per measured rank.
        mesh: mesh of the run.
        sizes: sizes of axes; axes that the run does not have are added, outermost.
        warnings: notes on mirrored ranks and resized collectives are added here.

    Returns:
        The mesh and the programs with the ranks that run them; together all ranks.

    Raises:
        UsageError: a group is part of an axis, messages run along an axis that is scaled or whose
            ranks were not all measured, or there are too many ranks for a mesh.
    """
    added = [name for name in sizes if name not in mesh.axes]
    shape = [sizes[name] for name in added]
    shape += [sizes.get(name, size) for name, size in zip(mesh.axes, mesh.shape, strict=True)]
    new = Mesh(tuple(shape), (*added, *mesh.axes))
    pairs = zip(mesh.axes, mesh.shape, strict=True)
    grids = _Grids(mesh, new, tuple(name for name, size in pairs if sizes.get(name, size) != size))
    notes: dict[str, int] = {}
    chained: set[str] = set()
    made = [_of_program(program, grids, chained, notes) for program in programs]
    ranks = [int(program.ranks.array()[0]) for program in programs]
    chosen = _mirrored(ranks, grids, chained)
    found = [
        replace(program, ranks=from_mask(chosen == number))
        for number, program in enumerate(made)
        if (chosen == number).any()
    ]
    for text, count in _notes_of(grids, ranks, added, notes).items():
        warnings[text] = warnings.get(text, 0) + count
    return new, found


def _notes_of(
    grids: _Grids, ranks: list[int], added: list[str], notes: dict[str, int]
) -> dict[str, int]:
    """What the user should know about the result."""
    mirrors = grids.new.size - min(len(ranks), grids.new.size)
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    known = "rank" if len(ranks) == 1 else "ranks"
    found = {
        f"{counted(mirrors, 'rank')} of {grids.new.size:,} are mirrors: their kernels, launches "
        f"and order are those measured on {known} {shown} of {grids.old.size}, with the batch of a "
        "rank as measured": 1
    }
    lengths = ", ".join(
        f"{name} from {size} to {grids.size(name)}"
        for name, size in zip(grids.old.axes, grids.old.shape, strict=True)
        if name in grids.scaled
    )
    if sums := notes.pop(SUMS, 0):
        found[SUMS] = sums
    resized = sum(notes.values())
    if resized:
        kinds = ", ".join(sorted(notes))
        found[
            f"collectives over a different number of ranks ({lengths}): resized ({kinds}), with "
            "modelled instead of measured times"
        ] = resized
        if {"all_gather", "reduce_scatter"} & set(notes):
            found[
                "kernels that work on a rank's shard (a sharded optimizer's, copies into "
                "and out of buffers) keep their measured time although shards change with the ranks"
            ] = 1
    elif grids.scaled:
        found[f"no measured collective runs along {', '.join(grids.scaled)}"] = 1
    for name in added:
        found[f"no measured collective runs along {name}, which the run did not have"] = 1
    return found


def _mirrored(ranks: list[int], grids: _Grids, chained: set[str]) -> Ints:
    """The program of each rank: that of the nearest measured rank, shape [ranks].

    Raises:
        UsageError: it would mirror a rank that has other messages.
    """
    every = np.arange(grids.new.size, dtype=np.int64)
    distance = np.zeros((len(ranks), len(every)), np.int64)
    for axis, size in zip(grids.old.axes, grids.old.shape, strict=True):
        place = grids.new.axes.index(axis)
        here = every // grids.new.strides[place] % grids.new.shape[place] % size
        weight = _NEVER if axis in chained else 1
        for number, rank in enumerate(ranks):
            there = grids.old.coordinates(rank)[grids.old.axes.index(axis)]
            distance[number] += weight * (here != there)
    chosen: Ints = distance.argmin(axis=0)
    lost = distance[chosen, every] >= _NEVER
    if lost.any():
        names = ", ".join(sorted(chained))
        raise UsageError(
            f"--scale-out: ranks send messages along {names}, and a mirror of one rank cannot "
            "stand for its partner: give the profiles of all ranks along it"
        )
    return chosen


def _of_program(
    program: Program, grids: _Grids, chained: set[str], notes: dict[str, int]
) -> Program:
    """A measured rank's program with its communications on the larger mesh.

    Args:
        program: program of one rank.
        grids: the meshes.
        chained: axes with messages are added here.
        notes: kinds of resized collectives are counted here.
    """
    rank = int(program.ranks.array()[0])
    table = program.graph.tables.communications
    made = [_on_mesh(item, rank, grids, chained) for item in table]
    scattered = {
        number: item
        for number, (item, resized) in enumerate(made)
        if resized and item.kind == "reduce_scatter"
    }
    details, communications, sums = of_shards(program.graph, scattered, [item for item, _ in made])
    graph = replace(program.graph, detail=details)
    graph = with_tables(graph, replace(graph.tables, communications=communications))
    anew = np.array([resized for _, resized in made] + [False], np.bool_)
    talks = graph.kind == NodeKind.COMMUNICATION
    priced = sums | (talks & anew[np.where(talks, program.graph.detail, -1)])
    for detail in program.graph.detail[priced].tolist():
        notes[table[detail].kind] = notes.get(table[detail].kind, 0) + 1
    if sums.any():
        notes[SUMS] = notes.get(SUMS, 0) + int(sums.sum())
    return replace(program, graph=_priced(graph, priced))


def _priced(graph: WorkloadGraph, nodes: NDArray[np.bool_]) -> WorkloadGraph:
    """The graph, in which the measured times of some nodes are for another number of ranks."""
    of_node = nodes[row_of_entry(graph.work_ptr)] & (graph.work_unit == Unit.MEASURED)
    unit = np.where(of_node, int(Unit.OUTDATED), graph.work_unit).astype(graph.work_unit.dtype)
    return replace(graph, work_unit=unit)


def _on_mesh(
    item: Communication, rank: int, grids: _Grids, chained: set[str]
) -> tuple[Communication, bool]:
    """A communication on the larger mesh, and whether it has another number of ranks."""
    if item.permutation is not None:
        return _message(item, rank, grids, chained), False
    assert item.groups is not None
    members = item.groups.members(rank)
    axes = _axes_of(members, item.kind, grids)
    groups = root_first(along_axes(grids.new, axes), int((members < members[0]).sum()))
    size = groups.size
    if size == len(members):
        return replace(item, groups=groups), False
    put_in, got = item.operand_bytes, item.result_bytes
    widths = [max(1, DTYPE_BITS.get(dtype, 8) // 8) for dtype in item.dtypes]
    if item.kind == "all_gather":
        parts = zip(got, widths, strict=True)
        put_in = tuple(_share(whole, size, width) for whole, width in parts)
        got = tuple(part * size for part in put_in)
    elif item.kind == "reduce_scatter":
        parts = zip(put_in, widths, strict=True)
        got = tuple(_share(whole, size, width) for whole, width in parts)
        put_in = tuple(part * size for part in got)
    return (
        replace(item, groups=groups, operand_bytes=put_in, result_bytes=got, largest_bytes=0),
        True,
    )


def _share(whole: int, ranks: int, width: int) -> int:
    """Bytes of one of equal parts, in whole elements of ``width`` bytes, rounded up."""
    elements = -(-whole // width)
    return -(-elements // ranks) * width


def _axes_of(members: Ints, kind: str, grids: _Grids) -> tuple[str, ...]:
    """The axes that a group runs along, each as a whole.

    Raises:
        UsageError: it has a part of an axis.
    """
    found, product = [], 1
    for number, (axis, size) in enumerate(zip(grids.old.axes, grids.old.shape, strict=True)):
        places = np.unique(members // grids.old.strides[number] % size)
        product *= len(places)
        if len(places) == size > 1:
            found.append(axis)
        elif len(places) > 1:
            product = -1
            break
    if product != len(members):
        shown = ", ".join(map(str, members[:8].tolist())) + (", ..." if len(members) > 8 else "")
        raise UsageError(
            f"--scale-out: {kind} among ranks {shown} is not along whole axes of the run's mesh "
            f"({grids.old}): give the run's axes with --mesh and --axes"
        )
    return tuple(found)


def _message(item: Communication, rank: int, grids: _Grids, chained: set[str]) -> Communication:
    """A message, and the same message of every mirror.

    Raises:
        UsageError: it is along an axis that is scaled.
    """
    assert item.permutation is not None
    other = int(item.permutation.target[rank])
    ends = (rank, other) if other >= 0 else (int(item.permutation.source[rank]), rank)
    source, target = (grids.old.coordinates(end) for end in ends)
    sends = np.ones(grids.new.size, np.bool_)
    every = np.arange(grids.new.size, dtype=np.int64)
    move = 0
    for number, axis in enumerate(grids.old.axes):
        if source[number] == target[number]:
            continue
        if axis in grids.scaled:
            raise UsageError(
                f"--scale-out: rank {ends[0]} sends to rank {ends[1]} along {axis}, which would "
                "be scaled: the run does not show which ranks would send to which"
            )
        chained.add(axis)
        place = grids.new.axes.index(axis)
        stride = grids.new.strides[place]
        sends &= every // stride % grids.new.shape[place] == source[number]
        move += (target[number] - source[number]) * stride
    pairs = np.stack([every[sends], every[sends] + move], axis=1)
    return replace(item, permutation=permutation(grids.new.size, pairs))
