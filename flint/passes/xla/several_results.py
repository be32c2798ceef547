"""How long XLA's GPU compiler thinks that kernels with several results take.

The idea: what is read or computed element by element for any of the loops that a kernel was joined
from is once, and again for each reduction and for each part that one takes.

    alone, together = times_of(times, producer, consumers)
"""

from __future__ import annotations

from dataclasses import replace

from flint.passes.xla.emitters import Emitter
from flint.passes.xla.times import LAUNCH, TILED, Kernel, Read, Times, arithmetic_of, together


def times_of(times: Times, producer: Kernel, consumers: list[Kernel]) -> tuple[float, float]:
    """Nanoseconds of a kernel and of one with several results that reads it, and of one that
    computes it, too.

    Args:
        times: of the block.
        producer: the kernel.
        consumers: those that the other one was joined from.
    """
    one, other = _bare(times, producer), _bare(times, _side_by_side(times, consumers))
    return one.exec + other.exec + LAUNCH, times.fused(one, other, side=True)


def _side_by_side(times: Times, kernels: list[Kernel]) -> Kernel:
    """A kernel with the results of several."""
    first = max(kernels, key=lambda kernel: kernel.emitter != Emitter.LOOP)
    roots = {kernel.root for kernel in kernels}
    places: dict[int, dict[int, float]] = {}
    for kernel in kernels:
        for value, read in kernel.sources.items():
            mine = places.setdefault(value, {})
            for place, often in read.within.items():
                if place == kernel.root:
                    mine[first.root] = often
                else:
                    mine[place] = mine.get(place, 0.0) + often
    return replace(
        first,
        members=frozenset().union(*(kernel.members for kernel in kernels)),
        sources={
            value: Read(sum(within.values()), within)
            for value, within in places.items()
            if times.maker[value] not in roots
        },
        flops=sum(kernel.flops for kernel in kernels),
        turns=any(kernel.turns for kernel in kernels),
        write=sum(kernel.write for kernel in kernels),
    )


def _bare(times: Times, kernel: Kernel) -> Kernel:
    """A kernel without the constants that it reads."""
    sources = {
        value: read
        for value, read in kernel.sources.items()
        if times.maker[value] < 0 or not times.constant[times.maker[value]]
    }
    emitter, blocks, threads = times.runs(kernel.root, kernel.members, sources, kernel.row)
    wasted = kernel.turns and emitter not in TILED
    reads = {value: read.times for value, read in sources.items()}
    memory = kernel.write + times.reading(reads, blocks, wasted)
    took = together(arithmetic_of(kernel.flops, blocks, threads), memory)
    return replace(kernel, sources=sources, exec=took)
