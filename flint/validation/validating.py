"""Comparing a workload with post-execution traces.

The idea: every trace is read into observed ops, of one step per rank, and compared with the ops
that this rank runs according to its capture.  If nothing can be concluded (another number of ranks,
another model, steps that differ), this is an error, not a verdict.

    report = validate(flint.load("out/"), [Path("kineto_rank0.json.gz")])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from flint.errors import FlintError, UsageError
from flint.host.packed_files import MEMORY_LIMIT
from flint.host.reading_memory import allowed
from flint.observed.clocks import Meetings
from flint.observed.columns import NO_OP, UNKNOWN_RANK, Observed
from flint.observed.folders import expanded
from flint.observed.program_runs import AskedProgram, ProgramRuns
from flint.observed.reading import read_runs, read_trace
from flint.observed.renumbered import renumbered
from flint.observed.sources import openable
from flint.observed.steps import MEAN, choose
from flint.validation.comparison import Comparison
from flint.validation.expected.modelled import Modelled
from flint.validation.expected.programs import NOT_COMPARED, compared, is_light, is_move
from flint.validation.group_evidence import GroupEvidence
from flint.validation.program_order import compare_order
from flint.validation.report.report import Report
from flint.validation.report.sanity_checks import conclude
from flint.validation.rewrites.branches import OtherBranches
from flint.workload.programs import DEVICES, Level, Order
from flint.workload.workload import Workload


def validate(
    workload: Workload,
    traces: Sequence[str | Path],
    *,
    step: str | None = None,
    system: str | Path | None = None,
    memory_limit: int | None = MEMORY_LIMIT,
) -> Report:
    """Compare a workload with profiles.

    Args:
        workload: partitioned or recorded, of the same mesh as the run.
        traces: one file, folder or pipe per trace, or a folder with a file per rank; each rank at
            most once.
        step: which step of the traces, by its name or the number in it ("ProfilerStep#4", "4");
            "mean" for the mean times of all equal steps; by default the last of the equal steps.
        system: system to model times for, a name or a TOML file.
        memory_limit: bytes of memory that reading a trace may take in this process; None for no
            limit.

    Raises:
        UsageError: no such step or system, no traces, a repeated rank, or a logical workload.
        FlintError: a trace cannot be read, or nothing can be concluded from it.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError("the program is not partitioned: no rank can run it")
    if not traces:
        raise UsageError("give at least one --trace")
    given = [Path(trace) for trace in traces]
    with allowed(memory_limit), openable(given) as read:
        return _compared(workload, expanded(read.paths), step, system, read.named)


def _compared(
    workload: Workload,
    files: list[Path],
    step: str | None,
    system: str | Path | None,
    named: Callable[[str], str],
) -> Report:
    """``validate`` for files and folders of JAX profiles, with nothing packed."""
    report = Report([named(str(path)) for path in files], workload.mesh.size, False)
    report.comparable = workload.order == Order.RECORDED
    modelled = None
    if system is not None:
        modelled = Modelled.of(system, workload.mesh.size)
        report.times.system = modelled.system.name
    moves = sum(is_move(call) for program in workload.programs for call in program.calls)
    if moves:
        report.note(NOT_COMPARED, moves)
    meetings, evidence = Meetings(), GroupEvidence()
    parts = [(part, OtherBranches(part.workload)) for part in compared(workload)]
    for path in files:
        before = set(report.ranks)
        if parts[0][0].asked is not None:
            compare_order(workload, _runs(workload, path, parts[0][0].asked), report)
        for (part, asked, ranks), branches in parts:
            trace = replace(read_trace(path, asked), path=named(str(path)))
            if ranks:
                trace = _among_all(workload, trace, ranks)
            _check_world(workload, trace)
            for text, count in trace.notes.items():
                report.note(text, count)
            for rank in trace.ranks:
                if rank in before:
                    raise UsageError(_twice(trace, rank))
                if asked is not None and is_light(part, trace):
                    continue
                chosen = choose(trace, rank, step)
                if rank not in report.ranks:
                    report.ranks.append(rank)
                    report.step.append(trace.steps[chosen.step])
                for text in chosen.notes:
                    report.note(text)
                if alone := trace.alone.get((rank, chosen.step)):
                    report.note(NO_OP, alone)
                Comparison(part, trace, rank, chosen, report).run(
                    mean=step == MEAN, modelled=modelled, meetings=meetings, evidence=evidence,
                    branches=branches,
                )  # fmt: skip
    if len(report.ranks) > 1 and len(set(report.step)) == 1:
        evidence.conclude(report)
    conclude(report, workload, meetings)
    return report


def _runs(workload: Workload, path: Path, first: AskedProgram) -> ProgramRuns:
    """The programs that each rank ran.

    Args:
        workload: the workload.
        path: the trace.
        first: one of its programs, which shows the ranks of devices if all devices run it.
    """
    devices = workload.options.get(DEVICES)
    if devices is None:
        return read_runs(path, first)
    runs = read_runs(path, None)
    known = {id: rank for rank, id in enumerate(devices)}
    by_rank = {known[id]: ran for id, ran in runs.by_rank.items() if id in known}
    return runs._replace(by_rank=by_rank)


def _among_all(workload: Workload, trace: Observed, ranks: tuple[int, ...]) -> Observed:
    """A trace of a program that these ranks run, with their numbers among all ranks.

    Raises:
        FlintError: the program ran on another number of devices.
    """
    if trace.world != len(ranks):
        raise FlintError(
            f"{trace.path}: a program that ran on {trace.world:,} devices is captured for "
            f"{len(ranks):,}"
        )
    devices: list[int] = workload.options[DEVICES]
    ids = [*map(devices.index, trace.devices)] if {*trace.devices} <= {*devices} else []
    return renumbered(trace, ids or ranks, workload.mesh.size)


def _twice(trace: Observed, rank: int) -> str:
    text = f"{trace.path}: rank {rank} is also in another trace"
    if UNKNOWN_RANK in trace.notes:
        text += "; this one does not name its rank: name the files rank0.json, rank1.json ..."
    return text


def _check_world(workload: Workload, trace: Observed) -> None:
    size = workload.mesh.size
    recorded = workload.order == Order.RECORDED
    if trace.form in ("kineto", "pytorch-et") and not recorded:
        raise FlintError(f"{trace.path}: a PyTorch trace; the capture is of an XLA program")
    if recorded and workload.options.get("fuse"):
        raise FlintError(
            f"{trace.path}: the capture's kernels were opened (--fuse) and are not PyTorch's "
            "own: capture it without --fuse"
        )
    if trace.form == "xplane" and recorded:
        raise FlintError(f"{trace.path}: a JAX trace; the capture is of a PyTorch program")
    if trace.world is not None and trace.world != size:
        raise FlintError(
            f"{trace.path}: a run on {trace.world:,} ranks; the capture is for {size:,} "
            f"({workload.mesh}): capture it for the mesh of the run"
        )
    if trace.ranks and trace.ranks[-1] >= size:
        raise FlintError(f"{trace.path}: has rank {trace.ranks[-1]}; the capture is for {size:,}")
    if not trace.ranks:
        raise FlintError(f"{trace.path} contains no ops")
