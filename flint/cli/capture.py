"""``flint capture``: model code to a workload folder with execution traces."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from flint import registry
from flint.capturing.decorator import Capture, capture
from flint.capturing.exits import exits_named
from flint.capturing.request import MEMORY_LIMIT, TIME_LIMIT
from flint.capturing.step_files import find, load_step
from flint.cli.option_groups import TraceOptions, given, with_options
from flint.cli.options import (
    AuditOption,
    AxesOption,
    JsonOption,
    MemoryLimitOption,
    OutputOption,
    SetupOption,
    TargetOption,
    TargetSystemOption,
    TimeLimitOption,
    XlaOption,
)
from flint.cli.parsing import axis_names, level_and_target, system_of, xla_options
from flint.cli.program_options import ProgramOptions
from flint.cli.refusals import refuse
from flint.cli.saving import save_and_report
from flint.cli.shared import print_json, print_warnings, results_only_on_stdout, stages_shown
from flint.errors import UsageError
from flint.host.tasks import tell
from flint.mesh.mesh import as_mesh, parse_sizes
from flint.workload.programs import Level
from flint.workload.workload import Workload


@with_options
def capture_command(
    step: Annotated[str, typer.Argument(help="FILE.py:FUNCTION, decorated or not.")],
    output: OutputOption,
    *,
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh", help="Device grid: 64,8 or data=64,model=8 [default: the decorator's]."
        ),
    ] = None,
    axes: AxesOption = None,
    setup: SetupOption = None,
    level: Annotated[
        str,
        typer.Option(
            "--level",
            help="partitioned, optimized (with --target), auto (optimized if the compiler for "
            "the system's device is installed, else partitioned), or logical (no traces).",
        ),
    ] = "partitioned",
    target: TargetOption = None,
    xla_option: XlaOption = None,
    system: TargetSystemOption = None,
    traces: TraceOptions,
    options: ProgramOptions,
    time_limit: TimeLimitOption = TIME_LIMIT,
    memory_limit: MemoryLimitOption = MEMORY_LIMIT / 2**30,
    audit: AuditOption = None,
    read_seconds: Annotated[
        float,
        typer.Option(
            "--read-seconds",
            help="If the step reads a value between two programs (JAX): seconds from the end of "
            "the first until the host starts the second.",
        ),
    ] = 0.0,
    json_output: JsonOption = False,
) -> None:
    """Capture a training step for a mesh of any size and write execution traces."""
    started = time.perf_counter()
    decisions = options.decisions() | {
        "time_limit": time_limit,
        "memory_limit": int(memory_limit * 2**30),
        "compiler_options": xla_options(xla_option),
        "audit": audit,
        "read_seconds": read_seconds,
    }
    if level == Level.LOGICAL:
        of_traces = {"--system": system} | given(traces)
        refuse(of_traces, "for traces, and the logical level has none")
    with results_only_on_stdout(), stages_shown(), exits_named(_say_left):
        captured = _step(step, mesh, axes, setup)
        wanted, target = level_and_target(level, target, system, Level.PARTITIONED)
        workload = captured.capture(level=wanted or level, target=target, options=decisions)
    seconds = time.perf_counter() - started
    if workload.level is Level.LOGICAL:
        _save_logical(workload, output, seconds, json_output)
        return
    save_and_report(
        workload, output, seconds,
        system=system or system_of(_compiled_for(workload)), traces=traces, json_output=json_output,
    )  # fmt: skip


def _say_left(left: str) -> bool:
    tell(f"the capture {left}: a step must return", 2)  # in a rank's process: to its own
    return True


def _compiled_for(workload: Workload) -> str | None:
    return workload.compiled.target if workload.compiled is not None else None


def _step(step: str, mesh: str | None, axes: str | None, setup: str | None) -> Capture:
    """The step of the user's file; the command line overrides the decorator."""
    listed = axis_names(axes)
    names = None if listed is None else tuple(listed)
    grid = parse_sizes(mesh, names) if mesh is not None else None
    registry.prepare(as_mesh(grid).size if grid is not None else None)
    function, module = load_step(step)
    if isinstance(function, Capture):
        captured = function
        if grid is not None:
            captured = captured.at(grid, names)
        elif names is not None:
            captured = captured.at(captured.shape, names)
    elif grid is None:
        raise UsageError(f"{step} is not decorated with flint.capture: give --mesh")
    else:
        captured = capture(function, mesh=grid, axes=names)
    if setup is not None:
        made = find(module, setup, f"--setup {setup}: no such function")
        captured = captured.with_setup(made)
    return captured


def _save_logical(workload: Workload, output: Path, seconds: float, json_output: bool) -> None:
    workload.save_programs(output)
    print_warnings(workload.warnings)
    programs = workload.programs
    nodes = sum(len(graph) for program in programs for graph, _ in program.graph.walk())
    what = "the logical program" if len(programs) == 1 else f"{len(programs)} logical programs"
    document: dict[str, Any] = {
        "folder": str(output),
        "level": str(workload.level),
        "mesh": dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True)),
        "nodes": nodes,
        "warnings": workload.warnings,
        "seconds": {"graph": seconds},
    }
    if json_output:
        print_json(document)
        return
    sys.stdout.write(
        f"{output}: {what}, {nodes:,} nodes with global shapes, no traces\n"
        f"  mesh {workload.mesh}, graph {seconds:.2f} s\n"
    )
