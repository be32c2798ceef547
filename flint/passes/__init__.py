"""Passes: functions from workload graph to workload graph.

The idea: every pass is pure, works on the graph and on all bodies below it, and keeps the
invariants: no cycle, no communication lost or added, work per unit and type unchanged (with loops
multiplied).  Graphs are verified before and after each.

    kernels = apply(graph, "kernel")
    kernels = PASSES["fuse"](PASSES["order"](PASSES["aliases"](graph)))
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from flint.errors import UsageError
from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify

Pass = Callable[[WorkloadGraph], WorkloadGraph]


def _in(module: str, name: str) -> Pass:
    """A pass, whose module is imported when it first runs: a command needs few of them."""

    def run(graph: WorkloadGraph) -> WorkloadGraph:
        made: WorkloadGraph = getattr(import_module(f"flint.passes.{module}"), name)(graph)
        return made

    return run


#: Passes by name.
PASSES: dict[str, Pass] = {
    # make work on the host's buffers free for the device
    "host": _in("host_memory", "with_host_buffers"),
    # make transposes free that undo, behind attention, those in front of it
    "attention-layout": _in("attention.layout", "without_turning_back"),
    # remove ops that only rename a buffer
    "aliases": _in("aliases", "resolve_aliases"),
    # put nodes in issue order, computed from the dependences
    "order": _in("order", "issue_order"),
    # decide which updates overwrite their operand
    "inplace": _in("update_aliasing", "resolve_updates"),
    # join ops into what a compiler makes one kernel
    "fuse": _in("fuse", "fuse_kernels"),
    # the same, with values recomputed as in XLA's GPU compiler
    "fuse-xla": _in("xla.fuse", "fuse_as_xla"),
    # the same as PyTorch's compiler does
    "fuse-inductor": _in("fuse_as_inductor", "fuse_as_inductor"),
    # merge all compute that communications cannot distinguish
    "coarsen": _in("coarsen", "merge_regions"),
}

#: Granularities and the passes that lead to them.  None of them changes the order in which
#: communications are issued: programs of one workload must keep the order that they share.
GRANULARITIES: dict[str, tuple[str, ...]] = {
    "op": ("host", "aliases", "inplace"),
    "kernel": ("host", "aliases", "inplace", "fuse"),
    "region": ("host", "aliases", "inplace", "fuse", "coarsen"),
    "xla": ("host", "aliases", "inplace", "fuse-xla"),
    "inductor": ("host", "attention-layout", "aliases", "inplace", "fuse-inductor"),
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
