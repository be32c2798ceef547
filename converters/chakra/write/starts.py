"""Starts: compute nodes that wait for nothing wait for one another, so that consumers stay fast.

The idea: consumers look at every ready node again whenever any node ends (ASTRA-sim,
workload/Workload.cc, issue_dep_free_nodes), and op by op a quarter of a trace is ready from the
start: constants made, parameters converted.  Each of them gets the one before it as a dependency.
That changes no time: a rank computes one node at a time, the ready one with the lowest id first, so
of those that wait for nothing only the first that is left is ever taken, and the one before it is
over by then.

    nodes that wait for nothing:  1, 2, 5        ->  1, 2 after 1, 5 after 2
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.execution.emission import Emission
from flint.execution.node_types import NodeType


def one_after_another(emission: Emission) -> tuple[Emission, int]:
    """The nodes with every COMP that waits for nothing after the one of these before it.

    Returns:
        The nodes, and how many of them wait for no other reason.
    """
    ptr = emission.ptr
    free = np.flatnonzero((emission.type == NodeType.COMP) & (np.diff(ptr) == 0))
    later = free[1:]
    held = np.zeros(len(ptr), np.int64)
    held[later + 1] = 1
    deps = np.insert(emission.deps, ptr[later], free[:-1])
    return replace(emission, ptr=ptr + np.cumsum(held), deps=deps), len(later)
