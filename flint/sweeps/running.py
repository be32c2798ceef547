"""Running a sweep: captures and simulations in parallel processes, what is there is not run again.

The idea: every capture and every simulation is a ``flint`` command in a process group of its own.
A simulation starts as soon as its mesh is captured.  Results are renamed into place when they are
whole; failures are kept nowhere, so that the next run tries them again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flint.errors import FlintError, UsageError
from flint.folder import DOCUMENT
from flint.sweeps.points import Point, Sweep, points
from flint.writing import replacing

#: Marks the folder of a sweep.
MARK = "sweep.json"
#: Characters of a reason that a row gives.
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a point.

    Attributes:
        point: which.
        result: the simulation's JSON document; None where it failed.
        reason: why it failed, one line; None where it did not.
        cached: whether an earlier run had simulated it.
    """

    point: Point
    result: dict[str, Any] | None = None
    reason: str | None = None
    cached: bool = False


def run(
    sweep: Sweep,
    *,
    jobs: int | None = None,
    fresh: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Capture and simulate every point.

    Args:
        sweep: what.
        jobs: processes at a time; default: as many as cores.
        fresh: capture and simulate again what is there.
        report: called with (points done, points).

    Raises:
        UsageError: a point that cannot be meant, or a folder that is not a sweep's.
    """
    wanted = points(sweep)
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1")
    _claim(sweep.folder)
    outcomes: dict[Point, Outcome] = {}
    missing: dict[Path, list[Point]] = defaultdict(list)
    for point in wanted:
        result = None if fresh else _stored(point.result)
        if result is not None:
            outcomes[point] = Outcome(point, result, cached=True)
        else:
            missing[point.workload].append(point)
    processes = _Processes()
    workers = jobs or os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        try:
            pending: dict[Future[Any], tuple[Path, Point | None]] = {}

            def simulate_on(folder: Path) -> None:
                for point in missing[folder]:
                    pending[pool.submit(_simulate, sweep, point, processes)] = (folder, point)

            for folder, of_mesh in missing.items():
                if not fresh and (folder / DOCUMENT).is_file():
                    simulate_on(folder)
                else:
                    task = pool.submit(_capture, sweep, of_mesh[0], processes)
                    pending[task] = (folder, None)
            while True:
                if report is not None:
                    report(len(outcomes), len(wanted))
                if not pending:
                    break
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
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end()
            raise
    return [outcomes[point] for point in wanted]


def _claim(folder: Path) -> None:
    """Make the folder a sweep's, unless it holds something else."""
    mark = folder / MARK
    if folder.exists() and (not folder.is_dir() or (not mark.is_file() and any(folder.iterdir()))):
        raise UsageError(f"{folder}: is there and is no sweep's folder; choose another")
    (folder / "points").mkdir(parents=True, exist_ok=True)
    (folder / "workloads").mkdir(exist_ok=True)
    if not mark.is_file():
        mark.write_text('{"schema": 1}\n')


def _stored(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "step_seconds" in document else None


def _capture(sweep: Sweep, point: Point, processes: _Processes) -> None:
    """Write the workload folder of the point's mesh; one trace, since simulations need none."""
    command = ["capture", sweep.step, "--mesh", point.mesh_text, "--ranks", "0"]
    if sweep.axes is not None:
        command += ["--axes", sweep.axes]
    if sweep.setup is not None:
        command += ["--setup", sweep.setup]
    processes.run([*command, "--json", "-o", str(point.workload)])


def _simulate(sweep: Sweep, point: Point, processes: _Processes) -> dict[str, Any]:
    command = ["simulate", str(point.workload), "--system", point.system]
    if sweep.algorithm is not None:
        command += ["--algorithm", sweep.algorithm]
    text = processes.run([*command, "--granularity", sweep.granularity, "--json"])
    try:
        result: dict[str, Any] = json.loads(text)
    except ValueError:
        raise FlintError("the simulation gave no result") from None
    with replacing(point.result) as partial:
        partial.write_text(text)
    return result


class _Processes:
    """The ``flint`` commands that run, which end together."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, arguments: list[str]) -> str:
        """Standard output of a command.

        Raises:
            FlintError: it failed; the text is its own reason.
        """
        with self._lock:
            if self._ended:
                raise FlintError("interrupted")
            process = _start(arguments)
            self._running.add(process)
        try:
            output, messages = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        if process.returncode:
            raise FlintError(_reason(messages, process.returncode))
        return output

    def end(self) -> None:
        """Kill what runs, with the processes that it has started."""
        with self._lock:
            self._ended = True
            for process in self._running:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    try:
        # -P: as the `flint` command, without the current folder in front of the path.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "flint", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise FlintError(f"no process can be started ({error.strerror or error})") from error


def _environment() -> dict[str, str]:
    """Ours, with this Flint to be found."""
    root = str(Path(__file__).absolute().parents[2])
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{before}{os.pathsep}{root}" if before else root}


def _reason(messages: str, status: int) -> str:
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    said = [line.removeprefix("flint: ") for line in lines if line.startswith("flint: ")]
    said = [line for line in said if not line.startswith("warning: ")]
    if said:
        return said[-1][:_LONGEST_REASON]
    if status < 0:
        why = "; out of memory?" if -status == signal.SIGKILL else ""
        return f"the process was ended by {signal.Signals(-status).name}{why}"
    last = f": {lines[-1]}" if lines else ""
    return f"the process ended with status {status}{last}"[:_LONGEST_REASON]
