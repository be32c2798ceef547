"""Whether a fork of this process can run a backward pass.

The idea: a backward pass starts a thread for each device that PyTorch has, and refuses to run in
forks from then on.  Ranks are recorded in forks.

    check_forks()
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flint.errors import UsageError

#: What PyTorch calls such threads (``torch/csrc/autograd/engine.cpp``); known to be so in 2.12 to
#: 2.14.
_THREADS: Final = "pt_autograd_"


def check_forks() -> None:
    """Refuse to record ranks in forks of a process whose autograd has threads (seen on Linux only).

    Raises:
        UsageError: it has.
    """
    for task in Path("/proc/self/task").glob("*/comm"):
        try:
            name = task.read_text()
        except OSError:  # the thread has ended
            continue
        if name.startswith(_THREADS):
            raise UsageError(
                "this process has run a backward pass on a device, after which PyTorch runs none "
                "in forks: capture before that, or in a process of its own (flint capture "
                "FILE.py:STEP)"
            )
