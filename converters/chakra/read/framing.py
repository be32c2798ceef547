"""The outer layer of an ET file: varint32 lengths, one GlobalMetadata, then Nodes.

The idea: nothing is used before it is checked.  A length is compared with the remaining bytes
before anything is sliced or allocated, and every failure names file and byte offset.

    data = load_bytes(Path("trace.0.et"))
    meta_end, starts, ends = split_records(data, "trace.0.et")
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from flint.errors import FlintError
from flint.host.packed_files import read_bytes

MAX_FILE_BYTES: Final = 1 << 31
"""A file whose (unpacked) content is larger is refused: protobuf itself stops at 2 GiB."""

MAX_RECORD_BYTES: Final = 1 << 28
"""The largest node or metadata record; real ones (thousands of inputs) are far smaller."""

MAX_NODES: Final = 1 << 24
"""The most nodes of one file; their columns take a few GiB."""


class FramingError(FlintError):
    """The bytes are not a sequence of length-delimited Chakra messages."""


class MissingMetadata(FlintError):
    """The first record is not GlobalMetadata: consumers would swallow the first node silently."""


def load_bytes(path: Path) -> bytes:
    """The whole content of an ET file, unpacked if it is gzip.

    Raises FlintError if the file cannot be read, is damaged or has more than `MAX_FILE_BYTES`.
    """
    return read_bytes(path, MAX_FILE_BYTES)


def split_records(data: bytes, path: str) -> tuple[list[int], list[int]]:
    """Start and end offsets of every record's content in `data`, the metadata record first.

    Raises FramingError at the first record that is truncated, longer than `MAX_RECORD_BYTES` or
    whose length is no varint32.
    """
    starts: list[int] = []
    ends: list[int] = []
    position, total = 0, len(data)
    while position < total:
        begin = position
        length = data[position]
        position += 1
        if length >= 0x80:
            length &= 0x7F
            shift = 7
            while True:
                if position == total:
                    raise FramingError(f"{path}: truncated in the length at byte {begin}")
                if shift == 35:
                    raise FramingError(f"{path}: no varint32 length at byte {begin}")
                byte = data[position]
                position += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
        if length > MAX_RECORD_BYTES:
            raise FramingError(f"{path}: record of {length} bytes at byte {begin} is too long")
        if position + length > total:
            raise FramingError(
                f"{path}: truncated: the record at byte {begin} claims {length} bytes, "
                f"{total - position} are left"
            )
        if len(starts) > MAX_NODES:
            raise FramingError(f"{path}: more than {MAX_NODES} nodes; refused at byte {begin}")
        starts.append(position)
        position += length
        ends.append(position)
    return starts, ends


def require_metadata(record: bytes, path: str) -> None:
    """Raise MissingMetadata if `record`, the file's first, has another shape than GlobalMetadata.

    GlobalMetadata has only the length-delimited fields 1 and 2, while a useful node has a numeric
    field: its type.  The distinction needs no parse of the fields' content.
    """
    position, total = 0, len(record)
    while position < total:
        if record[position] not in (0x0A, 0x12):
            break
        length, shift = 0, 0
        position += 1
        while position < total and shift < 35:
            byte = record[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        position += length
    if position != total:
        raise MissingMetadata(
            f"{path}: the first record is not GlobalMetadata, so consumers would drop the first "
            "node; write GlobalMetadata before the nodes"
        )
