"""ASTRA-sim as an engine: the user's binary runs a workload's execution traces, we read its times.

The idea: existing traces of a folder are run unchanged; if there are none, or only for some ranks,
or for another system or granularity, traces of all ranks are written into a temporary folder, with
attention timed as in the embedded engine.  Figures that do not depend on an engine (FLOPs, memory,
peaks of matrix units) come from the embedded one, which also simulates the same graphs.

    result = simulate(flint.load("out"), folder=Path("out"), time_limit=60.0)
    result.step_seconds         # 1 cycle is 1 ns
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.astra_sim.run import AstraSimRun, astra_sim_binary, run_astra_sim
from flint.cost.hardware import System
from flint.cost.systems import load_system, system_names
from flint.errors import UsageError
from flint.host.temporary import temporary_folder
from flint.passes.what_if import Chosen, parse_passes
from flint.simulation.attention_choice import FUSED
from flint.simulation.preparing import program_graphs
from flint.simulation.result import Figures, ProgramResult, SimulationResult
from flint.simulation.running import simulate as simulate_embedded
from flint.workload.document import Document
from flint.workload.folder import chained_by, is_workload_folder, read_document, traced_system
from flint.workload.reducing import stands_for
from flint.workload.saving import save
from flint.workload.workload import Workload

NAME: Final = "astra-sim"
TIME_LIMIT: Final = 600.0
#: ASTRA-sim counts in cycles of one nanosecond.
_CYCLE: Final = 1e-9


def simulate(
    workload: Workload,
    system: str | System | None = None,
    *,
    granularity: str | None = None,
    passes: Iterable[str | Chosen] = (),
    attention: str | None = None,
    folder: str | Path | None = None,
    binary: str | Path | None = None,
    time_limit: float = TIME_LIMIT,
    announce: Callable[[int, int], None] | None = None,
) -> SimulationResult:
    """The time of one step according to ASTRA-sim.

    Args:
        workload: the workload that runs; not at the logical level.
        system: the cluster; default: that of the folder's traces, else dgx-h100.
        granularity: "op", "kernel" or "region"; default: that of the folder's traces, else kernel.
        passes: what-if passes; with any, traces are written anew.
        attention: as in the embedded engine; traces with fused kernels are written anew.
        folder: the workload's folder, whose traces and ASTRA-sim files are used if they fit.
        binary: the simulator; default ``$FLINT_ASTRA_SIM``, else one on the PATH.
        time_limit: seconds that it may take.
        announce: called with (bytes, traces) before traces are written.

    Raises:
        UsageError: no binary, a single rank, unknown system, granularity or pass.
        FlintError: the simulator fails, hangs or loses ranks, or the disk is full.
    """
    if not time_limit > 0:
        raise UsageError(f"--time-limit {time_limit:g}: must be above 0 seconds")
    if workload.mesh.size < 2:
        raise UsageError("ASTRA-sim simulates at least 2 ranks; use --engine embedded")
    program = astra_sim_binary(Path(binary) if binary is not None else None)
    chosen = parse_passes(passes)
    written = written_traces(folder)
    described = described_system(system, folder)
    level = granularity or (written and written.granularity) or "kernel"
    fused = attention == FUSED
    reusable = is_reusable(written, system, granularity) and not chosen and not fused
    ours = simulate_embedded(
        workload, described, granularity=level, passes=chosen, attention=attention,
        communication_order=chained_by(written if reusable else None),
    )  # fmt: skip
    done = run_traces(
        workload, described, level, chosen, Path(folder) if reusable and folder else None, announce,
        fused_attention=fused, binary=program, time_limit=time_limit,
    )  # fmt: skip
    stands = written.et.reduced if reusable and written and written.et else None
    if stands:
        done = _of_everybody(done, stands_for(workload.mesh, stands.mesh))
    notes = [
        f"{program.name} took {done.seconds:.3g} s; 1 cycle is 1 ns",
        *((stands.meaning,) if stands else ()),
        *(() if reusable else ("traces of all ranks were written for it and removed",)),
        *(f"after pass {item}" for item in chosen),
        "kernels last as long as the folder's traces say"
        if reusable
        else "kernels last as long as in the embedded engine",
        "exposed communication is all time in which an unfinished rank does not compute"
        if min(done.exposed) >= 0
        else "this ASTRA-sim does not print how much communication is exposed",
        _embedded(ours),
    ]
    return _result(workload, ours, done, tuple(notes))


def written_traces(folder: str | Path | None) -> Document | None:
    """A folder's document, if the folder has traces of all ranks."""
    if folder is None or not is_workload_folder(Path(folder)):
        return None
    document = read_document(Path(folder))
    whole = document.partial is False and (Path(folder) / "et").is_dir()
    return document if whole else None


def described_system(system: str | System | None, folder: str | Path | None) -> System:
    """The requested cluster; else that of the folder's traces, else dgx-h100."""
    if isinstance(system, System):
        return system
    if system is None:
        return traced_system(Path(folder)) if folder is not None else load_system("dgx-h100")
    return load_system(system)


