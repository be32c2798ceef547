"""Runs a real ASTRA-sim binary on a workload folder, and trusts only its "finished" lines.

The idea: ASTRA-sim exits with 0 even if ranks hang, so only `sys[i] finished` for every rank counts
as success.

    done = run_astra_sim(Path("out"), time_limit=60.0)
    done.cycles[0]          # simulated nanoseconds until rank 0 was done

The folder is what the Chakra writer makes: `et/trace.<rank>.et` and
`astra-sim/{system.json,network.yml,remote_memory.json,comm_groups.json}` (the last is optional).

The command line is that of the analytical simulators since 2.0 (2023): the four
`--{workload,system,network,remote-memory}-configuration` and `--comm-group-configuration`.  What
they print has grown: `sys[0] finished, 70 cycles`, from November 2024 on (pull request 256)
`, exposed communication 30 cycles.`, later `sys[0], Comm time: 40` and, of what never ended,
`!!!Hardware Resource sys.id=0 has unreleased nodes!!!` with the numbers of the nodes.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np

from flint.converters.chakra.network import read_json_object, read_npus_count
from flint.errors import FlintError, UsageError
from flint.host.child_processes import kill_group, signal_name
from flint.host.temporary import temporary_folder
from flint.mesh.ranks import from_mask

BINARY_VARIABLE: Final = "FLINT_ASTRA_SIM"
"""Environment variable with the path of an ASTRA-sim analytical binary."""

BINARIES: Final = ("AstraSim_Analytical_Congestion_Unaware", "AstraSim_Analytical_Congestion_Aware")
"""Names that ASTRA-sim's build gives its analytical simulators; the first takes any network."""

MAX_OUTPUT_BYTES: Final = 1 << 28

#: Where ASTRA-sim's own build leaves binaries in its checkout.
_BUILT: Final = ("build/astra_analytical/build/bin", "bin", ".")
_FINISHED = re.compile(
    rb"sys\[(\d{1,9})\] finished"
    rb"(?:,\s*(\d{1,19})\s*cycles(?:,\s*exposed communication\s*(\d{1,19})\s*cycles)?)?"
)
_TALKED = re.compile(rb"sys\[(\d{1,9})\], Comm time: (\d{1,19})")
_WAITS = re.compile(rb"sys\.id=(\d{1,9}) has unreleased nodes.*\n.*\b(\w+) node id: (\d{1,19})")
_FILES: Final = {
    "--system-configuration": "system.json",
    "--network-configuration": "network.yml",
    "--remote-memory-configuration": "remote_memory.json",
}
#: Last words -> what to do about them.
_ADVICE: Final = {
    "only support 1-dim topology": (
        "the congestion-aware simulator supports only meshes with one axis longer than 1: use "
        f"{BINARIES[0]}"
    ),
}


@dataclass(frozen=True, slots=True)
class AstraSimRun:
    """A simulation in which every rank finished.

    Attributes:
        cycles: per rank the simulated time in ns at which it was done; -1 where not printed.
        exposed: per rank the ns of these in which it did not compute; -1 where not printed.
        communication: per rank the ns in which it communicated or waited for a message; -1 where
            not printed.
        seconds: wall time of the simulation.
        command: what was run.
    """

    cycles: tuple[int, ...]
    exposed: tuple[int, ...]
    communication: tuple[int, ...]
    seconds: float
    command: tuple[str, ...]


def astra_sim_binary(binary: Path | None = None) -> Path:
    """The binary to run: the argument, else `$FLINT_ASTRA_SIM`, else one on the PATH.

    Args:
        binary: an executable file, or a checkout of ASTRA-sim that is built.

    Raises:
        UsageError: there is none, or it is not executable.
    """
    given = str(binary) if binary is not None else os.environ.get(BINARY_VARIABLE, "")
    if not given:
        found = next(filter(None, map(shutil.which, BINARIES)), None)
        if found is None:
            raise UsageError(
                "no ASTRA-sim binary: build its analytical simulator "
                "(github.com/astra-sim/astra-sim, build/astra_analytical/build.sh) and give "
                f"--astra-sim PATH, set {BINARY_VARIABLE} or put {BINARIES[0]} on the PATH"
            )
        return Path(found).resolve()
    path = Path(given)
    if path.is_dir():
        inside = [path / place / name for name in BINARIES for place in _BUILT]
        built = next((item for item in inside if item.is_file()), None)
        if built is None:
            raise UsageError(f"{path}: no {BINARIES[0]} in it; is ASTRA-sim built there?")
        path = built
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(
            f"{path} is not an executable file (from --astra-sim or {BINARY_VARIABLE})"
        )
    return path.resolve()


