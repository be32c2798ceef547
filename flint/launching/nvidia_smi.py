"""``nvidia-smi`` where there is none: programs log what it prints, or ask it for memory and names.

The idea: a script of that name is put at the end of the program's path.  It describes the GPUs
that the program sees, on which nothing runs; any other field of a query is "[N/A]", which the real
command prints for fields that a GPU does not support.  The script runs this file, which needs only
Python.  Each use is reported with the program's line.

    provide(folder, name="H100-SXM", memory=80 << 30, capability=(9, 0), count=8)
    subprocess.run(["nvidia-smi", "-L"])        # GPU 0: H100-SXM (UUID: GPU-...)
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "nvidia-smi"
_DRIVER = "570.00"
_UNKNOWN = "[N/A]"


def provide(folder: Path, name: str, memory: int, capability: tuple[int, int], count: int) -> None:
    """Put such a command at the end of this process's path, if it has none.

    Args:
        folder: for the command; made here.
        name: of the GPUs.
        memory: of each, in bytes.
        capability: compute capability, major and minor.
        count: of GPUs on a host.
    """
    if shutil.which(NAME) is not None:
        return
    folder.mkdir()
    write(folder, name, memory, "{}.{}".format(*capability), count)
    os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), str(folder))))
    _note_uses()


def write(folder: Path, name: str, memory: int, capability: str, count: int) -> None:
    """Write such a command into a folder; arguments as for ``provide``."""
    known = [name, str(memory >> 20), capability, str(count)]
    words = shlex.join([sys.executable, "-I", "-S", __file__, *known])
    script = folder / NAME
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)


def _note_uses() -> None:
    """Note where the program starts it."""
    # Not above: the script's own Python has no such packages.
    from flint.capturing.user_frames import own_line
    from flint.launching.notes import noted

    kind: Any = subprocess.Popen
    start = kind.__init__

    def started(self: Any, *given: Any, **options: Any) -> None:
        command = options["args"] if "args" in options else given[0]
        parts = [command] if isinstance(command, str | bytes | os.PathLike) else command
        if any(NAME in os.fsdecode(part) for part in parts):
            noted[f"{NAME} is run at {own_line()}: it describes GPUs that are not there"] += 1
        start(self, *given, **options)

    kind.__init__ = started


def answer(name: str, memory: str, capability: str, count: str, asked: Sequence[str]) -> str:
    """What the command prints.

    Args:
        name: of the GPUs.
        memory: of each, in MiB.
        capability: compute capability.
        count: of GPUs.
        asked: its arguments.
    """
    options = dict(word.lstrip("-").partition("=")[::2] for word in asked)
    numbers = _numbers(asked, int(count))
    fields = options.get("query-gpu")
    if fields is not None:
        return _table(fields.split(","), options.get("format", ""), name, memory, capability, count,
                      numbers)  # fmt: skip
    if "L" in options or "list-gpus" in options:
        return "\n".join(f"GPU {at}: {name} (UUID: {_uuid(at)})" for at in numbers)
    lines = [f"NVIDIA-SMI {_DRIVER}  Driver Version: {_DRIVER}  CUDA Version: 12.8", ""]
    lines += [f"GPU {at}  {name}  0MiB / {memory}MiB  0%" for at in numbers]
    return "\n".join(lines)


def _table(
    fields: Sequence[str], form: str, name: str, memory: str, capability: str, count: str,
    numbers: Sequence[int],
) -> str:  # fmt: skip
    """One line for each GPU, of what is asked for."""
    unit = "" if "nounits" in form else " MiB"
    percent = "" if "nounits" in form else " %"
    lines = [] if "noheader" in form else [", ".join(fields)]
    for at in numbers:
        known = {
            "name": name, "gpu_name": name, "count": count, "index": str(at), "uuid": _uuid(at),
            "gpu_uuid": _uuid(at), "compute_cap": capability, "driver_version": _DRIVER,
            "memory.total": f"{memory}{unit}", "memory.free": f"{memory}{unit}",
            "memory.used": f"0{unit}", "utilization.gpu": f"0{percent}",
            "utilization.memory": f"0{percent}",
        }  # fmt: skip
        lines.append(", ".join(known.get(field.strip(), _UNKNOWN) for field in fields))
    return "\n".join(lines)


def _numbers(asked: Sequence[str], count: int) -> list[int]:
    """GPUs that ``-i`` or ``--id`` names; all without."""
    for at, word in enumerate(asked):
        key, _, text = word.partition("=")
        if key in ("-i", "--id"):
            named = (text or " ".join(asked[at + 1 : at + 2])).split(",")
            return [int(item) for item in named if item.isdecimal() and int(item) < count]
    return list(range(count))


def _uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012d}"


if __name__ == "__main__":
    name, memory, capability, count, *asked = sys.argv[1:]
    print(answer(name, memory, capability, count, asked))
