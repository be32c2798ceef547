"""The timeline of one rank in a simulated step, for Perfetto and Chrome.

The idea: the simulator records when the rank's nodes run, and ``timeline`` writes that.

    write_perfetto(workload, Path("step.json.gz"), rank=0, system="dgx-h100")
"""

from __future__ import annotations

from pathlib import Path

from flint.converters.pictures.timeline import write_timeline
from flint.cost.hardware import System
from flint.errors import UsageError
from flint.simulation.recording import record
from flint.workload.programs import Level
from flint.workload.workload import Workload


def write_perfetto(
    workload: Workload,
    path: Path,
    program: str | None = None,
    granularity: str = "kernel",
    rank: int | None = None,
    system: str | System = "dgx-h100",
) -> None:
    """Write the timeline of one rank; gzipped when the name ends with ``.gz``.

    Args:
        workload: the workload that runs, on all ranks.
        path: the file.
        program: its name; None for the program that ``rank`` runs.
        granularity: "op", "kernel" or "region" as in execution traces.
        rank: rank of the timeline; None for the first rank of the program (or of all).
        system: the cluster, by name, as a file or loaded.

    Raises:
        UsageError: an unknown granularity or system, a rank outside the mesh or the program, a
            program that is not partitioned, or a mesh that does not map to the system.
        FlintError: no such program, too many nodes, ranks that wait for each other forever, or a
            file that cannot be written.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError(
            "the program is not partitioned: its shapes are global, and a timeline would show no "
            "rank's real times"
        )
    chosen = _rank(workload, program, rank)
    write_timeline(record(workload, system, granularity=granularity, rank=chosen), path)


def _rank(workload: Workload, program: str | None, rank: int | None) -> int:
    if rank is not None and not 0 <= rank < workload.mesh.size:
        raise UsageError(f"rank {rank}: ranks go from 0 to {workload.mesh.size - 1}")
    if program is None:
        return rank or 0
    ranks = workload.program(program).ranks
    if rank is None:
        return int(ranks.array()[0])
    if rank not in ranks.array():
        raise UsageError(f"rank {rank} does not run program {program} (its ranks: {ranks})")
    return rank
