"""What a graph does not know: work and traffic of kernels that were only measured.

The idea: a profiler shows how long a kernel took.  What the kernel computed and moved is known only
if shapes were recorded as well; otherwise it is unknown, which is not zero.  Copies compute
nothing.

    unstated_work(graph), unstated_traffic(graph)      # masks, shape [nodes]
    unstated_values(graph)                             # whether memory is unknown
    UNKNOWN + 1                                        # unknown: not a number
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry

#: Stands for an unknown number; null in JSON.
UNKNOWN: Final = math.nan
#: Names of device copies in profiles.
_COPIES: Final = ("memcpy", "memset")
#: Roles of nodes that run no kernel of their own: they compute and move nothing.
_FREE: Final = (Role.CONTROL, Role.ALIAS, Role.GENERATE)


def is_copy(op: str) -> bool:
    """Whether a measured kernel of this name is a device copy or fill."""
    return any(word in op.lower() for word in _COPIES)


def is_fill(op: str) -> bool:
    """Whether a measured kernel of this name fills memory, which reads nothing."""
    return "memset" in op.lower()


def unstated_work(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Measured kernels without known FLOPs, shape [nodes]."""
    measured = _measured(graph)
    if not measured.any():
        return measured
    owner = row_of_entry(graph.work_ptr)
    measured[owner[graph.work_unit < Unit.MEASURED]] = False
    copies = np.array([is_copy(name) for name in graph.tables.ops], np.bool_)
    unstated: NDArray[np.bool_] = measured & ~copies[graph.op]
    return unstated


def unstated_reads(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Measured kernels without known operands, shape [nodes]."""
    unstated: NDArray[np.bool_] = _measured(graph) & (graph.bytes_read + graph.bytes_written == 0)
    return unstated


def unstated_traffic(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Measured kernels without known operands, or without known results, shape [nodes].

    Where a trace records no values, as Kineto's, it records at most the operands of an op.
    """
    if not unstated_values(graph):
        return unstated_reads(graph)
    unstated: NDArray[np.bool_] = _measured(graph) & (graph.bytes_written == 0)
    return unstated


def unstated_values(graph: WorkloadGraph) -> bool:
    """Whether kernels were measured, but not which values they read and write."""
    return not len(graph.input_type) and not len(graph.result_type) and bool(_measured(graph).any())


def _measured(graph: WorkloadGraph) -> NDArray[np.bool_]:
    if not (graph.work_unit == Unit.MEASURED).any():
        return np.zeros(len(graph), np.bool_)
    computes = (graph.kind == NodeKind.COMPUTE) & ~np.isin(graph.role, _FREE)
    measured: NDArray[np.bool_] = (graph.measured_by_node() >= 0) & computes
    return measured


def without_unknown(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary for JSON, with None for unknown values (a ``dict_factory`` of ``asdict``)."""
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in items
    }
