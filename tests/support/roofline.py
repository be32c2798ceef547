"""The plain roofline of nodes, without what kernels are known to cost beyond it."""

from __future__ import annotations

import numpy as np

from flint.cost.hardware import System
from flint.cost.roofline import Seconds, as_measured, rate_table, slowest_unit
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role


def node_seconds(graph: WorkloadGraph, system: System) -> Seconds:
    """Seconds per node of one graph, shape [nodes].

    Nodes without work and traffic (constants that were folded, aliases) take no time and are not
    launched; communication, loop and conditional nodes take 0 here.
    """
    accelerator = system.accelerator
    rates = rate_table(accelerator)
    arithmetic = slowest_unit(graph, graph.work_flops / rates[graph.work_unit, graph.work_dtype])
    traffic = (graph.bytes_read + graph.bytes_written) / accelerator.memory_bandwidth
    busy = np.maximum(arithmetic, traffic)
    seconds = np.where(busy > 0, busy + accelerator.launch_overhead, 0.0)
    computes = (graph.kind == NodeKind.COMPUTE) & (graph.role != Role.ALIAS)
    return np.where(computes, as_measured(graph, seconds), 0.0)
