"""``flint sweep``: the same step on many meshes and systems, and which of them are best."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from flint.cli.shared import AxesOption, JsonOption, human_bytes, print_json, progress
from flint.cli.tables import Printer, Table
from flint.errors import FlintError
from flint.sweeps import page, picture, rows
from flint.sweeps.points import Sweep
from flint.sweeps.running import run
from flint.writing import replacing

#: A file to write -> what of the folder it is.
_FILES = {
    ".html": "sweep.html",
    ".csv": "results.csv",
    ".json": "results.json",
    ".png": "sweep.png",
}


def sweep_command(
    step: Annotated[str, typer.Argument(help="FILE.py:FUNCTION, decorated or not.")],
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
            "[default: dgx-h100].",
        ),
    ] = None,
    axes: AxesOption = None,
    setup: Annotated[
        str | None,
        typer.Option("--setup", help="Function of the file that makes the arguments for a mesh."),
    ] = None,
    granularity: Annotated[
        str, typer.Option("--granularity", help="op, kernel or region.")
    ] = "kernel",
    algorithm: Annotated[
        str | None,
        typer.Option("--algorithm", help="How collectives run [default: the cheapest]."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes at a time [default: the cores].")
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Run again what is there (data files are not looked at)."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Capture and simulate a step on every mesh and system; a second run resumes."""
    # A file is written beside the folder of its name, which holds what a second run needs.
    kept = None if output.is_dir() else _FILES.get(output.suffix)
    folder = output.with_suffix("") if kept is not None else output
    sweep = Sweep(
        step, tuple(mesh), tuple(system or ("dgx-h100",)), folder, axes, setup, granularity,
        algorithm,
    )  # fmt: skip
    with progress("points") as report:
        outcomes = run(sweep, jobs=jobs, fresh=fresh, report=report)
    results = rows.to_rows(outcomes)
    rows.write(sweep, results)
    good = [row for row in results if row["error"] is None]
    image = folder / "sweep.png"
    drawn = picture.draw(results, image)
    if good and not drawn:
        sys.stderr.write("flint: no sweep.png: matplotlib is not installed\n")
    if not drawn:
        image.unlink(missing_ok=True)  # an earlier run's, of other points
    page.write(sweep, results, folder / "sweep.html", image if drawn else None)
    if kept is not None and (folder / kept).is_file():
        with replacing(output) as partial:
            shutil.copyfile(folder / kept, partial)
    if json_output:
        print_json(rows.document(sweep, results))
    else:
        cached = sum(outcome.cached for outcome in outcomes)
        printer = Printer(sys.stdout)
        again = f", {cached} of them from an earlier run" if cached else ""
        printer.line(f"{output}: {len(good)} of {len(results)} points simulated{again}")
        if good:
            printer.table(_table(good))
        failed = [row for row in results if row["error"] is not None]
        if failed:
            cells = [(row["mesh"], row["system"], row["error"]) for row in failed]
            printer.table(Table("failed", ("mesh", "system", "reason"), cells))
    if not good:
        raise FlintError(f"every point failed; the first: {results[0]['error']}")


def _table(good: list[rows.Row]) -> Table:
    columns = (
        "mesh", "system", ">step", "?>compute", "?>exposed", ">memory", ">MFU",
        "?>device-seconds", "best",
    )  # fmt: skip
    return Table(
        "points, fastest first (best: nothing is better in step, memory and device-seconds)",
        columns,
        [
            (
                row["mesh"],
                row["system"],
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


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3f} ms"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("sweep")(sweep_command)
