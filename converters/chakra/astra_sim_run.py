"""Runs a real ASTRA-sim binary on a workload folder, and believes only its "finished" lines.

The idea: ASTRA-sim exits with 0 also when ranks hang, so success is `sys[i] finished` for every
rank and nothing else.

    result = run_astra_sim(Path("out"), time_limit=60.0)
    result.cycles[0]        # simulated nanoseconds until rank 0 was done

The folder is what the Chakra writer makes: `et/trace.<rank>.et` and
`astra-sim/{system.json,network.yml,remote_memory.json,comm_groups.json}` (the last is optional).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from flint.converters.chakra.network import read_json_object, read_npus_count
from flint.errors import FlintError, UsageError

BINARY_VARIABLE: Final = "FLINT_ASTRA_SIM"
"""Environment variable with the path of an ASTRA-sim analytical binary."""

MAX_OUTPUT_BYTES: Final = 1 << 28

_FINISHED = re.compile(rb"sys\[(\d{1,9})\] finished(?:,\s*(\d{1,19})\s*cycles)?")
_FILES: Final = {
    "--system-configuration": "system.json",
    "--network-configuration": "network.yml",
    "--remote-memory-configuration": "remote_memory.json",
}


@dataclass(frozen=True, slots=True)
class AstraSimRun:
    """A simulation in which every rank finished.

    Attributes:
        cycles: per rank the simulated time in ns at which it was done; -1 where not printed.
        seconds: wall time of the simulation.
        command: what was run.
    """

    cycles: tuple[int, ...]
    seconds: float
    command: tuple[str, ...]


def astra_sim_binary(binary: Path | None = None) -> Path:
    """The binary to run: the argument, else `$FLINT_ASTRA_SIM`.  Raises UsageError if absent."""
    given = str(binary) if binary is not None else os.environ.get(BINARY_VARIABLE, "")
    if not given:
        raise UsageError(f"no ASTRA-sim binary: set {BINARY_VARIABLE} to the path of one")
    path = Path(given)
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(f"{path}: is not an executable file (from {BINARY_VARIABLE} or argument)")
    return path.resolve()


def astra_sim_command(folder: Path, binary: Path) -> tuple[str, ...]:
    """The command line for a workload folder.  Raises FlintError if one of its files is absent."""
    folder = folder.resolve()
    settings = folder / "astra-sim"
    command = [str(binary), f"--workload-configuration={folder / 'et' / 'trace'}"]
    for option, name in _FILES.items():
        if not (settings / name).is_file():
            raise FlintError(f"{settings / name}: is missing; convert again to write it")
        command.append(f"{option}={settings / name}")
    groups = settings / "comm_groups.json"
    if groups.is_file() and read_json_object(groups):
        command.append(f"--comm-group-configuration={groups}")
    return tuple(command)


def run_astra_sim(
    folder: Path, *, binary: Path | None = None, time_limit: float = 600.0
) -> AstraSimRun:
    """Simulate the folder's traces.

    Args:
        folder: a workload folder with the traces of all ranks.
        binary: the simulator; default `$FLINT_ASTRA_SIM`.
        time_limit: seconds of wall time.

    Raises:
        UsageError: there is no binary.
        FlintError: a file is missing, the time limit is over, the simulator failed, or it ended
            and some ranks did not finish; the message names the first of them.
    """
    command = astra_sim_command(folder, astra_sim_binary(binary))
    size = 1
    for extent in read_npus_count(folder / "astra-sim" / "network.yml"):
        size *= extent
    started = time.monotonic()
    # It writes log files into its working directory: that must not be the user's.
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as output:
        status = _run(command, Path(scratch), output, time_limit)
        seconds = time.monotonic() - started
        output.seek(0)
        text = output.read(MAX_OUTPUT_BYTES)
    finished = {int(rank): int(cycles or -1) for rank, cycles in _FINISHED.findall(text)}
    lost = [rank for rank in range(size) if rank not in finished]
    if status is None:
        raise FlintError(
            f"{folder}: ASTRA-sim was stopped after {time_limit:g} s, {len(lost)} of {size} ranks "
            "unfinished; give it more time or fewer ranks"
        )
    if lost:
        raise FlintError(
            f"{folder}: ASTRA-sim ended with status {status}, but {len(lost)} of {size} ranks did "
            f"not finish (first: rank {lost[0]}){_last_words(text)}; "
            "run `flint check` on the folder"
        )
    return AstraSimRun(tuple(finished[rank] for rank in range(size)), seconds, command)


def _run(
    command: tuple[str, ...], scratch: Path, output: IO[bytes], time_limit: float
) -> int | None:
    """The exit status, or None if the time limit was over."""
    try:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise FlintError(f"{command[0]}: cannot be run: {error.strerror or error}") from error
    try:
        return process.wait(timeout=time_limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def _last_words(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return f"; its last line: {lines[-1].strip()[:200]}" if lines else ""
