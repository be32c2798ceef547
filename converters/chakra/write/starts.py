"""Starts: chaining compute nodes that wait for nothing, so that consumers stay fast.

The idea: consumers check every ready node again whenever any node ends (ASTRA-sim,
workload/Workload.cc, issue_dep_free_nodes), and op by op a quarter of a trace is ready from the
start: constants made, parameters converted.  Each of them gets the previous one as a dependency.
This changes no time: a rank computes one node at a time, the ready one with the lowest id first, so
of the nodes that wait for nothing only the first remaining one is ever taken, and the previous one
has ended by then.

    nodes that wait for nothing:  1, 2, 5        ->  1, 2 after 1, 5 after 2
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.execution.emission import Emission
from flint.execution.node_types import NodeType


def one_after_another(emission: Emission) -> tuple[Emission, int]:
    """The nodes, with every COMP that waits for nothing waiting for the previous one of these.

    Returns:
        The nodes, and how many of them wait only for this reason.
    """
    ptr = emission.ptr
    free = np.flatnonzero((emission.type == NodeType.COMP) & (np.diff(ptr) == 0))
    later = free[1:]
    held = np.zeros(len(ptr), np.int64)
    held[later + 1] = 1
    deps = np.insert(emission.deps, ptr[later], free[:-1])
    return replace(emission, ptr=ptr + np.cumsum(held), deps=deps), len(later)
