"""The memory of a program: as its framework asked for it, else from the lifetimes of its values.

The idea: a recording of PyTorch knows what autograd, FSDP and the allocator really held
(``flint.simulation.caching_allocator``), a compiled program has its compiler's rules
(``flint.simulation.memory``).  A program that passes have changed was never recorded: what they
change about the lifetimes of its values is added to what was.

    program_memory(program, apply(program.graph, "kernel"), changed=False).bytes
"""

from __future__ import annotations

from dataclasses import replace

from flint.cost.hardware import Accelerator
from flint.cost.reserve import reserve_of
from flint.graph.graph import WorkloadGraph
from flint.passes import apply
from flint.simulation.memory import Memory, peak_memory
from flint.workload.programs import Program


def program_memory(
    program: Program, kernels: WorkloadGraph, accelerator: Accelerator, *, changed: bool
) -> Memory:
    """What a program needs on one rank.

    Args:
        program: it.
        kernels: its graph, kernel by kernel, as it is simulated.
        accelerator: that it runs on.
        changed: whether that is another program than what was captured.
    """
    found = peak_memory(kernels, program.inputs, program.calls)
    if program.allocations is None:
        return found
    from flint.simulation.caching_allocator import usage  # few programs were recorded so

    limit = accelerator.memory_bytes - reserve_beside(program, accelerator)
    used = usage(program.allocations, limit)
    more = 0
    if changed:
        before = peak_memory(apply(program.graph, "kernel"), program.inputs, program.calls)
        more = found.peak - before.peak
    # What is named an input is there at the peak, too.
    return replace(
        found,
        peak=max(0, used.allocated - sum(found.inputs.values()) + more),
        allocator=used.reserved - used.allocated,
        host=used.host,
        retries=used.retries,
    )


def reserve_beside(program: Program, accelerator: Accelerator) -> int:
    """Bytes of a device that the runtime takes beside a program, for its communicators too."""
    known = {
        item.communicator
        for item in program.graph.tables.communications
        if item.groups is None or item.groups.size > 1
    }
    return reserve_of(accelerator, len(known))
