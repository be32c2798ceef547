"""What is said of grouped products that run as dense ones.

notes_on_groups(workload, written)
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.cost.classes import named
from flint.graph.graph import WorkloadGraph
from flint.passes.grouped_as_dense import NAMES
from flint.workload.workload import Workload


def notes_on_groups(workload: Workload, written: Sequence[WorkloadGraph]) -> list[str]:
    """The note about grouped products that run as dense ones, if there are any.

    Args:
        workload: the workload that runs.
        written: its graphs, as they are simulated.
    """
    for program, graph in zip(workload.programs, written, strict=True):
        before = any(_grouped(block) for block, _ in program.graph.walk())
        if before and not any(_grouped(block) for block, _ in graph.walk()):
            return [
                "ragged_dot multiplies each row with the matrices of all groups, as XLA compiles "
                "it for GPUs"
            ]
    return []


def _grouped(block: WorkloadGraph) -> bool:
    return bool(named(block, tuple(NAMES)).any())
