"""``flint sweep``: steps on many meshes and systems, and which of them are best."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flint import registry
from flint.cli.engines import (
    ASTRA_SIM_VARIABLE,
    AstraSimOption,
    EngineOption,
    TimeLimitOption,
    refuse_of_others,
)
from flint.cli.options import (
    AlgorithmOption,
    AxesOption,
    BranchOption,
    GranularityOption,
    JsonOption,
    SetupOption,
    TargetOption,
    TripCountOption,
    by_name,
    system_of,
)
from flint.cli.shared import print_json, progress
from flint.cli.tables import Printer, Table
from flint.errors import FlintError, UsageError
from flint.readable import human_bytes
from flint.sweeps import page, picture, rows
from flint.sweeps.points import NO_PASS, Sweep
from flint.sweeps.running import Outcome, run
from flint.writing import replacing

#: A file to write -> what of the folder it is.
_FILES = {
    ".html": "sweep.html",
    ".csv": "results.csv",
    ".json": "results.json",
    ".png": "sweep.png",
}


def sweep_command(
    step: Annotated[
        list[str], typer.Argument(help="FILE.py:FUNCTION, decorated or not; one or more.")
    ],
    mesh: Annotated[
        list[str], typer.Option("--mesh", help="Device grid, for example 64,8 (repeatable).")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for results, whose points are not run again; or a .html, .csv, .json or "
            ".png beside such a folder.",
        ),
    ],
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
            help="What if, as for flint simulate; each is a point of its own (repeatable). "
            "Join with + what one point is to have; none is a point without any.",
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
        typer.Option("--jobs", help="Processes at a time [default: the cores, of all nodes]."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Run the points on a Ray cluster: its address, auto for the one of this machine, "
            "or local (also: no address) to start one here (needs the extra cluster).",
        ),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Run again what is there (data files are not looked at)."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Capture and simulate steps on every mesh and system; a second run resumes."""
    # A file is written beside the folder of its name, which holds what a second run needs.
    kept = None if output.is_dir() else _FILES.get(output.suffix)
    folder = output.with_suffix("") if kept is not None else output
    device = system_of(target)
    systems = tuple(system or (device,))
    sweep = Sweep(
        tuple(step), tuple(mesh), systems, folder, axes, setup, granularity, algorithm,
        _capture_options(level, target, trip_count, branch), tuple(passes or (NO_PASS,)),
        _engine_options(engine, algorithm, astra_sim, time_limit),
    )  # fmt: skip
    outcomes = _run(sweep, jobs=jobs, ray=ray, fresh=fresh)
    results = rows.to_rows(outcomes)
    rows.write(sweep, results)
    good = [row for row in results if row["error"] is None]
    image = folder / "sweep.png"
    drawn = picture.draw(results, image)
    if good and not drawn:
        sys.stderr.write("flint: no sweep.png: matplotlib is not installed or is broken\n")
    if not drawn:
        image.unlink(missing_ok=True)  # an earlier run's, of other points
    page.write(sweep, results, folder / "sweep.html", image if drawn else None)
    if kept is not None and (folder / kept).is_file():
        with replacing(output) as partial:
            partial.write_bytes((folder / kept).read_bytes())
    if json_output:
        print_json(rows.document(sweep, results))
    else:
        cached = sum(outcome.cached for outcome in outcomes)
        printer = Printer(sys.stdout)
        again = f", {cached} of them from an earlier run" if cached else ""
        printer.line(f"{output}: {len(good)} of {len(results)} points simulated{again}")
        if good:
            printer.table(_table(good, _varying(results)))
        failed = [row for row in results if row["error"] is not None]
        if failed:
            printer.table(_failures(failed, _varying(results)))
    if not good:
        raise FlintError(f"every point failed; the first: {results[0]['error']}")


def _run(sweep: Sweep, *, jobs: int | None, ray: str | None, fresh: bool) -> list[Outcome]:
    """Run it; who interrupts it is told what is kept."""
    state = [0, 0]
    with progress("points") as bar:

        def report(done: int, total: int) -> None:
            state[:] = done, total
            if done < total:
                picture.prepare()
            if bar is not None:
                bar(done, total)

        try:
            return run(sweep, jobs=jobs, ray=ray, fresh=fresh, report=report)
        except KeyboardInterrupt:
            done, total = state
            if total:
                sys.stderr.write(
                    f"flint: {done} of {total} points are done and kept in {sweep.folder}; "
                    "the same command goes on from there\n"
                )
            raise


def _capture_options(
    level: str | None, target: str | None, trip_count: list[str] | None, branch: list[str] | None
) -> tuple[str, ...]:
    """Options of ``flint capture``, checked as far as that can be done once for all points."""
    if level not in (None, "partitioned", "optimized"):
        raise UsageError(f"--level {level}: a sweep simulates partitioned or optimized programs")
    if level == "optimized" and target is None:
        raise UsageError("--level optimized: what for? --target NAME, see flint targets")
    if target is not None and level != "optimized":
        raise UsageError(
            f"--target {target}: the partitioned level is the same for all; give --level optimized"
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
    """Options of ``flint simulate`` that say what simulates, checked once for all points."""
    of_its_own = {"--astra-sim": astra_sim, "--time-limit": time_limit}
    registry.engine(engine)
    refuse_of_others(engine, "embedded", {"--algorithm": algorithm})
    refuse_of_others(engine, "astra-sim", of_its_own)
    if engine == "embedded":
        return ()
    # Named in full: points are worked on elsewhere, and another build makes other points.
    found = astra_sim or os.environ.get(ASTRA_SIM_VARIABLE)
    binary = Path(found).absolute() if found else None
    options = {"--engine": engine, **of_its_own, "--astra-sim": binary}
    return tuple(str(part) for item in options.items() if item[1] is not None for part in item)


def _varying(results: list[rows.Row]) -> tuple[str, ...]:
    """Mesh and system, and what else differs between points."""
    return tuple(
        name
        for name in ("step", "mesh", "system", "pass")
        if name in ("mesh", "system") or len({row[name] for row in results}) > 1
    )


def _table(good: list[rows.Row], varying: tuple[str, ...]) -> Table:
    columns = (
        *varying, ">step", "?>compute", "?>exposed", ">memory", ">MFU", "?>device-seconds", "best",
    )  # fmt: skip
    return Table(
        "points, fastest first (best: nothing is better in step, memory and device-seconds)",
        columns,
        [
            (
                *(row[name] or NO_PASS for name in varying),
                _milliseconds(row["step_seconds"]),
                _milliseconds(row["compute_seconds"]),
                _milliseconds(row["exposed_communication_seconds"]),
                human_bytes(row["peak_memory_bytes"]) + ("" if row["fits"] else " TOO MUCH"),
                f"{100 * row['mfu']:.1f}%",
                f"{row['device_seconds']:.4g}",
                "*" if row["pareto"] else "",
            )
            for row in sorted(good, key=lambda row: float(row["step_seconds"]))
        ],
    )


def _failures(failed: list[rows.Row], varying: tuple[str, ...]) -> Table:
    """One line per step, mesh and reason, whatever systems and passes it is on."""
    together: dict[tuple[str, str, str], list[rows.Row]] = {}
    for row in failed:
        together.setdefault((row["step"], row["mesh"], row["error"]), []).append(row)
    cells = [
        (
            *(", ".join(dict.fromkeys(row[name] or NO_PASS for row in alike)) for name in varying),
            alike[0]["error"],
        )
        for alike in together.values()
    ]
    return Table("failed", (*varying, "reason"), cells)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3f} ms"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("sweep", short_help="Many meshes and systems, and which are best.")(sweep_command)
