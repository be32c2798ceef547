"""Whether PyTorch's host can launch a step's kernels as fast as they run.

The idea: in a step that no compiler has changed, Python and PyTorch's dispatcher launch one kernel
after another.  Where kernels are so small that this takes longer than they run, the device waits,
and a step lasts as long as its launches.  The host is not modelled: a note says that it may decide.

    launch_notes([graph], [10e-3])      # "PyTorch's host launches 4,000 kernels ..."
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from flint.cost.classes import is_compiled
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role

#: Seconds of a launch, at least: calls of ``cudaLaunchKernel`` alone take 3 to 7 us in public
#: profiles of A100, H100, B200 and MI300X, without what Python and the dispatcher do before.
LAUNCH: Final = 5e-6


def launch_notes(graphs: Sequence[WorkloadGraph], seconds: Sequence[float]) -> list[str]:
    """A note if launching takes longer than the step on some rank.

    Args:
        graphs: of PyTorch's programs, as recorded.
        seconds: of a step, by program.
    """
    late = [
        (count, count * LAUNCH)
        for count, step in zip(map(_launches, graphs), seconds, strict=True)
        if count * LAUNCH > step
    ]
    if not late:
        return []
    count, least = max(late)
    return [
        f"PyTorch's host launches {count:,} kernels one by one: at {LAUNCH * 1e6:g} us each, that "
        f"takes {least * 1e3:.3g} ms, longer than the step; launches are not modelled, and unless "
        "CUDA graphs are used the real step takes longer"
    ]


def _launches(graph: WorkloadGraph) -> int:
    """Kernels and communications; 0 of what a compiler has changed."""
    if is_compiled(graph):
        return 0
    moved = graph.bytes_read + graph.bytes_written > 0
    kernels = (graph.kind == NodeKind.COMPUTE) & (graph.role == Role.OPAQUE) & moved
    return int(np.count_nonzero(kernels | (graph.kind == NodeKind.COMMUNICATION)))
