"""Running a sweep: captures and simulations in parallel; existing results are not rerun.

The idea: every capture and every simulation is a ``flint`` command in a separate process, on this
machine or on a Ray cluster.  A simulation starts as soon as its mesh is captured.  Results are
renamed into place when they are complete; failures are not kept, so that the next run tries them
again.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from flint.errors import FlintError, UsageError
from flint.host.owners import remove_left
from flint.host.packed_files import check_plain, read_once
from flint.host.side_by_side import processors
from flint.host.writing import check_folder, inside, replacing_in
from flint.sweeps import commands, sources
from flint.sweeps.description import MARK, Sweep
from flint.sweeps.points import Point, points
from flint.sweeps.processes import Processes
from flint.workload.folder import DOCUMENT

#: Figures in a simulation's result; none is negative.
FIGURES = (
    "step_seconds", "compute_seconds", "communication_seconds", "exposed_communication_seconds",
    "idle_seconds", "peak_memory_bytes", "memory_bytes", "fits", "flops", "model_flops", "mfu",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a point.

    Attributes:
        point: the point.
        result: the simulation's JSON document; None if it failed.
        reason: why it failed, in one line; None if it did not.
        cached: whether an earlier run had simulated it.
    """

    point: Point
    result: dict[str, Any] | None = None
    reason: str | None = None
    cached: bool = False


class Place(Protocol):
    """A place that computes points.  Methods are called from several threads and raise
    FlintError.
    """

    #: Number of commands that it runs at a time.
    workers: int

    def capture(self, sweep: Sweep, point: Point) -> None:
        """Write the workload folder of the point's mesh, whole or not at all."""

    def simulate(self, sweep: Sweep, point: Point) -> str:
        """What ``flint simulate --json`` prints for the point."""

    def end(self) -> None:
        """Stop what runs."""


class Here:
    """This machine: a process for each command."""

    def __init__(self, sweep: Sweep, processes: Processes, jobs: int | None = None) -> None:
        self.workers = jobs or processors()
        self._processes = processes
        named = [step.rpartition(":")[0] for step in sweep.steps]
        files = [file for file in named if Path(file).is_file()]
        self._processes.prepare(sources.modules(files))

    def capture(self, sweep: Sweep, point: Point) -> None:
        """Write the workload folder of the point's mesh."""
        self._processes.run(commands.capture(sweep, point, point.step, point.workload))

    def simulate(self, sweep: Sweep, point: Point) -> str:
        """What ``flint simulate --json`` prints for the point."""
        return self._processes.run(commands.simulate(sweep, point, point.system, point.workload))

    def end(self) -> None:
        """Kill what runs."""
        self._processes.end()


