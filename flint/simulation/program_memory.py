"""The memory of a program: as its framework allocated it, else from the lifetimes of its values.

The idea: a PyTorch recording shows what autograd, FSDP and the allocator really held
(``flint.simulation.caching_allocator``), a compiled program follows its compiler's rules
(``flint.simulation.memory``).  A program that passes have changed was never recorded: their effect
on the lifetimes of its values is added to what was recorded.  So is that of fused attention, but
only as far as the recording has memory of that size: where it called a kernel, which a capture has
opened, scores were never in memory.

    program_memory(program, written, apply(written, "kernel"), accelerator).bytes
"""

from __future__ import annotations

from dataclasses import replace

from flint.cost.hardware import Accelerator
from flint.cost.reserve import reserve_of
from flint.graph.graph import WorkloadGraph, with_tables
from flint.passes import apply
from flint.simulation.memory import Memory, peak_memory
from flint.workload.programs import Program


def program_memory(
    program: Program,
    written: WorkloadGraph,
    kernels: WorkloadGraph,
    accelerator: Accelerator,
    *,
    changed: bool,
) -> Memory:
    """The memory that a program needs on one rank.

    Args:
        program: the program.
        written: its graph, with attention as it is simulated, before passes.
        kernels: its graph at kernel granularity, as simulated.
        accelerator: the device that it runs on.
        changed: whether passes have changed it.
    """
    found = peak_memory(kernels, program.inputs, program.calls)
    if program.allocations is None:
        return found
    from flint.simulation.caching_allocator import (
        usage,
    )  # only few programs were recorded with allocations

    limit = accelerator.memory_bytes - reserve_beside(program, accelerator)
    used = usage(program.allocations, limit)
    more = 0
    if changed:
        before = peak_memory(apply(written, "kernel"), program.inputs, program.calls)
        more += found.peak - before.peak
    if written is not program.graph:
        more += _allocated(program, written) - _allocated(program, program.graph)
    # The named inputs are in memory at the peak, too.
    return replace(
        found,
        peak=max(0, used.allocated - sum(found.inputs.values()) + more),
        allocator=used.reserved - used.allocated,
        host=used.host,
        retries=used.retries,
    )


def _allocated(program: Program, graph: WorkloadGraph) -> int:
    """The peak of a graph of a recorded program, of values as large as memory that it allocated."""
    assert program.allocations is not None
    sizes = frozenset(program.allocations.size.tolist())
    kernels = apply(graph, "kernel")
    types = (t if t.bytes in sizes else replace(t, bytes=0) for t in kernels.tables.types)
    counted = with_tables(kernels, replace(kernels.tables, types=tuple(types)))
    return peak_memory(counted, program.inputs, program.calls).peak


def reserve_beside(program: Program, accelerator: Accelerator) -> int:
    """Bytes of a device that the runtime takes in addition to a program, also for its
    communicators.
    """
    known = {
        item.communicator
        for item in program.graph.tables.communications
        if item.groups is None or item.groups.size > 1
    }
    return reserve_of(accelerator, len(known))