def is_reusable(
    written: Document | None, system: str | System | None, granularity: str | None
) -> bool:
    """Whether a folder's traces are the requested ones; a user's own system file may have changed
    since.
    """
    if written is None or isinstance(system, System):
        return False
    named = system in system_names() and system == written.system
    same_system = system is None or (named and not written.without)
    return same_system and granularity in (None, written.granularity)


def run_traces(
    workload: Workload,
    system: System,
    granularity: str,
    passes: tuple[Chosen, ...],
    folder: Path | None,
    announce: Callable[[int, int], None] | None,
    *,
    fused_attention: bool = False,
    binary: Path,
    time_limit: float,
) -> AstraSimRun:
    """Simulate the folder's traces, or temporary ones if there is none."""
    if folder is None:
        workload = _as_timed(workload, granularity, fused_attention=fused_attention)
    with _traces(workload, system, granularity, passes, folder, announce) as place:
        return run_astra_sim(place, binary=binary, time_limit=time_limit)


def _of_everybody(done: AstraSimRun, stands: NDArray[np.int64]) -> AstraSimRun:
    """The figures of the simulated ranks, applied to all ranks that they stand for."""

    def spread(column: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.array(column)[stands].tolist())

    return replace(
        done, cycles=spread(done.cycles), exposed=spread(done.exposed),
        communication=spread(done.communication),
    )  # fmt: skip


@contextmanager
def _traces(
    workload: Workload,
    system: System,
    granularity: str,
    passes: tuple[Chosen, ...],
    folder: Path | None,
    announce: Callable[[int, int], None] | None,
) -> Iterator[Path]:
    """A folder with the traces of all ranks: the given one, or one that lasts as long as this."""
    if folder is not None:
        yield folder
        return
    with temporary_folder() as scratch:
        place = scratch / "workload"
        save(
            workload, place, system=system, granularity=granularity, passes=passes,
            announce=announce,
        )  # fmt: skip
        yield place


def _as_timed(workload: Workload, granularity: str, *, fused_attention: bool) -> Workload:
    """A workload with attention as timed by the embedded engine."""
    left: dict[str, int] = {}  # the embedded engine, which simulates the same, reports it
    graphs = program_graphs(workload, granularity, fused_attention=fused_attention, left=left)
    programs = tuple(
        replace(program, graph=graph)
        for program, graph in zip(workload.programs, graphs, strict=True)
    )
    return replace(workload, programs=programs)


def _result(
    workload: Workload, ours: SimulationResult, done: AstraSimRun, notes: tuple[str, ...]
) -> SimulationResult:
    cycles = np.array(done.cycles)
    step = float(cycles.max()) * _CYCLE
    programs = []
    for program, mine in zip(workload.programs, ours.programs, strict=True):
        ranks = program.ranks.array()
        last = float(cycles[ranks].max()) * _CYCLE
        figures = _figures(mine.figures, done, ranks, last)
        if not program.traced:
            figures = replace(mine.figures, step_seconds=last)
        programs.append(replace(mine, figures=figures, classes=()))
    busy = [number for number, mine in enumerate(ours.programs) if mine.figures.compute_seconds > 0]
    busy = busy or list(range(len(programs)))
    counted = np.concatenate([workload.programs[number].ranks.array() for number in busy])
    together = _figures(ours.figures, done, counted, step)
    return SimulationResult(
        system=ours.system,
        granularity=ours.granularity,
        engine=NAME,
        communication_order=ours.communication_order,
        ranks=ours.ranks,
        behaviours=ours.ranks,
        memory_bytes=ours.memory_bytes,
        reserve_bytes=ours.reserve_bytes,
        figures=replace(together, mfu=_mfu([programs[number] for number in busy], step)),
        programs=tuple(programs),
        notes=notes,
        spread=ours.spread,
    )


def _embedded(ours: SimulationResult) -> str:
    """The other engine's result, and its notes except those on passes."""
    remarks = "; ".join(note for note in ours.notes if not note.startswith("after pass "))
    sentence = f"the embedded engine gives {ours.step_seconds * 1e3:.6g} ms"
    return f"{sentence} ({remarks})" if remarks else sentence


def _figures(ours: Figures, done: AstraSimRun, ranks: NDArray[np.int64], step: float) -> Figures:
    """Means over some ranks; what the simulator does not print is not a number."""
    cycles, exposed, talked = (
        np.where(np.array(column)[ranks] < 0, math.nan, np.array(column)[ranks]) * _CYCLE
        for column in (done.cycles, done.exposed, done.communication)
    )
    compute = float((cycles - exposed).mean())
    return replace(
        ours,
        step_seconds=step,
        compute_seconds=compute,
        communication_seconds=float(talked.mean()),
        exposed_communication_seconds=float(exposed.mean()),
        idle_seconds=float((cycles.max() - cycles).mean()),
        mfu=ours.mfu * ours.step_seconds / step if step else 0.0,
    )


def _mfu(programs: list[ProgramResult], step: float) -> float:
    """The workload's utilisation: the programs' seconds at the peaks, by number of ranks, in one
    step.
    """
    ranks = sum(program.rank_count for program in programs)
    ideal = sum(p.figures.mfu * p.figures.step_seconds * p.rank_count for p in programs)
    return ideal / ranks / step if step else 0.0
