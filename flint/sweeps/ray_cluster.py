"""Running a sweep's points on a Ray cluster.

The idea: everything that a node needs is sent with the task and its results are sent back, so that
nodes need not share files with this machine: the step's sources go out, the workload folder comes
back and goes out again to the simulations.  The sweep's folder is written only here; a second run
resumes, with or without Ray.  Nodes need the same Flint installed, which is checked, and the step's
packages.

    place = OnRay(sweep, "flint.cli.forks", "local")   # or "auto", "10.0.0.1:6379", "ray://head:10001"
    place.capture(sweep, point)

Only Ray's public functions are used; known to work with 2.60.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from flint.cost.systems import system_names, whole_description
from flint.errors import FlintError, UsageError
from flint.host.environment import installing
from flint.sweeps import commands, packing, ray_node, sources
from flint.sweeps.description import Sweep
from flint.sweeps.points import Point
from flint.sweeps.processes import environment
from flint.workload.folder import is_workload_folder

#: Starts Ray on this machine for the duration of the sweep.
LOCAL: Final = "local"
#: Seconds between checks whether a task has ended, and until a connection must exist.
_LOOK: Final = 1.0
_CONNECT: Final = 10.0


class OnRay:
    """Tasks on a cluster, one core each.

    Attributes:
        workers: tasks at a time.
    """

    def __init__(self, sweep: Sweep, forks: str, address: str, jobs: int | None = None) -> None:
        """Connect to a cluster, or start one.

        Args:
            sweep: the sweep to run.
            forks: the module of the forking process on the nodes.
            address: as ``ray.init`` takes it; ``local`` starts one.
            jobs: tasks at a time; default: as many as the cluster has cores.

        Raises:
            UsageError: Ray is not installed.
            FlintError: no cluster at the address.
        """
        if find_spec("ray") is None:
            raise UsageError(f"--ray needs Ray: {installing('cluster')}")
        # A Ray that is started here does not report its use to anybody.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Nor does a thread that comes after the end start another one.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        import ray

        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            try:
                _connect(ray, address, jobs)
            except BaseException:
                ray.shutdown()
                raise
        self.workers = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._task = ray.remote(num_cpus=1, max_retries=1)(ray_node.work)
        self._forks = forks
        self._steps = {
            step: _shipped(ray, step)
            for step in dict.fromkeys(sweep.steps)
            if not is_workload_folder(Path(step))
        }
        self._flint = sources.own_key()
        self._ended = False
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        self._packed: dict[Path, Any] = {}

    def capture(self, sweep: Sweep, point: Point) -> None:
        """Write the workload folder of the point's mesh."""
        step, files = self._steps[point.step]

        def command(inputs: Path, output: Path) -> list[str]:
            return commands.capture(sweep, point, step.named(inputs), output)

        _, made = self._run(command, files, step)
        packing.unpack(made, point.workload)
        with self._lock:
            self._packed[point.workload] = self._ray.put(made)

    def simulate(self, sweep: Sweep, point: Point) -> str:
        """What ``flint simulate --json`` prints for the point."""
        with self._lock:
            if point.workload not in self._packed:
                self._packed[point.workload] = self._ray.put(packing.pack(point.workload, ("et",)))
            packed = self._packed[point.workload]
        named = point.system in system_names()
        text = None if named else whole_description(point.system)

        def command(inputs: Path, output: Path) -> list[str]:
            system = point.system
            if text is not None:
                output.mkdir()
                system = str(output / "system.toml")
                Path(system).write_text(text)
            return commands.simulate(sweep, point, system, inputs)

        printed, _ = self._run(command, packed, None)
        return printed

    def end(self) -> None:
        """Cancel running tasks; a Ray that was started here ends."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            running = list(self._running)
        for task in running:
            self._ray.cancel(task, force=True)
        if self._started:
            self._ray.shutdown()

    def _run(
        self, command: Callable[[Path, Path], list[str]], inputs: Any, step: packing.Shipped | None
    ) -> tuple[str, bytes]:
        """Standard output of a command, and the packed folder that it has written."""
        with self._lock:
            if self._ended:
                raise FlintError("interrupted")
            task = self._task.remote(self._flint, self._forks, command, inputs, step)
            self._running.add(task)
        errors = self._ray.exceptions
        try:
            while not self._ray.wait([task], timeout=_LOOK)[0]:
                if self._ended:
                    raise FlintError("interrupted")
            reason, printed, made = self._ray.get(task)
        except errors.RayTaskError as error:
            raise FlintError(
                f"a node cannot run Flint: {_one_line(error.cause or error)}"
            ) from None
        except errors.RayError as error:
            raise FlintError(f"Ray: {_one_line(error)}") from None
        finally:
            with self._lock:
                self._running.discard(task)
        if reason:
            raise FlintError(reason)
        return printed, made


def _connect(ray: Any, address: str, jobs: int | None) -> None:
    _check_address(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        options |= {
            "num_cpus": jobs, "include_dashboard": False,
            "runtime_env": {"env_vars": {"PYTHONPATH": environment()["PYTHONPATH"]}},
        }  # fmt: skip
    try:
        ray.init(address=address, **options)
    except Exception as error:  # any error of the network or of Ray
        raise FlintError(f"--ray {address}: no Ray cluster there ({_one_line(error)})") from error


def _check_address(address: str) -> None:
    """Refuse an address where no server answers; Ray itself would keep trying for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT).close()
    except (OSError, OverflowError) as error:
        raise FlintError(f"--ray {address}: no answer ({error})") from error


def _shipped(ray: Any, step: str) -> tuple[packing.Shipped, Any]:
    shipped, files = packing.ship(step)
    return shipped, ray.put(files)


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
