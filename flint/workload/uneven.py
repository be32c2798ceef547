"""Collectives whose members move different amounts.

The idea: a group's members meet in one collective even if one has more rows than another, and
consumers of traces need the same size on all of them. So every program keeps its own bytes, and
also gets the largest size among the members. Members are found program by program: groups that a
program shares with another one count for all of its ranks, also for those that never meet it.

    with_largest_sizes(programs, 8)     # all_to_all of 4 and 8 KB: both largest_bytes 8192
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph, with_tables

if TYPE_CHECKING:
    from flint.workload.programs import Program


#: Kind -> the bytes that count. An exchange lasts until the member that receives most has finished,
#: too; a gather's size is what a member contributes. All members of a reduce-scatter contribute the
#: same amount in any case.
_NEEDED: Final[dict[str, Callable[[Communication], int]]] = {
    "all_gather": lambda item: item.bytes_in,
    "all_to_all": lambda item: max(item.bytes_in, item.bytes_out),
    "ragged_all_to_all": lambda item: max(item.bytes_in, item.bytes_out),
}


class _Issued(NamedTuple):
    """A communication and the node of a program's graph that issues it."""

    node: int
    item: Communication


def uneven_remarks(programs: tuple[Program, ...]) -> dict[str, int]:
    """Remarks for the user: text -> number of collectives, over all programs."""
    count = 0
    for program in programs:
        table = program.graph.tables.communications
        uneven = np.array([item.largest_bytes > 0 for item in table] + [False])
        talks = program.graph.kind == NodeKind.COMMUNICATION
        count += int(uneven[program.graph.detail[talks]].sum())
    text = (
        "collectives whose members move different amounts: traces and simulation use the "
        "largest; nodes.parquet has the amount of each program"
    )
    return {text: count} if count else {}


def with_largest_sizes(programs: tuple[Program, ...], world: int) -> tuple[Program, ...]:
    """The programs, with ``largest_bytes`` set if members of a collective move different amounts.

    Collectives are matched in issue order, communicator by communicator. If two programs issue
    different kinds, or within loops, nothing is changed: ``verify_pairing`` compares them.

    Args:
        programs: programs with communicator ids, which together cover every rank once.
        world: number of ranks.
    """
    if len(programs) < 2:
        return programs
    owner = np.zeros(world, np.int64)
    for number, program in enumerate(programs):
        owner[program.ranks.array()] = number
    issued = [_issued(program.graph) for program in programs]
    hidden = {item.communicator for p in programs for item in _within_bodies(p.graph)}
    largest: list[dict[int, int]] = [{} for _ in programs]
    for communicator in sorted({number for each in issued for number in each} - hidden):
        groups = next(each[communicator][0].item.groups for each in issued if communicator in each)
        if groups is None:
            continue
        group = groups.number(np.arange(world, dtype=np.int64))
        for members in _meeting(group, owner):
            sequences = [issued[member][communicator] for member in members]
            for meeting in _matched(sequences):
                size = max(_NEEDED[item.kind](item) for _, item in meeting)
                for member, (node, _) in zip(members, meeting, strict=True):
                    largest[member][node] = size
    return tuple(
        replace(program, graph=_sized(program.graph, sizes)) if sizes else program
        for program, sizes in zip(programs, largest, strict=True)
    )


def _issued(graph: WorkloadGraph) -> dict[int, list[_Issued]]:
    """Communications outside loops, in issue order, by communicator."""
    found: dict[int, list[_Issued]] = defaultdict(list)
    for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
        item = graph.tables.communications[int(graph.detail[node])]
        found[item.communicator].append(_Issued(node, item))
    return found


def _within_bodies(graph: WorkloadGraph) -> Iterator[Communication]:
    for loop in graph.loops:
        for each in _issued(loop.body).values():
            yield from (item for _, item in each)
        yield from _within_bodies(loop.body)


def _meeting(group: Ints, owner: Ints) -> Iterator[list[int]]:
    """Programs that share groups, directly or through others."""
    pairs = np.unique(np.stack([group, owner])[:, group >= 0], axis=1)
    met: dict[int, set[int]] = {}
    for start, end in _runs(pairs[0]):
        together = set(pairs[1][start:end].tolist())
        for member in list(together):
            together |= met.get(member, set())
        for member in together:
            met[member] = together
    distinct = {id(together): sorted(together) for together in met.values()}
    yield from (members for members in distinct.values() if len(members) > 1)


def _runs(values: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of equal neighbours."""
    bounds = np.flatnonzero(np.diff(values, prepend=-1, append=-1))
    yield from zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)


def _matched(sequences: Sequence[list[_Issued]]) -> Iterator[tuple[_Issued, ...]]:
    """The uneven collectives, each with the nodes of its members."""
    kinds = [[issued.item.kind for issued in sequence] for sequence in sequences]
    if any(other != kinds[0] for other in kinds[1:]):
        return
    for meeting in zip(*sequences, strict=True):
        kind = meeting[0].item.kind
        put_in = {item.bytes_in for _, item in meeting}
        got = {item.bytes_out for _, item in meeting}
        if kind == "all_gather" and len(got) > 1:
            continue  # not for gathers: all members end with the same amount
        if kind in _NEEDED and (len(put_in) > 1 or len(got) > 1):
            yield meeting


def _sized(graph: WorkloadGraph, sizes: dict[int, int]) -> WorkloadGraph:
    """The graph with some nodes' communications given their largest size."""
    table = list(graph.tables.communications)
    detail = graph.detail.copy()
    entries: dict[tuple[int, int], int] = {}
    for node, size in sizes.items():
        key = (int(detail[node]), size)
        if key not in entries:
            entries[key] = len(table)
            table.append(replace(table[key[0]], largest_bytes=size))
        detail[node] = entries[key]
    tables = replace(graph.tables, communications=tuple(table))
    return with_tables(replace(graph, detail=detail), tables)
