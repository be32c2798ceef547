"""Instruction metadata -> where an op comes from, looked up only when needed.

The idea: metadata stays serialised while a module is read; each distinct one gets a small number
and is parsed when that number is looked up.  The source line is in the metadata itself or, in newer
modules, in the module's table of stack frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError

from flint.hlo import hlo_pb2 as pb
from flint.stablehlo.read.records import SourceInfo

T = TypeVar("T")

_NOWHERE = SourceInfo()


class Locations:
    """Distinct metadata of a module; callable as ``Module.location``.

    Attributes:
        numbers: serialised metadata -> number (in order of first appearance).
    """

    __slots__ = ("_frames", "_known", "_lines", "_payloads", "_serialised", "numbers")

    def __init__(self, frames: pb.StackFrameIndexProto, payloads: tuple[bytes, ...]) -> None:
        self.numbers: dict[bytes, int] = {}
        self._frames = frames
        self._payloads = payloads
        self._serialised: list[bytes] = []
        self._known: dict[int, SourceInfo] = {}
        self._lines: dict[int, tuple[str, int]] = {}

    def __call__(self, number: object) -> SourceInfo:
        """The place that ``Op.loc`` refers to; an instruction's name refers to itself."""
        if not isinstance(number, int):
            return SourceInfo(number) if isinstance(number, str) else _NOWHERE
        found = self._known.get(number)
        if found is None:
            if len(self._serialised) != len(self.numbers):
                self._serialised = list(self.numbers)
            found = self._known[number] = self._resolve(self._serialised[number])
        return found

    def _resolve(self, serialised: bytes) -> SourceInfo:
        try:
            metadata = pb.OpMetadata.FromString(serialised)
            if metadata.HasField("metadata_payload"):
                payload = resolve_payload(metadata.metadata_payload, self._payloads)
                metadata.MergeFromString(payload)
        except (DecodeError, ValueError):  # a damaged name is no reason to refuse the module
            return _NOWHERE
        if metadata.source_file or not metadata.stack_frame_id:
            return SourceInfo(metadata.op_name, metadata.source_file, metadata.source_line)
        number = metadata.stack_frame_id
        line = self._lines.get(number)
        if line is None:
            line = self._lines[number] = self._frame(number)
        return SourceInfo(metadata.op_name, *line)

    def _frame(self, number: int) -> tuple[str, int]:
        """File and line of the innermost frame; references are 1-based, 0 is none."""
        frame = _at(self._frames.stack_frames, number)
        place = _at(self._frames.file_locations, frame.file_location_id) if frame else None
        if place is None:
            return "", 0
        return _at(self._frames.file_names, place.file_name_id) or "", place.line


def _at(items: Sequence[T], number: int) -> T | None:
    return items[number - 1] if 1 <= number <= len(items) else None


def resolve_payload(payload: pb.Payload, payloads: tuple[bytes, ...]) -> bytes:
    """A payload's bytes: written in place, or an index into the module's table.

    Raises:
        ValueError: the table has no such entry.
    """
    if payload.WhichOneof("data") != "id":
        return payload.value
    if not 0 <= payload.id < len(payloads):
        raise ValueError(f"payload {payload.id} of {len(payloads)} is missing (file cut off?)")
    return payloads[payload.id]
