"""What is in a workload: ops, work, collectives, memory, loops, as numbers.

The idea: one pass over each program's columns, block by block; each block is summed exactly and
multiplied by the loops around it in Python integers, which never overflow.  All numbers are per
rank of the program, loops unrolled.

    summary = summarise(workload)
    summary.programs[0].flops, summary.programs[0].arithmetic_intensity
    json.dumps(summary.to_json())

FLOPs count a multiply-add as 2 and leave out transcendentals, which are counted separately; bytes
are those read and written as accessed (both as in XLA's cost analysis).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from flint.graph import exact_sums
from flint.graph.graph import NodeKind
from flint.graph.nesting import ProgramBlock, blocks
from flint.graph.partners import partners
from flint.graph.stated import UNKNOWN
from flint.mesh.mesh import Mesh
from flint.passes import apply
from flint.workload.call_rows import call_rows
from flint.workload.programs import Program
from flint.workload.summary import ProgramSummary, Summary
from flint.workload.summary_rows import CollectiveRow, InputRow, KindRow, LoopRow
from flint.workload.work_tables import (
    gemm_rows,
    is_plain,
    layer_rows,
    op_rows,
    phase_rows,
    total_work,
)
from flint.workload.workload import Workload


def summarise(workload: Workload, program: str | None = None) -> Summary:
    """A summary of the programs of a workload.

    Args:
        workload: at any granularity; ``ops`` counts StableHLO ops, ``nodes`` what they became.
        program: only the program of that name; None for all.

    Raises:
        FlintError: no program of that name.
    """
    chosen = workload.programs if program is None else (workload.program(program),)
    return Summary(
        mesh=workload.mesh,
        level=workload.level.value,
        order=workload.order.value,
        input=dict(workload.input),
        programs=tuple(_summarise_program(item, workload.mesh) for item in chosen),
        warnings=dict(workload.warnings),
        compiled=workload.compiled,
    )


def at_granularity(workload: Workload, granularity: str | None) -> Workload:
    """The workload at ``granularity``, as in its execution traces.

    Args:
        workload: at op granularity.
        granularity: "op", "kernel" or "region"; None leaves the graphs as they are, ops that only
            rename a buffer included.

    Raises:
        UsageError: an unknown granularity.
    """
    if granularity is None:
        return workload
    programs = tuple(
        replace(program, graph=apply(program.graph, granularity)) for program in workload.programs
    )
    return replace(workload, programs=programs)


def _summarise_program(program: Program, mesh: Mesh) -> ProgramSummary:
    graph = program.graph
    every = list(blocks(graph))
    taken = [block for block in every if block.times]
    ops = op_rows(taken, list(graph.tables.named_heroes()))
    gemms = gemm_rows(taken)
    collectives = _collectives(taken, mesh)
    sizes = graph.value_bytes[graph.outputs]
    return ProgramSummary(
        name=program.name,
        ranks=str(program.ranks),
        rank_count=program.ranks.size,
        stored_nodes=sum(len(block.graph) for block in every),
        nodes=sum(row.count for row in ops),
        stablehlo_ops=sum(row.stablehlo_ops for row in ops),
        work=total_work(ops),
        bytes_read=sum(row.bytes_read for row in ops) if program.traced else UNKNOWN,
        bytes_written=sum(row.bytes_written for row in ops) if program.traced else UNKNOWN,
        bytes_aliased=sum(
            block.times * exact_sums.total(block.graph.bytes_aliased) for block in taken
        ),
        ops=ops,
        gemms=gemms,
        collectives=collectives,
        collectives_by_kind=_by_kind(collectives),
        inputs=_inputs(program),
        output_count=len(sizes),
        output_bytes=exact_sums.total(sizes),
        loops=_loops(taken),
        phases=phase_rows(taken),
        layers=layer_rows(taken),
        traced=program.traced,
        calls=call_rows(program),
    )


def _collectives(every: list[ProgramBlock], mesh: Mesh) -> tuple[CollectiveRow, ...]:
    if not every:
        return ()
    table = every[0].graph.tables.communications
    once, looped = [0] * len(table), [0] * len(table)
    for block in every:
        graph = block.graph
        found = graph.detail[graph.kind == NodeKind.COMMUNICATION]
        counts = looped if block.level else once
        for detail, number in exact_sums.counts(found).items():
            counts[detail] += block.times * number
    names: dict[tuple[int, int], str] = {}
    members: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, item in enumerate(table):
        if once[number] or looped[number]:
            place = (id(item.groups), id(item.permutation))
            if place not in names:
                names[place] = partners(item, mesh)
            dtype = "+".join(dict.fromkeys(item.dtypes))
            key = (item.kind, item.reduction or "", names[place], dtype, item.origin)
            members[*key, item.process_group].append(number)
    rows = []
    for (kind, reduction, group, dtype, origin, process_group), numbers in members.items():
        calls = [(table[i], once[i] + looped[i]) for i in numbers]
        first = calls[0][0]
        rows.append(
            CollectiveRow(
                kind=kind,
                reduction=reduction or None,
                group=group,
                group_size=first.groups.size if first.groups is not None else None,
                dtype=dtype,
                origin=origin,
                process_group=process_group,
                count=sum(times for _, times in calls),
                once=sum(once[i] for i in numbers),
                in_loops=sum(looped[i] for i in numbers),
                operand_bytes=sum(item.bytes_in * times for item, times in calls),
                result_bytes=sum(item.bytes_out * times for item, times in calls),
                smallest=min(item.bytes_in for item, _ in calls),
                largest=max(item.bytes_in for item, _ in calls),
                exact=all(item.exact for item, _ in calls),
            )
        )
    rows.sort(key=lambda row: (-max(row.operand_bytes, row.result_bytes), row.kind, row.group))
    return tuple(rows)


def _by_kind(rows: tuple[CollectiveRow, ...]) -> tuple[KindRow, ...]:
    kinds: dict[str, list[CollectiveRow]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    return tuple(
        KindRow(
            kind,
            sum(row.count for row in found),
            sum(row.operand_bytes for row in found),
            sum(row.result_bytes for row in found),
        )
        for kind, found in sorted(kinds.items())
    )


def _inputs(program: Program) -> tuple[InputRow, ...]:
    roles: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for item in program.inputs:
        roles[item.role].append((item.type.bytes, item.donated >= 0))
    return tuple(
        InputRow(
            role,
            len(found),
            sum(size for size, _ in found),
            sum(donated for _, donated in found),
            sum(size for size, donated in found if donated),
        )
        for role, found in sorted(roles.items())
    )


def _loops(every: list[ProgramBlock]) -> tuple[LoopRow, ...]:
    rows = []
    for block in every:
        graph = block.graph
        for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
            loop = graph.loop_of(node)
            inside = [item for item in blocks(loop.body) if item.times]
            source = graph.tables.sources[int(graph.source[node])]
            rows.append(
                LoopRow(
                    node=block.path(node),
                    level=block.level,
                    entered=block.times,
                    trip_count=loop.trip_count,
                    known_by=loop.known_by,
                    lookahead=loop.lookahead,
                    carried=loop.carried,
                    nodes=sum(b.times * int(is_plain(b.graph).sum()) for b in inside),
                    communications=sum(
                        b.times * int((b.graph.kind == NodeKind.COMMUNICATION).sum())
                        for b in inside
                    ),
                    flops=sum(b.times * exact_sums.total(b.graph.flops_by_node()) for b in inside),
                    layer=source.layer,
                    file=source.file,
                    line=source.line,
                )
            )
    return tuple(rows)
