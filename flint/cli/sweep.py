"""``flint sweep``: steps or a program on many meshes and systems, and which of them are best.

The idea: this module imports little.  The process that forks for every point needs more time for
its imports than anything else before the first point, so it starts before ``sweeping.py``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flint import registry
from flint.cli import forks
from flint.cli.engines import (
    ASTRA_SIM_VARIABLE,
    AstraSimOption,
    EngineOption,
    TimeLimitOption,
    refuse_of_others,
)
from flint.cli.launch_options import LaunchOptions
from flint.cli.option_groups import given, with_options, words_of
from flint.cli.options import (
    AlgorithmOption,
    AxesOption,
    BranchOption,
    GranularityOption,
    JsonOption,
    SetupOption,
    TargetOption,
    TripCountOption,
)
from flint.cli.parsing import by_name, system_of
from flint.cli.refusals import refuse
from flint.errors import UsageError
from flint.host.environment import import_numpy
from flint.sweeps.description import NO_PASS, Sweep
from flint.sweeps.processes import Processes
from flint.sweeps.varied import left_open, values_of

#: Suffix of the output file -> the file of the folder that it copies.
_FILES = {
    ".html": "sweep.html",
    ".csv": "results.csv",
    ".json": "results.json",
    ".png": "sweep.png",
}


@with_options
def sweep_command(
    swept: Annotated[
        list[str],
        typer.Argument(
            metavar="STEP... | -- PROGRAM...",
            help="FILE.py:FUNCTION, decorated or not, or a workload folder, one or more; or, with "
            "--world, a program's usual command, as for flint run.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for the results; points already in it are not rerun. Or a .html, .csv, "
            ".json or .png file next to this folder.",
        ),
    ],
    *,
    mesh: Annotated[
        list[str] | None,
        typer.Option("--mesh", help="Device grid: 64,8 or data=64,model=8 (repeatable)."),
    ] = None,
    world: Annotated[
        list[int] | None,
        typer.Option("--world", min=1, help="Devices that a program runs on (repeatable)."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="NAME=VALUE,...",
            help="Values that take the place of {NAME} in the program's command, one after "
            "another; of several names, all combinations (repeatable).",
        ),
    ] = None,
    launch: LaunchOptions,
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system",
            help="The cluster: a name (flint systems) or a TOML file (repeatable) "
            "[default: one of the target's devices, else dgx-h100].",
        ),
    ] = None,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass",
            metavar="NAME[:OPTION=VALUE,...]",
            help="What-if pass, as for flint simulate; each one makes a separate point "
            "(repeatable). Join the passes of one point with +; none makes a point without "
            "a pass.",
        ),
    ] = None,
    axes: AxesOption = None,
    setup: SetupOption = None,
    level: Annotated[
        str | None,
        typer.Option("--level", help="partitioned, or optimized (with --target)."),
    ] = None,
    target: TargetOption = None,
    trip_count: TripCountOption = None,
    branch: BranchOption = None,
    granularity: GranularityOption = "kernel",
    algorithm: AlgorithmOption = None,
    engine: EngineOption = "embedded",
    astra_sim: AstraSimOption = None,
    time_limit: TimeLimitOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Parallel processes [default: one per core, on all nodes]."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Run the points on a Ray cluster: its address, auto for the one on this "
            "machine, or local (or no address) to start one here. Needs the extra cluster.",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Rerun every point, for example after a change of data files, which Flint does "
            "not check.",
        ),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Capture and simulate steps, or a program, on every mesh and system; a second run resumes."""
    if world is None:
        refuse(given(launch) | {"--vary": vary}, "for a program, which needs --world")
    else:
        of_steps = {"--mesh": mesh, "--axes": axes, "--setup": setup, "--ray": ray is not None}
        refuse(of_steps, "for steps; --world sweeps over a whole program")
    # A file is written next to the folder of the same name, which keeps what a second run needs.
    kept = None if output.is_dir() else _FILES.get(output.suffix)
    folder = output.with_suffix("") if kept is not None else output
    systems = tuple(system or (system_of(target),))
    varied = values_of(vary or ())
    for name in left_open(swept, varied) if world else ():
        sys.stderr.write(
            f"flint: the command has {{{name}}}, and there is no --vary {name}=...: the program "
            "gets it as it is\n"
        )
    sweep = Sweep(
        () if world else tuple(swept), tuple(mesh or map(str, world or ())), systems, folder, axes,
        setup, granularity, algorithm,
        _capture_options(level, target, trip_count, branch) + words_of(launch),
        tuple(passes or (NO_PASS,)), _engine_options(engine, algorithm, astra_sim, time_limit),
        tuple(swept) if world else (), tuple(varied.items()),
    )  # fmt: skip
    processes = Processes(forks.__name__) if ray is None else None
    try:
        import_numpy()
        from flint.cli.sweeping import carry_out

        carry_out(sweep, output, kept, processes, jobs, ray, fresh, json_output)
    finally:
        if processes is not None:
            processes.end()


def _capture_options(
    level: str | None, target: str | None, trip_count: list[str] | None, branch: list[str] | None
) -> tuple[str, ...]:
    """The options for ``flint capture``, checked once for all points as far as possible."""
    if level not in (None, "partitioned", "optimized"):
        raise UsageError(f"--level {level}: a sweep simulates partitioned or optimized programs")
    if level == "optimized" and target is None:
        raise UsageError("--level optimized needs --target NAME, see flint targets")
    if target is not None and level != "optimized":
        raise UsageError(
            f"--target {target}: the partitioned level is the same for every target; give "
            "--level optimized"
        )
    by_name("--trip-count", trip_count)
    by_name("--branch", branch)
    options = [("--level", level), ("--target", target)]
    options += [("--trip-count", item) for item in trip_count or ()]
    options += [("--branch", item) for item in branch or ()]
    return tuple(part for name, value in options if value is not None for part in (name, value))


def _engine_options(
    engine: str, algorithm: str | None, astra_sim: Path | None, time_limit: float | None
) -> tuple[str, ...]:
    """The options for ``flint simulate`` that select the engine, checked once for all points."""
    of_its_own = {"--astra-sim": astra_sim, "--time-limit": time_limit}
    if engine not in registry.ENGINES:  # the built-in ones are imported where they run
        registry.engine(engine)
    refuse_of_others(engine, "embedded", {"--algorithm": algorithm})
    refuse_of_others(engine, "astra-sim", of_its_own)
    if engine == "embedded":
        return ()
    # As a full path, because points run in other folders; another build gives new points.
    found = astra_sim or os.environ.get(ASTRA_SIM_VARIABLE)
    binary = Path(found).absolute() if found else None
    options = {"--engine": engine, **of_its_own, "--astra-sim": binary}
    return tuple(str(part) for item in options.items() if item[1] is not None for part in item)
