"""Encodes records in bulk: protobuf messages from columns, without a message object per node.

The idea: a record is a row of pieces, and a piece is a column: text from a table, or numbers as
varints.  The width of every piece of every record is computed first; then each piece is scattered
into one buffer, byte position by byte position, for all records at once.  Fields come in the order
of their numbers and varints are minimal, so that parsing and serialising gives the same bytes.

    rows = Records(3)
    rows.text([b"\\x0a\\x01a", b"\\x0a\\x02bc"], index)      # -1: this record has no such piece
    rows.varint(b"\\x38", durations, present=durations > 0)
    buffer = rows.framed()                                  # [varint length][record] ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.schema import ATTR_NAME_FIELD, NodeField, ValueField
from flint.mesh.ragged import Ints, segments

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]

_THRESHOLDS: Final = np.array([1 << (7 * i) for i in range(1, 9)], np.int64)
_VARINT, _LENGTH = 0, 2


def varint_width(values: Ints) -> Ints:
    """Bytes of each value as a varint; values are in 0 .. 2**63 - 1."""
    return np.searchsorted(_THRESHOLDS, values, side="right").astype(np.int64) + 1


def varint(value: int) -> bytes:
    """One number as a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_field(number: int, content: bytes) -> bytes:
    """A field of bytes (text, message, packed list)."""
    return varint(number << 3 | _LENGTH) + varint(len(content)) + content


def varint_field(number: int, value: int) -> bytes:
    """A field of one number."""
    return varint(number << 3 | _VARINT) + varint(value)


def attribute(name: str, field: ValueField, value: bytes | int) -> bytes:
    """A whole attribute of a node or of the metadata."""
    text = length_field(ATTR_NAME_FIELD, name.encode())
    encoded = varint_field(field, value) if isinstance(value, int) else length_field(field, value)
    return length_field(NodeField.ATTR, text + encoded)


def put_varints(out: Bytes, at: Ints, values: Ints, width: Ints) -> None:
    """Write ``values`` as varints of ``width`` bytes that begin at ``at``."""
    if not len(values):
        return
    # Three and four bytes are common, nine are not: narrow the columns while values end.
    rest = values
    position = 0
    while True:
        more = width > position + 1
        out[at + position] = (rest & 0x7F) | (more * 0x80)
        if not more.any():
            return
        if not more.all():
            at, width, rest = at[more], width[more], rest[more]
        rest = rest >> 7
        position += 1


class Records:
    """Records of one kind under construction.

    A piece's method returns the piece's number, for ``Encoded.positions``.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._widths: list[Ints] = []
        self._pieces: list[_Text | _Numbers | _Packed] = []

    def text(self, table: Sequence[bytes], index: Ints) -> int:
        """The bytes ``table[index]``; nothing if ``index`` is -1."""
        lengths = np.array([len(entry) for entry in table] or [0], np.int64)
        start = np.cumsum(lengths) - lengths
        flat = np.frombuffer(b"".join(table), np.uint8)
        width = np.where(index >= 0, lengths[index], 0)
        return self._add(width, _Text(flat, start, index))

    def varint(self, values: Ints, present: Mask | None = None) -> int:
        """Bare varints; nothing if ``present`` is False."""
        width = varint_width(values)
        if present is not None:
            width = np.where(present, width, 0)
        return self._add(width, _Numbers(values))

    def number(self, field: NodeField, values: Ints, present: Mask | None = None) -> None:
        """A field of one number per record."""
        tag = np.zeros(self.count, np.int64)
        if present is not None:
            tag = np.where(present, 0, -1)
        self.text([varint(field << 3 | _VARINT)], tag)
        self.varint(values, present)

    def packed(self, field: NodeField, ptr: Ints, values: Ints) -> None:
        """A packed list per record (CSR); absent if it is empty."""
        ends = np.concatenate([[0], np.cumsum(varint_width(values))])
        payload = ends[ptr[1:]] - ends[ptr[:-1]]
        some = payload > 0
        self.text([varint(field << 3 | _LENGTH)], np.where(some, 0, -1))
        self.varint(payload, some)
        self._add(payload, _Packed(values, ends))

    def attribute(self, name: str, field: ValueField, values: Ints, present: Mask) -> int:
        """An attribute with a number per record, where ``present``; returns the value's piece."""
        head = length_field(ATTR_NAME_FIELD, name.encode()) + varint(field << 3 | _VARINT)
        table = [
            varint(NodeField.ATTR << 3 | _LENGTH) + varint(len(head) + bytes_) + head
            for bytes_ in range(1, 11)
        ]
        self.text(table, np.where(present, varint_width(values) - 1, -1))
        return self.varint(values, present)

    def _add(self, width: Ints, piece: _Text | _Numbers | _Packed) -> int:
        self._widths.append(width)
        self._pieces.append(piece)
        return len(self._pieces) - 1

    def framed(self, head: bytes = b"") -> Encoded:
        """All records, each after its length, after ``head``."""
        body = np.zeros(self.count, np.int64)
        for width in self._widths:
            body += width
        prefix = varint_width(body)
        ends = len(head) + np.cumsum(body + prefix)
        out = np.empty(int(ends[-1]) if self.count else len(head), np.uint8)
        out[: len(head)] = np.frombuffer(head, np.uint8)
        at = ends - body - prefix
        put_varints(out, at, body, prefix)
        at = at + prefix
        positions = []
        for width, piece in zip(self._widths, self._pieces, strict=True):
            positions.append(at)
            piece.put(out, at, width)
            at = at + width
        return Encoded(out, tuple(positions))


class Encoded:
    """Records as bytes.

    Attributes:
        data: the bytes.
        positions: where each piece begins in each record, by piece number.
    """

    def __init__(self, data: Bytes, positions: tuple[Ints, ...]) -> None:
        self.data = data
        self.positions = positions


class _Text:
    def __init__(self, flat: Bytes, start: Ints, index: Ints) -> None:
        self.flat, self.start, self.index = flat, start, index

    def put(self, out: Bytes, at: Ints, width: Ints) -> None:
        rows = np.flatnonzero(width)
        if not len(rows):
            return
        lengths = width[rows]
        source = self.start[self.index[rows]]
        target = at[rows]
        if int(lengths.min()) == int(lengths.max()):
            for offset in range(int(lengths[0])):
                out[target + offset] = self.flat[source + offset]
            return
        out[segments(target, lengths)] = self.flat[segments(source, lengths)]


class _Numbers:
    def __init__(self, values: Ints) -> None:
        self.values = values

    def put(self, out: Bytes, at: Ints, width: Ints) -> None:
        rows = np.flatnonzero(width)
        put_varints(out, at[rows], self.values[rows], width[rows])


class _Packed:
    def __init__(self, values: Ints, ends: Ints) -> None:
        self.values, self.ends = values, ends

    def put(self, out: Bytes, at: Ints, width: Ints) -> None:
        rows = np.flatnonzero(width)
        if not len(rows):
            return
        # A list is contiguous in the output as it is among all lists: shift each to its record.
        first = np.searchsorted(self.ends, np.cumsum(width[rows]) - width[rows])
        count = np.diff(np.concatenate([first, [len(self.values)]]))
        shift = np.repeat(at[rows] - self.ends[first], count)
        put_varints(out, self.ends[:-1] + shift, self.values, np.diff(self.ends))