def run(
    sweep: Sweep,
    forks: str,
    processes: Processes | None = None,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    fresh: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Capture and simulate every point.

    Args:
        sweep: the sweep to run.
        forks: the module of the process that forks for each command, as in ``Processes``.
        processes: runs the commands on this machine, if it has been started already; it is ended,
            unless ``jobs`` is refused.
        jobs: processes at a time; default: as many as cores.
        ray: a Ray cluster's address, or ``local`` to start one; default: no Ray.
        fresh: capture and simulate existing points again.
        report: called with (points done, points).

    Raises:
        UsageError: an invalid point, a folder that is not a sweep's, or Ray is needed and not
            installed.
        FlintError: no such cluster.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1")
    # Its imports take longer than finding the points.
    place: Place | None = None
    wanted: list[Point] = []
    if ray is None:
        place = Here(sweep, processes or Processes(forks), jobs)
    try:
        wanted = points(sweep)
        _check_folder(sweep.folder)
        outcomes, missing = _sorted(wanted, fresh)
        if report is not None:
            report(len(outcomes), len(wanted))
        if missing and ray is not None:
            place = _on_ray(sweep, forks, ray, jobs)
        _claim(sweep.folder, [folder for folder in missing if _is_ours(sweep, folder)])
        if missing and place is not None:
            _work(sweep, place, missing, outcomes, fresh, len(wanted), report)
    except KeyboardInterrupt:
        # A result may be written but not reported yet.
        if report is not None:
            report(sum(_stored(point.result) is not None for point in wanted), len(wanted))
        raise
    finally:
        if place is not None:
            place.end()
        remove_left(sweep.folder / "workloads")  # of captures that were killed
    return [outcomes[point] for point in wanted]


def _sorted(
    wanted: list[Point], fresh: bool
) -> tuple[dict[Point, Outcome], dict[Path, list[Point]]]:
    """The results of an earlier run, and the missing points by workload folder."""
    outcomes: dict[Point, Outcome] = {}
    missing: dict[Path, list[Point]] = defaultdict(list)
    for point in wanted:
        result = None if fresh else _stored(point.result)
        if result is not None:
            outcomes[point] = Outcome(point, result, cached=True)
        else:
            missing[point.workload].append(point)
    return outcomes, missing


def _is_ours(sweep: Sweep, workload: Path) -> bool:
    """Whether a capture is the sweep's own, not a folder that the user has given."""
    return workload.parent == sweep.folder / "workloads"


def _on_ray(sweep: Sweep, forks: str, address: str, jobs: int | None) -> Place:
    from flint.sweeps.ray_cluster import OnRay

    return OnRay(sweep, forks, address, jobs)


def _work(
    sweep: Sweep,
    place: Place,
    missing: dict[Path, list[Point]],
    outcomes: dict[Point, Outcome],
    fresh: bool,
    total: int,
    report: Callable[[int, int], None] | None,
) -> None:
    """Capture and simulate missing points, by workload folder; fills ``outcomes``."""
    with ThreadPoolExecutor(place.workers) as pool:
        pending: dict[Future[Any], tuple[Path, Point | None]] = {}

        def simulate_on(folder: Path) -> None:
            for point in missing[folder]:
                pending[pool.submit(_simulate, sweep, point, place)] = (folder, point)

        try:
            # The largest meshes take longest, so they come first.
            for folder, of_mesh in sorted(missing.items(), key=lambda item: -item[1][0].mesh.size):
                again = fresh and _is_ours(sweep, folder)
                if not again and (folder / DOCUMENT).is_file():
                    simulate_on(folder)
                else:
                    task = pool.submit(place.capture, sweep, of_mesh[0])
                    pending[task] = (folder, None)
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for task in done:
                    folder, one = pending.pop(task)
                    try:
                        value = task.result()
                    except FlintError as error:
                        for point in missing[folder] if one is None else [one]:
                            outcomes[point] = Outcome(point, reason=str(error))
                        continue
                    if one is None:
                        simulate_on(folder)
                    else:
                        outcomes[one] = Outcome(one, value)
                if report is not None:
                    report(len(outcomes), total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            place.end()
            raise


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else."""
    mark = folder / MARK
    if folder.exists() and (not folder.is_dir() or (not mark.is_file() and any(folder.iterdir()))):
        raise UsageError(f"{folder} exists and is not a sweep's folder; choose another")
    check_folder(folder)


def _claim(folder: Path, captures: Iterable[Path] = ()) -> None:
    """Make the folder a sweep's, to which those workload folders can be written.

    Raises:
        UsageError: links in it point outside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("points", "workloads"):
        inside(folder, f"{name}/x").parent.mkdir(exist_ok=True)
    for capture in captures:  # a separate command writes it, which treats it as the user's folder
        inside(folder, f"workloads/{capture.name}/{DOCUMENT}")
    if not (folder / MARK).is_file():
        with replacing_in(folder, MARK) as partial:
            partial.write_text('{"schema": 1}\n')


#: The most bytes of a simulation's result, most of which are its notes.
_MAX_RESULT = 1 << 26


def _stored(path: Path) -> dict[str, Any] | None:
    try:
        check_plain(path, path.stat())
        document = json.loads(read_once(path, _MAX_RESULT).data)
    except (OSError, ValueError, RecursionError, FlintError):
        return None
    return document if isinstance(document, dict) and _is_result(document) else None


def _is_result(document: dict[str, Any]) -> bool:
    """Whether this can be a simulation's result: edited results are simulated again."""
    figures = [document.get(name, -1) for name in FIGURES]
    notes = document.get("notes", -1)
    return (
        document.get("step_seconds") is not None
        and all(
            value is None or (isinstance(value, int | float) and 0 <= value < math.inf)
            for value in figures
        )
        and (notes is None or (isinstance(notes, list) and all(isinstance(n, str) for n in notes)))
    )


def _simulate(sweep: Sweep, point: Point, place: Place) -> dict[str, Any]:
    text = place.simulate(sweep, point)
    try:
        result: dict[str, Any] = json.loads(text)
    except ValueError:
        raise FlintError("the simulation gave no result") from None
    with replacing_in(sweep.folder, f"points/{point.result.name}") as partial:
        partial.write_text(text)
    return result
