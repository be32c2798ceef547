"""One torture: a job, a fault, and what was found afterwards.

The idea: number and seed decide job, fault and moment; moments are parts of the time that the job
takes undisturbed, so that they fall everywhere in it on any machine.

    fate(7, seed=0)     # Fate(job=..., fault="SIGKILL", part=0.43)
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from flint.host import owners
from tests.support.children import HUNG
from tests.torture.jobs import JOBS, Job, damage

#: Faults, and how often each is drawn.
FAULTS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGTERM", "full disk")
#: A file may be this long when the disk is full (bytes): one of these each time.
LENGTHS = tuple(round(4**power) - 1 for power in range(11))
#: Seconds in which all processes of a job are gone once it is.
GONE = 30.0
_MARK = "FLINT_TORTURE"


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to whom.

    Attributes:
        job: the command.
        fault: one of ``FAULTS``.
        part: when, as a part of the time that the job takes; of a full disk which length.
    """

    job: Job
    fault: str
    part: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a torture has left.

    Attributes:
        fate: of what.
        state: "done" where the job had ended before, else "whole" or "absent".
        problems: what must not be.
    """

    fate: Fate
    state: str
    problems: list[str] = field(default_factory=list)


def fate(number: int, seed: int) -> Fate:
    """The number's job, fault and moment."""
    draw = random.Random(f"{seed} {number}")
    return Fate(JOBS[number % len(JOBS)], draw.choice(FAULTS), draw.random())


def duration(job: Job, folder: Path) -> float:
    """Seconds that a job takes undisturbed; what it leaves is whole."""
    place, environment = prepared(job, folder)
    began = time.monotonic()
    done = subprocess.run(_command(job), cwd=place, env=environment, capture_output=True, text=True,
                          timeout=HUNG, check=False)  # fmt: skip
    assert done.returncode == 0 and not list(damage(job, place)), done.stderr
    return time.monotonic() - began


def torture(fated: Fate, folder: Path, seconds: float) -> Found:
    """Run a job to its fault.

    Args:
        fated: what and when.
        folder: a new one.
        seconds: that the job takes undisturbed.
    """
    job = fated.job
    place, environment = prepared(job, folder)
    limit = LENGTHS[int(fated.part * len(LENGTHS))]
    full = fated.fault == "full disk"

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            _command(job), cwd=place, env=environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if full else said, start_new_session=True, text=True,
            preexec_fn=fill if full else None,
        )  # fmt: skip
        if full:
            text = process.communicate(timeout=HUNG)[1]
        else:
            try:
                process.wait(fated.part * seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(getattr(signal, fated.fault))
            process.wait(HUNG)
            said.seek(0)
            text = said.read()
    return judged(fated, folder, place, process.returncode, text)


def judged(fated: Fate, folder: Path, place: Path, status: int, text: str) -> Found:
    problems = [f"a process was left: {name}" for name in _wait_for_processes(folder)]
    if fated.fault == "SIGKILL":  # the next one that writes there
        for where in {path.parent for path in _left(folder)}:
            owners.remove_left(where)
    problems += [f"left: {path.relative_to(folder)}" for path in _left(folder)]
    problems += damage(fated.job, place)
    allowed = {"SIGKILL": (0, -9), "SIGTERM": (0, 143, -15), "full disk": (0, 1)}[fated.fault]
    if status not in allowed or "Traceback" in text or "internal error" in text:
        # A signal in the first moments finds Python itself, which is none of Flint's.
        problems.append(f"status {status}: {text[-300:]}")
    there = all((place / name).exists() for name in fated.job.results)
    state = "done" if status == 0 else "whole" if there else "absent"
    return Found(fated, state, problems)


def _command(job: Job) -> list[str]:
    return [sys.executable, "-m", "flint", *job.arguments]


def prepared(job: Job, folder: Path) -> tuple[Path, dict[str, str]]:
    place, temporary = folder / "place", folder / "temporary"
    place.mkdir(parents=True)
    temporary.mkdir()
    job.prepare(place, folder.parent / "kept")
    root = str(Path(__file__).parents[2])
    more = {
        "TMPDIR": str(temporary),
        "PYTHONPATH": root,
        "JAX_PLATFORMS": "cpu",
        _MARK: str(folder),
    }
    return place, os.environ | more


def _left(folder: Path) -> list[Path]:
    """Unfinished and temporary files."""
    found = [path for path in folder.rglob("*") if owners._NAME.fullmatch(path.name)]
    return [path for path in found if not any(other in path.parents for other in found)]


def _wait_for_processes(folder: Path) -> list[str]:
    """Commands of the job that go on after a while."""
    end = time.monotonic() + GONE
    while (found := _processes(folder)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _processes(folder: Path) -> list[str]:
    wanted = f"{_MARK}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(command.decode(errors="replace")[:100])
            except OSError:
                continue
    return found
