"""The work of ``flint sweep``: run the points, write table, picture and page, print the result."""

from __future__ import annotations

import sys
from pathlib import Path

from flint.cli import forks
from flint.cli.shared import print_json, progress
from flint.cli.tables import Printer, Table
from flint.errors import FlintError
from flint.host.readable import human_bytes
from flint.host.writing import replacing
from flint.sweeps import page, picture, rows
from flint.sweeps.description import NO_PASS, Sweep
from flint.sweeps.processes import Processes
from flint.sweeps.running import Outcome, run


def carry_out(
    sweep: Sweep,
    output: Path,
    kept: str | None,
    processes: Processes | None,
    jobs: int | None,
    ray: str | None,
    fresh: bool,
    json_output: bool,
) -> None:
    """Run a sweep and write its results.

    Args:
        sweep: what to run.
        output: its folder, or a file next to it.
        kept: the file of the folder that ``output`` copies; None for a folder.
        processes: run its commands on this machine; None if a Ray cluster does.
        jobs, ray, fresh: as ``running.run``.
        json_output: print the results as JSON.

    Raises:
        FlintError: every point failed.
        UsageError: as ``running.run``.
    """
    folder = sweep.folder
    outcomes = _run(sweep, processes, jobs, ray, fresh)
    results = rows.to_rows(outcomes)
    rows.write(sweep, results)
    good = [row for row in results if row["error"] is None]
    image = folder / "sweep.png"
    drawn = picture.draw(results, image)
    if good and not drawn:
        sys.stderr.write("flint: no sweep.png, because matplotlib cannot be imported\n")
    if not drawn:
        image.unlink(missing_ok=True)  # left by an earlier run with other points
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
        for note in rows.remarks(results) if not sweep.simulation else ():
            printer.line(f"note: {note}")
        for note in rows.remark_on_alike(results):
            printer.line(f"note: {note}")
        if good:
            printer.table(_table(good, _varying(results)))
        failed = [row for row in results if row["error"] is not None]
        if failed:
            printer.table(_failures(failed, _varying(results)))
    if not good:
        raise FlintError(f"every point failed; the first error: {results[0]['error']}")


def _run(
    sweep: Sweep, processes: Processes | None, jobs: int | None, ray: str | None, fresh: bool
) -> list[Outcome]:
    """Run it; after Ctrl-C, report what is kept."""
    state = [0, 0]
    with progress("points") as bar:

        def report(done: int, total: int) -> None:
            state[:] = done, total
            if done < total:
                picture.prepare()
            if bar is not None:
                bar(done, total)

        try:
            return run(
                sweep, forks.__name__, processes, jobs=jobs, ray=ray, fresh=fresh, report=report
            )
        except KeyboardInterrupt:
            done, total = state
            if total:
                sys.stderr.write(
                    f"flint: {done} of {total} points are done and kept in {sweep.folder}; run "
                    "the same command again to continue\n"
                )
            raise


def _varying(results: list[rows.Row]) -> tuple[str, ...]:
    """Mesh and system, and the other columns that differ between points."""
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
        "points, fastest first (best: no other point is better in step, memory and "
        "device-seconds at once)",
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
    """One line per step, mesh and reason, for all systems and passes."""
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