def is_congestion_aware(binary: Path) -> bool:
    """Whether messages share links in that simulator, by the name that ASTRA-sim's build gives."""
    return binary.name.endswith("Congestion_Aware")


def astra_sim_command(folder: Path, binary: Path) -> tuple[str, ...]:
    """The command line for a workload folder.  Raises FlintError if one of its files is absent."""
    folder = folder.resolve()
    settings = folder / "astra-sim"
    command = [str(binary), f"--workload-configuration={folder / 'et' / 'trace'}"]
    for option, name in _FILES.items():
        if not (settings / name).is_file():
            raise FlintError(f"{settings / name} is missing; convert again to write it")
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
        binary: the simulator; default `$FLINT_ASTRA_SIM`, else one on the PATH.
        time_limit: seconds of wall time.

    Raises:
        UsageError: there is no binary.
        FlintError: a file is missing, the time limit is over, the simulator failed, or it ended
            and some ranks did not finish; the message names them.
    """
    command = astra_sim_command(folder, astra_sim_binary(binary))
    size = math.prod(read_npus_count(folder / "astra-sim" / "network.yml"))
    started = time.monotonic()
    # It writes log files into its working directory: that must not be the user's.
    with temporary_folder() as scratch, tempfile.TemporaryFile() as output:
        status = _run(command, scratch, output, time_limit)
        seconds = time.monotonic() - started
        output.seek(0)
        text = output.read(MAX_OUTPUT_BYTES)
    finished = np.full((size, 2), -1, np.int64)
    lost = np.ones(size, np.bool_)
    for rank, *numbers in _FINISHED.findall(text):
        if int(rank) < size:
            finished[int(rank)] = [min(int(number or -1), 2**62) for number in numbers]
            lost[int(rank)] = False
    if status is None or lost.any():
        raise FlintError(f"{folder}: {_failure(status, lost, text, time_limit)}")
    talked = np.full(size, -1, np.int64)
    for rank, number in _TALKED.findall(text):
        if int(rank) < size:
            talked[int(rank)] = min(int(number), 2**62)
    cycles, exposed = finished.T.tolist()
    return AstraSimRun(tuple(cycles), tuple(exposed), tuple(talked.tolist()), seconds, command)


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
        return None
    finally:
        if process.poll() is None:  # the time is over, or the user pressed Ctrl-C
            kill_group(process.pid)
            process.wait()


def _failure(status: int | None, lost: np.ndarray, text: bytes, time_limit: float) -> str:
    """One line: how it ended, which ranks are lost and where they wait, its output, what to do."""
    size, missing = len(lost), int(lost.sum())
    if status is None:
        if not missing:
            return f"ASTRA-sim was stopped after {time_limit:g} s although every rank had finished"
        return (
            f"ASTRA-sim was stopped after {time_limit:g} s, {missing} of {size} ranks unfinished "
            f"({from_mask(lost)}){_waiting(text)}; give it more time (--time-limit) or fewer ranks"
        )
    printed = _last_words(text)
    if missing == size and (status or not printed):
        how = (
            f"was ended by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
        )
        words = f"; its last line: {printed}" if printed else " and printed nothing"
        return f"ASTRA-sim {how} and no rank finished{words}{_advice(text)}"
    return (
        f"ASTRA-sim ended with status {status}, but {missing} of {size} ranks did not finish "
        f"(ranks {from_mask(lost)}; first: rank {int(np.argmax(lost))}){_waiting(text)}"
        f"{f'; its last line: {printed}' if printed else ''}; run `flint check` on the folder"
    )


def _waiting(text: bytes) -> str:
    """Where the first lost rank waits, if the simulator reports it."""
    found = _WAITS.search(text)
    if found is None:
        return ""
    rank, kind, node = (part.decode() for part in found.groups())
    return f"; rank {rank} waits in node {node} ({kind}, see et/nodes.parquet)"


def _last_words(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


def _advice(text: bytes) -> str:
    printed = text[-(1 << 16) :].decode(errors="replace")
    return "".join(f"; {advice}" for words, advice in _ADVICE.items() if words in printed)
