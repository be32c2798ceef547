"""How long PyTorch's host takes to launch a step's kernels, and steps that it decides.

The idea: Python, PyTorch's dispatcher and its autograd engine launch one op after another, compiled
kernels too, unless CUDA graphs do.  They run ahead of the device.  Where kernels are so small that
launching takes longer than running, the device waits, and a step lasts as long as its launches:

    seconds = max(simulated, launched ops * OP)

    counts = launched(everyone, happened, repeated, 1)      # ops of each program
    hosted(counts, [program_result])    # results whose steps are as long as their launches

An opened capture (``--fuse``) stands for code that a compiler or a library has fused.  Its launches
are the kernels of PyTorch's compiler, whatever granularity times the device: Transformer Engine's
layers have no fewer, and ops that nothing fuses would be launched by no one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import System
from flint.cost.library_kernels import RECURRENT
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.simulation.actors import Actors
from flint.simulation.machine import Run
from flint.simulation.result import ProgramResult
from flint.simulation.steady_state import Repeat
from flint.workload.programs import EXECUTION_TRACES, Order
from flint.workload.workload import Workload

#: Seconds of the host per op: the median of five programs whose kernels are short, on one H100 of a
#: machine with 16 cores (docs/accuracy/one-gpu.md): 27 to 39 us, compiled (33) or not.
OP: Final = 33e-6


#: Granularity whose kernels an opened capture's host launches.
OF_OPENED: Final = "inductor"


def by_torch(workload: Workload, system: System) -> bool:
    """Whether PyTorch's host launches the kernels of a captured step one by one."""
    profile = EXECUTION_TRACES in workload.options or any(
        program.timing is not None for program in workload.programs
    )
    launches = system.accelerator.launch_overhead > 0 and "host" not in system.without
    return launches and workload.order == Order.RECORDED and not profile


def is_opened(workload: Workload) -> bool:
    """Whether a capture's ops were opened, and are fused here."""
    return bool(workload.options.get("fuse"))


def launched(
    everyone: Actors,
    happened: Run,
    repeated: Sequence[Repeat],
    programs: int,
    *,
    opened: bool = False,
) -> list[int]:
    """Ops that the host launches in a step of each program, on the rank that launches most.

    Args:
        everyone: all actors.
        happened: when everything happened.
        repeated: what happens again.
        programs: their number.
        opened: as of ``by_host``.
    """
    counts = [0] * programs
    for actor, info in enumerate(everyone.info):
        end = happened.end[actor]
        times = np.ones(len(end), np.int64)
        for item in repeated:
            if actor in item.early:
                times[item.nodes(actor, end)] += item.times
        instances, first = np.unique(info.emission.instance, return_index=True)
        own = np.concatenate([by_host(graph, opened=opened) for graph in info.unrolled.graphs])
        count = int(times[first][own[info.unrolled.template[instances]]].sum())
        counts[info.program] = max(counts[info.program], count)
    return counts


def hosted(
    counts: Sequence[int], programs: Sequence[ProgramResult]
) -> tuple[list[ProgramResult], list[str]]:
    """Results of PyTorch's programs with the host's launches, and a note if these decide.

    Args:
        counts: launched ops, by program.
        programs: their results on a device that never waits for the host.
    """
    told = [
        replace(program, launch_seconds=count * OP)
        for count, program in zip(counts, programs, strict=True)
    ]
    late = [
        (count, program)
        for count, program in zip(counts, told, strict=True)
        if program.launch_seconds > program.figures.step_seconds
    ]
    if not late:
        return told, []
    made = [
        _lasting(program, max(program.launch_seconds, program.figures.step_seconds))
        for program in told
    ]
    count, program = max(late, key=lambda item: item[0])
    return made, [
        f"PyTorch's host decides the step: it launches {count:,} ops one by one, {OP * 1e6:g} us "
        f"each, which the device runs in {program.figures.step_seconds * 1e3:.3g} ms (a faster "
        "host, or CUDA graphs, would shorten the step; --without host leaves the host out)"
    ]


def _lasting(program: ProgramResult, seconds: float) -> ProgramResult:
    """The same program, whose device waits so long that a step takes some seconds."""
    figures = program.figures
    idle = figures.idle_seconds + seconds - figures.step_seconds
    mfu = figures.mfu * figures.step_seconds / seconds if seconds else figures.mfu
    return replace(
        program, figures=replace(figures, step_seconds=seconds, idle_seconds=idle, mfu=mfu)
    )


def by_host(graph: WorkloadGraph, *, opened: bool = False) -> NDArray[np.bool_]:
    """Kernels and communications that the host launches, shape [nodes].

    Args:
        graph: of a captured step, at the granularity of its kernels.
        opened: its kernels were fused here; else those that PyTorch launches have names, and
            others are plumbing.
    """
    moved = graph.bytes_read + graph.bytes_written > 0
    own = np.array([hero != RECURRENT for _, hero in graph.tables.named_heroes()] or [True])
    kernels = (graph.kind == NodeKind.COMPUTE) & moved & own[graph.op]
    if not opened:
        kernels &= graph.role == Role.OPAQUE
    found: NDArray[np.bool_] = kernels | (graph.kind == NodeKind.COMMUNICATION)
    return found
