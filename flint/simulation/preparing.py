"""From what was captured to what is simulated: attention, granularity, what-if passes.

The idea: a simulation, its timeline and its report must be of one and the same graph.

    prepared = prepare(workload, "kernel", passes=())
    prepared.graphs[0]          # of the first program
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint.graph import WorkloadGraph
from flint.passes import apply
from flint.passes.attention import fuse_attention
from flint.passes.what_if import Chosen, same, stages, transform
from flint.workload import Level, Workload


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """Graphs per program, in the workload's order.

    Attributes:
        written: op by op, attention as it runs.
        graphs: at the granularity, after the passes.
        kernels: the same between kernels, where values live.
        idle: passes that changed nothing in any program.
    """

    written: tuple[WorkloadGraph, ...]
    graphs: tuple[WorkloadGraph, ...]
    kernels: tuple[WorkloadGraph, ...]
    idle: tuple[Chosen, ...]


def prepare(
    workload: Workload,
    granularity: str,
    passes: Sequence[Chosen],
    *,
    fused_attention: bool = True,
) -> Prepared:
    """The graphs that are simulated; arguments as of ``flint.simulation.running.simulate``."""
    fuses = fused_attention and workload.level == Level.PARTITIONED and granularity != "op"
    written = tuple(
        fuse_attention(program.graph) if fuses else program.graph for program in workload.programs
    )
    steps = [stages(apply(graph, granularity), passes) for graph in written]
    graphs = tuple(found[-1] for found in steps)
    idle = tuple(
        item
        for number, item in enumerate(passes)
        if all(same(found[number], found[number + 1]) for found in steps)
    )
    if granularity == "kernel":
        return Prepared(written, graphs, graphs, idle)
    kernels = tuple(transform(apply(graph, "kernel"), passes) for graph in written)
    return Prepared(written, graphs, kernels, idle)
