"""The child process that runs XLA's partitioner: ``python -m flint.frontends.jax.partition.child``.

The idea: XLA can abort or hang, so it runs where it can be stopped.  The arguments are engine
(a name in ``ENGINES``), devices and the folder for requests.  The client is created while the
parent still traces; then the child waits for requests.  A result is the dumped file, whether or not
the process survives.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flint.capturing.user_frames import without_frames
from flint.errors import UsageError
from flint.frontends.jax.internals import questions, xla
from flint.frontends.jax.requests import compilations
from flint.frontends.jax.saved_requests import as_lowered
from flint.host.child_processes import end_with_parent
from flint.host.requests import REASON

#: Clients by name: the one in use, and two others whose result must be the same.
ENGINES = {
    "cpu": xla.cpu_compiler,
    "cpu, own devices": xla.own_devices_compiler,
    "gpu": xla.gpu_compiler,
}


def main(engine: str, devices: int, folder: Path) -> None:
    """Partition the modules of requests."""
    try:
        compiler = ENGINES[engine](devices, folder)
    except UsageError as error:
        sys.exit(f"{REASON}{error}")
    questions.register(folder, compiler.plugin)
    for place, found in compilations(folder):
        request = as_lowered(found)
        if request is None:
            continue
        xla.split_by_batch(request.by_batch, compiler.plugin)
        options = xla.partitioner_only(compiler.numbers, place, request)
        try:
            compiler.run(request.module, options)
        except Exception as error:  # expected, unless there is no dump; then this is the reason
            # XLA puts a whole traceback before the error of a partitioning rule in Python.
            reason = " ".join(without_frames(str(error)).split())
            sys.stderr.write(f"\n{REASON}{reason}\n")
    # Clients of many devices take long to leave in order, and sometimes hang.
    os._exit(0)


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
