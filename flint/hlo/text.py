"""HLO text -> HLO proto, by XLA's own parser.

The only user of ``jaxlib._hlo``, which is private; known to work: jaxlib 0.10.2 to 0.12.0.  XLA may
abort the whole process on invalid text: untrusted text is parsed in a separate process. A proto
lacks the number of partitions that the text's header states; it is added. If a text leaves out a
constant (``constant({...})``, as in XLA's dumps from eleven elements on), the parser replaces it
with zeros; these constants lose their literal, so that no value is made up.  PyTorch/XLA's
dumps state that custom calls have no version of an interface, which the parser does not take; they
are of the original one.

    proto = proto_of_text(open("step.hlo").read().encode(), "step.hlo")
    read_hlo(proto, "step.hlo")
"""

from __future__ import annotations

import re

from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb

KNOWN_VERSIONS = "jaxlib >= 0.10.2, < 0.13"

_NO_VERSION = b", api_version=API_VERSION_UNSPECIFIED"
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
        FlintError: XLA does not accept the text (its reason is given).
    """
    try:
        from jaxlib._hlo import hlo_module_from_text
    except ImportError as error:
        raise FlintError(
            f"XLA's HLO parser cannot be loaded ({error}); known to work: {KNOWN_VERSIONS}"
        ) from error
    try:
        parsed = hlo_module_from_text(text.replace(_NO_VERSION, b"").decode("utf-8"))
    except Exception as error:  # UnicodeDecodeError, or any error of jaxlib
        raise FlintError(f"{name}: not valid HLO text: {_reason(str(error))}") from error
    module = pb.HloModuleProto.FromString(parsed.as_serialized_hlo_module_proto())
    _state_counts(module, text)
    _drop_made_up(module, text)
    return module.SerializeToString()


def _reason(message: str) -> str:
    """The line with place and cause of the error, else the first nonempty line."""
    lines = [line.strip() for line in message.splitlines()]
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
    """Remove the zeros that the parser puts in place of omitted constants."""
    names = {name.decode() for name in _LEFT_OUT.findall(text)}
    if not names:
        return
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "constant" and instruction.name in names:
                instruction.ClearField("literal")
