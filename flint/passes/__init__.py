"""Passes: functions from workload graph to workload graph.

The idea: every pass is pure, works on the graph and on all bodies below it, and keeps the
invariants: no cycle, no communication lost or added, work per unit and type unchanged (with loops
multiplied).  Graphs are verified before and after each.

    kernels = apply(graph, "kernel")
    kernels = PASSES["fuse"](PASSES["order"](PASSES["aliases"](graph)))
"""

from __future__ import annotations

from collections.abc import Callable

from flint.errors import UsageError
from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify
from flint.passes.aliases import resolve_aliases
from flint.passes.coarsen import merge_regions
from flint.passes.fuse import fuse_as_inductor, fuse_as_xla, fuse_kernels
from flint.passes.host_memory import with_host_buffers
from flint.passes.order import issue_order
from flint.passes.update_aliasing import resolve_updates

Pass = Callable[[WorkloadGraph], WorkloadGraph]

#: Passes by name.
PASSES: dict[str, Pass] = {
    "host": with_host_buffers,  # make work on the host's buffers free for the device
    "aliases": resolve_aliases,  # remove ops that only rename a buffer
    "order": issue_order,  # put nodes in issue order, computed from the dependences
    "inplace": resolve_updates,  # decide which updates overwrite their operand
    "fuse": fuse_kernels,  # join ops into what a compiler makes one kernel
    "fuse-xla": fuse_as_xla,  # the same, with values recomputed as in XLA's GPU compiler
    "fuse-inductor": fuse_as_inductor,  # the same as PyTorch's compiler does
    "coarsen": merge_regions,  # merge all compute that communications cannot distinguish
}

#: Granularities and the passes that lead to them.  None of them changes the order in which
#: communications are issued: programs of one workload must keep the order that they share.
GRANULARITIES: dict[str, tuple[str, ...]] = {
    "op": ("host", "aliases", "inplace"),
    "kernel": ("host", "aliases", "inplace", "fuse"),
    "region": ("host", "aliases", "inplace", "fuse", "coarsen"),
    "xla": ("host", "aliases", "inplace", "fuse-xla"),
    "inductor": ("host", "aliases", "inplace", "fuse-inductor"),
}


def check_granularity(name: str) -> None:
    """Check that a granularity exists.

    Raises:
        UsageError: it does not.
    """
    if name not in GRANULARITIES:
        raise UsageError(f"granularity {name!r}: choose from {', '.join(GRANULARITIES)}")


def apply(graph: WorkloadGraph, granularity: str) -> WorkloadGraph:
    """``graph`` at ``granularity``.

    Args:
        graph: one node per op, in issue order (``PASSES["order"]`` computes one).
        granularity: one of ``GRANULARITIES``.

    Raises:
        UsageError: an unknown granularity.
        FlintError: a graph that contradicts itself (see ``flint.graph.verification``).
    """
    check_granularity(granularity)
    verify(graph)
    for name in GRANULARITIES[granularity]:
        made = PASSES[name](graph)
        if made is not graph:
            verify(made, f"after pass {name}")
        graph = made
    return graph
