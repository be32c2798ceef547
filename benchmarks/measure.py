"""Measure whole commands: wall time, processor time and peak memory, as the kernel counted them.

The idea: what a user waits for is the command, interpreter start and imports included, so a command
is the unit.  It runs several times and the median counts.  Nothing heavy is imported here: Linux
hands the peak memory of the process that starts a command on to the command, so whoever measures
must be small.

    sample = measure([sys.executable, "-m", "flint", "--help"], runs=5)
    sample.wall.median, sample.rss
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A command that ran several times.

    Attributes:
        wall, user, system: seconds.
        rss: peak resident memory, the largest of all runs (bytes).
        documents: what each run wrote to standard output, read as JSON; None where it is none.
    """

    wall: Spread
    user: Spread
    system: Spread
    rss: int
    documents: tuple[Any, ...]


class CommandFailed(Exception):
    """A measured command ended with an error; the text has the end of what it said."""


def spread(values: Sequence[float]) -> Spread:
    """The median, least and largest of ``values``."""
    return Spread(median(values), min(values), max(values), len(values))


def measure(
    command: Sequence[str],
    *,
    runs: int,
    before: Callable[[], None] | None = None,
    environment: dict[str, str] | None = None,
) -> Sample:
    """Run ``command`` several times.

    Args:
        command: program and arguments.
        runs: how many times.
        before: called before each run, outside the measured time.
        environment: variables added to this process's own.

    Raises:
        CommandFailed: a run ended with another status than 0.
    """
    wall, user, system, rss, documents = [], [], [], 0, []
    for _ in range(runs):
        if before is not None:
            before()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            begin = time.perf_counter()
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **(environment or {})},
            )
            _, status, usage = os.wait4(child.pid, 0)
            wall.append(time.perf_counter() - begin)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip()[-2000:]
                raise CommandFailed(f"{' '.join(command)}: status {child.returncode}\n{said}")
            output.seek(0)
            documents.append(_document(output.read()))
        user.append(usage.ru_utime)
        system.append(usage.ru_stime)
        rss = max(rss, usage.ru_maxrss * 1024)
    return Sample(spread(wall), spread(user), spread(system), rss, tuple(documents))


def _document(output: bytes) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return None
