"""XLA's SPMD partitioner in a child process, from the parent's side.

The idea: the child is started before the step is traced, so that its start costs nothing; it gets
the module as a file and the end of its stdin as the signal to begin.  It is judged by the file that
it dumps: once that is whole the child is stopped, and some programs abort it themselves.  Without
the file, what it said and how it ended become one line.

    with Partitioner(512) as partitioner:
        proto = partitioner.run(bytecode, shardy=True)      # an HloProto
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.frontends.jax.partition_child import REQUEST
from flint.hlo.messages import parse_module

_DUMP = "*after_spmd-partitioning*.hlo.pb"
_POLL = 0.02
#: What a process says when it gives up, best first.
_LAST_WORDS = ("reason:", "Check failed", "bad_alloc", "LLVM ERROR", "FATAL", "Error:", "what():")
_MAX_REASON = 400


class Partitioner:
    """A child process that waits for a module.

    Args:
        devices: partitions.
        time_limit: seconds from the module's arrival to the result.
        memory_limit: bytes that the child may occupy (resident set).
        engine: which client; a name in ``partition_child.ENGINES``.
    """

    def __init__(
        self, devices: int, *, time_limit: float, memory_limit: int, engine: str = "cpu"
    ) -> None:
        self.devices = devices
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self._scratch = tempfile.TemporaryDirectory(prefix="flint-")
        self._folder = Path(self._scratch.name)
        self._words = self._folder / "stderr"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TF_CPP_MIN_LOG_LEVEL": "1",
        }
        # Flags for the user's own backend may be unknown to this one, which would then abort.
        environment.pop("XLA_FLAGS", None)
        command = [sys.executable, "-P", "-m", "flint.frontends.jax.partition_child"]
        with self._words.open("wb") as words:
            self._child = subprocess.Popen(
                [*command, engine, str(devices), str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=words,
                env=environment,
            )

    def __enter__(self) -> Partitioner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._scratch.cleanup()

    def run(
        self,
        module: bytes,
        *,
        shardy: bool = True,
        inputs_free: Sequence[bool] = (),
        outputs_free: Sequence[bool] = (),
    ) -> bytes:
        """The partitioned module, an ``HloProto``.

        Args:
            module: the global program as MLIR bytecode.
            shardy: whether the module is annotated for Shardy (else GSPMD).
            inputs_free, outputs_free: parameters and results whose sharding XLA may choose.

        Raises:
            FlintError: the partitioner failed, or went over a limit.
        """
        header = {
            "shardy": shardy,
            "inputs_free": list(inputs_free),
            "outputs_free": list(outputs_free),
        }
        (self._folder / REQUEST).write_bytes(json.dumps(header).encode() + b"\n" + module)
        assert self._child.stdin is not None
        self._child.stdin.close()
        data = self._result()
        if data is not None:
            return data
        raise FlintError(f"XLA's partitioner failed for {self.devices:,} devices: {self._reason()}")

    def log(self) -> str:
        """What the child has written on stderr so far."""
        return self._words.read_text(encoding="utf-8", errors="replace")

    def _result(self) -> bytes | None:
        """The dump, as soon as it is whole; None when the child has ended without one.

        What a child does after its dump is of no use, and takes half of the time of a large module.
        """
        started = time.monotonic()
        seen = -1
        while True:
            ended = self._ended()
            dump = next(self._folder.glob(_DUMP), None)
            size = dump.stat().st_size if dump is not None else -1
            # A file that has just grown is still being written.
            if dump is not None and (ended or size == seen):
                data = dump.read_bytes()
                if _is_whole(data):
                    return data
            if ended:
                return None
            seen = size
            if time.monotonic() - started > self.time_limit:
                raise FlintError(
                    f"XLA's partitioner took more than {self.time_limit:g} s for "
                    f"{self.devices:,} devices and was stopped: raise the time limit, or keep "
                    "repeated layers in a scan"
                )
            occupied = resident_bytes(self._child.pid)
            if occupied > self.memory_limit:
                raise FlintError(
                    f"XLA's partitioner took {occupied / 2**30:.1f} GiB for {self.devices:,} "
                    f"devices, more than the limit of {self.memory_limit / 2**30:.1f} GiB, and was "
                    "stopped: raise the memory limit, or keep repeated layers in a scan"
                )

    def _ended(self) -> bool:
        try:
            self._child.wait(_POLL)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _reason(self) -> str:
        status = self._child.poll()
        lines = [" ".join(line.split()) for line in self.log().splitlines() if line.strip()]
        said = next(
            (line for word in _LAST_WORDS for line in reversed(lines) if word in line), ""
        ).removeprefix("reason: ")
        said = "".join(char if char.isprintable() else "?" for char in said[:_MAX_REASON])
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            if -status == signal.SIGKILL:
                name += ", most likely because the machine ran out of memory"
            return f"its process died of {name}" + (f" ({said})" if said else "")
        return said or f"its process ended with status {status} and no result"


def resident_bytes(process: int) -> int:
    """Resident set of a process, bytes; 0 where the system has no /proc to tell."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGESIZE")


def _is_whole(data: bytes) -> bool:
    try:
        return len(parse_module(data).computations) > 0
    except DecodeError:
        return False
