"""``nvcc -V`` where no compiler for CUDA is installed: programs ask which release it is.

The idea: only a program whose user has set CUDA_HOME looks for the compiler there.  It is told the
release that PyTorch is said to be built with, and the program's line is noted.

    watch("12.8"); subprocess.check_output(["/usr/local/cuda/bin/nvcc", "-V"])
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
from typing import Any

from flint.capturing.user_frames import own_line
from flint.launching.notes import noted

_ASKS = (["-V"], ["--version"])


def home() -> str | None:
    """Where the user says that CUDA is installed."""
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")


def watch(release: str) -> None:
    """Answer for a compiler that is not there from now on.

    Args:
        release: of CUDA, major and minor.
    """
    kind: Any = subprocess.Popen
    start = kind.__init__

    @functools.wraps(start)
    def started(self: Any, *given: Any, **options: Any) -> None:
        command = options["args"] if "args" in options else given[0]
        if home() and _asks(command):
            noted[f"nvcc is asked for its release at {own_line()}: it is said to be {release}"] += 1
            said = ["echo", f"Cuda compilation tools, release {release}, V{release}.0"]
            options |= {"shell": False} | ({"args": said} if "args" in options else {})
            given = (said, *given[1:]) if given else ()
        start(self, *given, **options)

    kind.__init__ = started


def _asks(command: Any) -> bool:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except (TypeError, ValueError):
        return False
    if not all(isinstance(word, str) for word in words) or words[1:] not in _ASKS:
        return False
    return os.path.basename(words[0]) == "nvcc" and not os.path.exists(words[0])
