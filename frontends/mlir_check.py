"""MLIR bytecode is tried in a child process before it is parsed here.

MLIR's bytecode reader trusts its input: on a damaged file it may abort the process or never return.
What the child survives is then parsed in this process like any other module; the child costs about
as long as importing the bindings and parsing once.

    check_bytecode(data, "model.mlirbc")     # raises FlintError, or returns
"""

from __future__ import annotations

import signal
import subprocess
import sys

from flint.errors import FlintError
from flint.host.child_processes import signal_name

#: Seconds of processor time that a parse may take: an allowance for the start and 1 s per MB
#: (measured: 0.1 s per MB).
START_SECONDS = 60
BYTES_PER_SECOND = 1_000_000
#: By the clock it may take this much longer: the machine may be busy with other work.
_BUSY = 30

_CHILD = """
import resource, sys
sys.path[:] = %r
seconds = int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))
from flint.errors import FlintError
from flint.stablehlo.read.bindings import parse
try:
    parse(sys.stdin.buffer.read(), sys.argv[1])
except FlintError as error:
    print(error)
    sys.exit(3)
"""
_REFUSED = 3


def check_bytecode(data: bytes, name: str) -> None:
    """See that parsing ``data`` ends, and ends well.

    Args:
        data: MLIR bytecode or a portable artifact.
        name: file name for errors.

    Raises:
        FlintError: the parser refuses the bytes (its reason is given), stops, or does not end.
    """
    limit = START_SECONDS + len(data) // BYTES_PER_SECOND
    command = [sys.executable, "-P", "-c", _CHILD % (sys.path,), name, str(limit)]
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=_BUSY * limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise FlintError(_too_slow(name, f"{_BUSY * limit} s")) from None
    if done.returncode == 0:
        return
    if done.returncode == _REFUSED:
        raise FlintError(done.stdout.decode("utf-8", "replace").strip())
    if done.returncode == -signal.SIGXCPU:
        raise FlintError(_too_slow(name, f"{limit} s of processor time"))
    if done.returncode < 0:
        stopped = signal_name(-done.returncode)
        raise FlintError(f"{name}: damaged MLIR bytecode (MLIR's parser stopped with {stopped})")
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    raise FlintError(f"{name}: the bytecode could not be checked: {last or 'no message'}")


def _too_slow(name: str, spent: str) -> str:
    return (
        f"{name}: too slow here: MLIR's parser was stopped after {spent} (on damaged bytecode it "
        "may never end)"
    )
