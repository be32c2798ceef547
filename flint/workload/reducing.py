"""Reducing: a few ranks that stand for all of a workload, for simulators that cannot run all.

The idea: along an axis on which all ranks do the same, a ring of n ranks can be replaced by a ring
of k ranks with slower links (``flint.converters.chakra.astra_sim.files``) that takes as long. The
kept ranks run their programs unchanged, with the same kernels; a collective along a shortened axis
has k members and the same whole buffer, so that in an all-gather each member contributes n/k times
as much. Communications that are not rings over whole axes (messages, all-to-alls, parts of an axis)
would not keep their time, and an axis with such communications is not shortened.

    reduced = reduce_ranks(workload, 16)
    reduced.axes                   # {"data": (64, 2)}: 2 of 64 ranks along data
    reduced.workload.mesh.size     # 16
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from flint.errors import UsageError
from flint.execution.structures import used_communications
from flint.graph.communication import Communication
from flint.graph.graph import Ints, with_tables
from flint.mesh.groups import Groups, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.network_dims import network_dims
from flint.mesh.permutation import permutation
from flint.mesh.ranks import from_mask
from flint.workload.programs import Program

if TYPE_CHECKING:
    from flint.workload.workload import Workload

#: Kinds whose rings over fewer ranks can take the same time.
_RINGS: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


@dataclass(frozen=True, eq=False, slots=True)
class Reduced:
    """A workload of some ranks that stand for all.

    Attributes:
        workload: their workload, on the shortened mesh.
        mesh: the whole mesh.
        axes: each shortened axis -> its length, and how many ranks of it are kept.
        kept: each kept rank's number in the whole mesh, shape [kept].
        stands_for: for each rank of the whole mesh, the rank that stands for it, shape [ranks].
    """

    workload: Workload
    mesh: Mesh
    axes: dict[str, tuple[int, int]]
    kept: Ints
    stands_for: Ints

    def to_json(self) -> dict[str, Any]:
        """The reduction as the manifest describes it."""
        return {
            "ranks": self.mesh.size,
            "kept": self.workload.mesh.size,
            "mesh": list(self.workload.mesh.shape),
            "axes": {name: list(lengths) for name, lengths in self.axes.items()},
            "meaning": self.meaning,
        }

    @property
    def meaning(self) -> str:
        """One sentence about what the set stands for."""
        short = ", ".join(
            f"{few} of {many} along {axis}" for axis, (many, few) in self.axes.items()
        )
        gathers = " and ".join(
            f"{many // few} times its shard along {axis}" for axis, (many, few) in self.axes.items()
        )
        if not short:
            return f"all {self.mesh.size} ranks"
        return (
            f"{self.workload.mesh.size} ranks stand for {self.mesh.size} ({short}): same kernels "
            "and whole buffers; the links in the network file are slowed so that rings over "
            f"these ranks take as long as over all; the input of an all-gather is {gathers}"
        )


def reduce_ranks(workload: Workload, most: int) -> Reduced:
    """Keep at most ``most`` ranks.

    The longest axis that can be shortened is divided by its smallest factor, until that is enough.

    Raises:
        UsageError: fewer than 2, or shortening axes cannot make it that few; the text says what
            prevents it.
    """
    mesh = workload.mesh
    if most < 2:
        raise UsageError(f"--reduce-ranks {most}: at least 2 ranks are needed")
    obstacles = {axis: _obstacle(workload, number) for number, axis in enumerate(mesh.axes)}
    lengths = list(mesh.shape)
    while np.prod(lengths) > most:
        ways = [
            (length, -number, factor)
            for number, (axis, length) in enumerate(zip(mesh.axes, lengths, strict=True))
            if not obstacles[axis] and (factor := _smallest_factor(length)) < length
        ]
        if not ways:
            why = "; ".join(f"{axis}: {text}" for axis, text in obstacles.items() if text)
            raise UsageError(
                f"--reduce-ranks {most}: at least {int(np.prod(lengths))} of {mesh.size} ranks are "
                f"needed for the same times{f' ({why})' if why else ''}"
            )
        _, number, factor = max(ways)
        lengths[-number] //= factor
    return _reduced(workload, tuple(lengths))


def stands_for(mesh: Mesh, lengths: Sequence[int]) -> Ints:
    """The kept rank that stands for each rank of the mesh, shape [ranks].

    Args:
        mesh: all ranks.
        lengths: how many of each axis are kept.
    """
    coordinates = np.unravel_index(np.arange(mesh.size), mesh.shape)
    places = [at % length for at, length in zip(coordinates, lengths, strict=True)]
    found: Ints = np.ravel_multi_index(places, tuple(lengths)).astype(np.int64)
    return found


def _smallest_factor(number: int) -> int:
    return next((f for f in range(2, int(number**0.5) + 1) if number % f == 0), number)


def _reduced(workload: Workload, lengths: tuple[int, ...]) -> Reduced:
    mesh = workload.mesh
    grid = np.arange(mesh.size, dtype=np.int64).reshape(mesh.shape)
    kept = grid[tuple(slice(length) for length in lengths)].reshape(-1)
    few = Mesh(lengths, mesh.axes)
    of_kept = np.full(mesh.size, -1, np.int64)
    of_kept[kept] = np.arange(few.size)
    programs = []
    for program in workload.programs:
        tables = program.graph.tables
        used = set(used_communications(program.graph))
        items = tuple(
            _of_few(item, kept, of_kept) if index in used else item
            for index, item in enumerate(tables.communications)
        )
        mask = np.zeros(mesh.size, np.bool_)
        mask[program.ranks.array()] = True
        programs.append(
            replace(
                program,
                graph=with_tables(program.graph, replace(tables, communications=items)),
                ranks=from_mask(mask[kept]),
            )
        )
    axes = {
        axis: (many, length)
        for axis, many, length in zip(mesh.axes, mesh.shape, lengths, strict=True)
        if many != length
    }
    reduced = replace(workload, mesh=few, programs=tuple(programs))
    return Reduced(reduced, mesh, axes, kept, stands_for(mesh, lengths))


def _of_few(item: Communication, kept: Ints, of_kept: Ints) -> Communication:
    """A communication among the kept ranks."""
    if item.permutation is not None:
        target = item.permutation.target[kept]
        pairs = np.stack([np.arange(len(kept)), np.where(target >= 0, of_kept[target], -1)], 1)
        return replace(item, permutation=permutation(len(kept), pairs[pairs[:, 1] >= 0]))
    if item.groups is None:
        return item
    table = item.groups.table()
    rows = np.where(table >= 0, of_kept[table], -1)
    some = [row[row >= 0] for row in rows if (row >= 0).any()]
    longest = max(map(len, some))
    table = np.full((len(some), longest), -1, np.int64)
    for at, row in enumerate(some):
        table[at, : len(row)] = row
    groups = from_table(len(kept), table)
    times = item.groups.size // groups.size
    if item.kind != "all_gather" or times == 1:
        scattered = item.kind == "reduce_scatter"
        results = tuple(size * times for size in item.result_bytes) if scattered else None
        return replace(item, groups=groups, result_bytes=results or item.result_bytes)
    operands = tuple(size * times for size in item.operand_bytes)
    largest = item.largest_bytes * times
    return replace(item, groups=groups, operand_bytes=operands, largest_bytes=largest)


def _obstacle(workload: Workload, axis: int) -> str:
    """What prevents an axis from being shortened; "" if nothing does."""
    mesh = workload.mesh
    owner = np.empty(mesh.size, np.int64)
    for number, program in enumerate(workload.programs):
        owner[program.ranks.array()] = number
    if not _same_along(owner, mesh, axis):
        return "its ranks run different programs"
    for program in workload.programs:
        for index in used_communications(program.graph):
            text = _held_by(program, index, mesh, axis)
            if text:
                return text
    return ""


def _held_by(program: Program, index: int, mesh: Mesh, axis: int) -> str:
    item = program.graph.tables.communications[index]
    ranks = np.arange(mesh.size, dtype=np.int64)
    if item.permutation is not None:
        stride = int(np.prod(mesh.shape[axis + 1 :]))
        target = item.permutation.target
        here, there = ranks // stride % mesh.shape[axis], target // stride % mesh.shape[axis]
        if ((target >= 0) & (here != there)).any():
            return f"its ranks send each other messages ({item.kind})"
        moved = np.where(target >= 0, target - ranks, mesh.size)
        return "" if _same_along(moved, mesh, axis) else f"{item.kind} differs along it"
    if item.groups is None:
        return ""
    number = item.groups.number(ranks)
    if not _same_along(number, mesh, axis):
        return "" if _apart(number, mesh, axis) else f"groups of {item.kind} are parts of it"
    if item.kind not in _RINGS:
        return f"{item.kind} runs along it, and no smaller ring can stand for it"
    return _not_last(item, item.groups, mesh, axis)


def _same_along(values: Ints, mesh: Mesh, axis: int) -> bool:
    grid = np.moveaxis(values.reshape(mesh.shape), axis, 0)
    return bool((grid == grid[:1]).all())


def _apart(number: Ints, mesh: Mesh, axis: int) -> bool:
    """Whether no group has ranks at two places on the axis, and all places have the same groups."""
    grid = np.moveaxis(number.reshape(mesh.shape), axis, 0).reshape(mesh.shape[axis], -1)
    forms = set()
    seen: set[int] = set()
    for row in grid:
        labels, form = np.unique(row, return_inverse=True)
        mine = set(labels[labels >= 0].tolist())
        if seen & mine:
            return False
        seen |= mine
        first = np.unique(form, return_index=True)[1]
        rank_of_label = np.argsort(np.argsort(first))
        forms.add((rank_of_label[form].tobytes(), (row >= 0).tobytes()))
    return len(forms) == 1


def _not_last(item: Communication, groups: Groups, mesh: Mesh, axis: int) -> str:
    """Why a simulator passes more after this axis; "" if the axis is the last of whole dims.

    It passes a group's dims one after another: each has what the one below has left, so that only
    the last may be shorter.
    """
    dims = network_dims(mesh)
    mask = dims.mask(groups)
    if mask is None or any(len(axes) > 1 for axes in dims.axes):
        return f"groups of {item.kind} do not cover whole network dims"
    outer = max(dim for dim, used in enumerate(mask) if used)
    if dims.axes[outer] == (mesh.axes[axis],):
        return ""
    return f"groups of {item.kind} extend along {dims.axes[outer][0]}"
