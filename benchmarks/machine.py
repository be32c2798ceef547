"""What the figures were measured on: processor, memory, disk, versions and revision.

describe(Path("."))["cpu"]      # "Intel(R) Xeon(R) Processor, 4 cores"
"""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("jaxlib", "jax", "torch", "numpy", "protobuf", "pyarrow")


def describe(folder: Path, repository: Path) -> dict[str, Any]:
    """The machine, the versions and the date.

    Args:
        folder: where the benchmarks write; its file system is named.
        repository: the working tree whose revision is named.
    """
    device, kind = file_system(folder, Path("/proc/mounts").read_text())
    return {
        "date": datetime.date.today().isoformat(),
        "commit": revision(repository),
        "cpu": processor(Path("/proc/cpuinfo").read_text()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "disk": {
            "device": device,
            "file_system": kind,
            "bytes": shutil.disk_usage(folder).total,
        },
        "kernel": platform.release(),
        "versions": {"python": platform.python_version(), **_versions()},
    }


class Watch:
    """How busy others keep the processors from now on: all that they do, less our children's."""

    def __init__(self) -> None:
        self._busy, self._total = processor_ticks(Path("/proc/stat").read_text())
        self._own = _own_ticks()

    def others(self) -> float:
        """The share of all cores' time since the start that went to others, 0 to 1."""
        busy, total = processor_ticks(Path("/proc/stat").read_text())
        foreign = busy - self._busy - (_own_ticks() - self._own)
        return max(0.0, foreign / max(total - self._total, 1))


def processor_ticks(text: str) -> tuple[int, int]:
    """Busy and all ticks of all cores since the machine's start, from ``/proc/stat``."""
    fields = [int(field) for field in text.splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]  # the fifth waits for a disk
    return sum(fields) - idle, sum(fields)


def _own_ticks() -> float:
    times = os.times()
    seconds = times.user + times.system + times.children_user + times.children_system
    return seconds * os.sysconf("SC_CLK_TCK")


def processor(text: str) -> str:
    """The model name in the text of ``/proc/cpuinfo``."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return " ".join(value.split())
    return platform.machine()


def file_system(folder: Path, mounts: str) -> tuple[str, str]:
    """Device and type of the file system of ``folder``, from the text of ``/proc/mounts``."""
    path = folder.resolve()
    best = ("?", "?", -1)
    for line in mounts.splitlines():
        device, place, kind = line.split()[:3]
        if path.is_relative_to(place) and len(place) >= best[2]:
            best = (device, kind, len(place))
    return best[0], best[1]


def revision(repository: Path) -> str:
    """The commit, with ``+`` when tracked files outside benchmarks/ differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(repository), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "-uno", "--", ".", ":!benchmarks", ":!tests")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
