"""HLO text -> HLO proto, by XLA's own parser.

The one door to ``jaxlib._hlo``, which is private; known to work: jaxlib 0.10.2.  XLA may stop the
whole process on text that it does not like, so the parser runs in a child process under a time
limit.  A proto lacks the number of partitions that the text's header states; it is added.
Where a text leaves out a constant (``constant({...})``, as XLA's dumps do from eleven elements on),
the parser makes zeros of it; these constants lose their literal, so that no value is made up.

    proto = proto_of_text(open("step.hlo").read().encode(), "step.hlo")
    read_hlo(proto, "step.hlo")
"""

from __future__ import annotations

import re
import subprocess
import sys

from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb
from flint.host.child_processes import signal_name

KNOWN_VERSIONS = "jaxlib >= 0.10.2, < 0.11"

#: Seconds after which the parser is given up; it takes about 1 s for 10 MB of text.
TIME_LIMIT = 600.0

#: What the child runs: text on stdin, serialised HloModuleProto on stdout, exit status 3 for a
#: parser without the function we know and 4 for text that it refuses.
_CHILD = """
import sys
try:
    from jaxlib._hlo import hlo_module_from_text
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
text = sys.stdin.buffer.read().decode("utf-8")
try:
    module = hlo_module_from_text(text)
except Exception as error:
    print(error, file=sys.stderr)
    sys.exit(4)
sys.stdout.buffer.write(module.as_serialized_hlo_module_proto())
"""
_NO_PARSER, _REFUSED = 3, 4

_HEADER = re.compile(rb"^HloModule\b.*", re.MULTILINE)
_COUNT = r"\b%s=(\d{1,9})\b"
_LEFT_OUT = re.compile(
    rb"^\s*(?:ROOT\s+)?%?([\w.\-]+) = [^\s\"]+ constant\(\{\.\.\.\}\)", re.MULTILINE
)


def proto_of_text(text: bytes, name: str = "<module>") -> bytes:
    """Parse HLO text.

    Args:
        text: the file's bytes, starting with ``HloModule`` (comments may precede it).
        name: file name for errors.

    Returns:
        A serialised ``HloModuleProto`` for ``read_hlo``; its device assignment holds no more than
        the counts that the header states, and constants that the text leaves out have no literal.

    Raises:
        FlintError: XLA does not accept the text (its reason is given), or stopped on it.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CHILD],
            input=text,
            capture_output=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FlintError(f"{name}: XLA's HLO parser took more than {TIME_LIMIT:.0f} s") from None
    if done.returncode == 0:
        module = pb.HloModuleProto.FromString(done.stdout)
        _state_counts(module, text)
        _drop_made_up(module, text)
        return module.SerializeToString()
    reason = _reason(done.stderr)
    if done.returncode == _NO_PARSER:
        raise FlintError(
            f"XLA's HLO parser cannot be loaded ({reason}); known to work: {KNOWN_VERSIONS}"
        )
    if done.returncode == _REFUSED:
        raise FlintError(f"{name}: not valid HLO text: {reason}")
    status = done.returncode
    how = signal_name(-status) if status < 0 else f"exit status {status}"
    raise FlintError(f"{name}: XLA's HLO parser stopped ({how}): {reason}")


def _reason(stderr: bytes) -> str:
    """The line with place and cause of the error, else the first that is not empty."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    telling = [line for line in lines if " error: " in line] or [line for line in lines if line]
    return re.sub(r"^(?:was parsing |[A-Z_]+: )", "", telling[0])[:300] if telling else "no message"


def _state_counts(module: pb.HloModuleProto, text: bytes) -> None:
    """Give the module the numbers of partitions and replicas that the text's header states."""
    header = _HEADER.search(text)
    line = header.group().decode("utf-8", "replace") if header else ""
    counts = {}
    for key in ("num_partitions", "replica_count"):
        stated = re.search(_COUNT % key, line)
        if stated:
            counts[key] = int(stated.group(1))
    if counts and not module.device_assignment.computation_count:
        module.device_assignment.computation_count = counts.get("num_partitions", 1)
        module.device_assignment.replica_count = counts.get("replica_count", 1)


def _drop_made_up(module: pb.HloModuleProto, text: bytes) -> None:
    """Take away the zeros that the parser puts in the place of constants that are left out."""
    names = {name.decode() for name in _LEFT_OUT.findall(text)}
    if not names:
        return
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "constant" and instruction.name in names:
                instruction.ClearField("literal")
