"""Several recorded modules in, a workload out.

The idea: ranks that behave differently are recorded separately, each as a module with the ranks
that it stands for.

    workload_of_parts([Part(walked, module, ranks, saved)], mesh, options=options, source={})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint.capturing.converting import (
    allocations_of,
    graphed,
    of_programs,
    program_inputs,
    remarks_of,
    with_input_copies,
)
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import RankSet
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import Walked
from flint.workload.programs import Level, Order, Program
from flint.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Part:
    """One of several programs of a workload: a walked module and the ranks that run it."""

    walked: Walked
    module: Module
    ranks: RankSet
    saved: tuple[bytes, str]


def workload_of_parts(
    parts: Sequence[Part],
    mesh: Mesh,
    *,
    options: WalkOptions,
    source: dict[str, str],
    warnings: dict[str, int],
    level: Level = Level.PARTITIONED,
) -> Workload:
    """The workload of several recorded modules, verified over all of them.

    Args:
        parts: one per distinct behaviour; together they cover every rank once.
        mesh: the device grid.
        options: the walk's options, for the record.
        source: name and hash of the input.
        warnings: remarks made during capturing, text -> count.
        level: the compilation level of the programs.
    """
    inputs = [program_inputs(part.module, part.walked.graph) for part in parts]
    programs = tuple(
        Program(
            name="main" if len(parts) == 1 else f"main_{number}",
            graph=with_input_copies(part.walked.graph, part.module, inputs[number]),
            ranks=part.ranks,
            inputs=inputs[number],
            module=part.saved,
            allocations=allocations_of(part.module, options),
            graphed=graphed(part.module),
        )
        for number, part in enumerate(parts)
    )
    for part in parts:
        warnings = warnings | part.walked.warnings
    return of_programs(
        programs,
        mesh,
        options=options,
        source=source,
        warnings=warnings | remarks_of(parts[0].walked),
        level=level,
        order=Order.RECORDED,
    )
