"""Node records of one structure: from columns to one file's bytes and the places to stamp.

The idea: all ranks of a class have traces of the same length that differ in a few numbers.  The
trace is encoded once for the class's first rank; each stamp lists which bytes have which number, so
that any other rank's trace is the same buffer with those bytes overwritten.

    template = encode(nodes, stamps, values_of_first_rank, head)
    template.stamps[0].at      # int64 [nodes, width]: where rank-dependent bytes are
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.schema import (
    ATTR_NAME_FIELD,
    FIELD_OF,
    METADATA_VERSION_FIELD,
    SCHEMA_VERSION,
    NodeField,
    NodeType,
    ValueField,
)
from flint.converters.chakra.write.encode import (
    Bytes,
    Records,
    attribute,
    length_field,
    put_varints,
    varint,
    varint_field,
    varint_width,
)
from flint.graph.distinct import distinct
from flint.mesh.ragged import Ints


@dataclass(frozen=True, eq=False, slots=True)
class NodeColumns:
    """All attributes of a file's nodes.

    Attributes:
        names: distinct node names.
        name: index into ``names``, shape [nodes].
        type: ``NodeType``, shape [nodes].
        ptr, deps: CSR over positions of earlier nodes.
        micros: ``duration_micros``, shape [nodes].
        num_ops: of COMP nodes, shape [nodes].
        tensor_size: of COMP, MEM_LOAD and MEM_STORE nodes, shape [nodes].
        comm_type: of COLL nodes, shape [nodes].
        comm_size: of COLL, SEND and RECV nodes, shape [nodes].
        tag: of SEND and RECV nodes, shape [nodes].
        src, dst: stamp with ``comm_src`` and ``comm_dst``, shape [nodes].
        masks: distinct ``involved_dim`` values.
        mask: index into ``masks``, -1 if there is none, shape [nodes].
        group: stamp with ``pg_name``, -1 if there is none, shape [nodes].
        notes: distinct encoded attributes for readers.
        note: index into ``notes``, -1 for none, shape [nodes].
    """

    names: Sequence[str]
    name: Ints
    type: NDArray[np.int8]
    ptr: Ints
    deps: Ints
    micros: Ints
    num_ops: Ints
    tensor_size: Ints
    comm_type: Ints
    comm_size: Ints
    tag: Ints
    src: Ints
    dst: Ints
    masks: Sequence[tuple[bool, ...]]
    mask: Ints
    group: Ints
    notes: Sequence[bytes] = ()
    note: Ints | None = None

    def __len__(self) -> int:
        return len(self.type)


@dataclass(frozen=True, eq=False, slots=True)
class StampPlaces:
    """The byte positions of a stamp, shape [occurrences, width]."""

    stamp: int
    at: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Template:
    """One class's file.

    Attributes:
        data: the file of the class's first rank.
        stamps: what differs for the other ranks.
    """

    data: Bytes
    stamps: tuple[StampPlaces, ...]


def metadata_record(attributes: dict[str, str]) -> bytes:
    """The framed GlobalMetadata that a file starts with."""
    content = length_field(METADATA_VERSION_FIELD, SCHEMA_VERSION.encode())
    for name, text in attributes.items():
        inner = length_field(ATTR_NAME_FIELD, name.encode())
        inner += length_field(ValueField.STRING, text.encode())
        content += length_field(2, inner)
    return varint(len(content)) + content


def note(name: str, text: str) -> bytes:
    """An encoded text attribute."""
    return attribute(name, ValueField.STRING, text.encode())


def encode(nodes: NodeColumns, values: Ints, digits: int, head: bytes) -> Template:
    """A class's file.

    Args:
        nodes: its nodes.
        values: the first rank's value of every stamp (a rank or a group id), shape [stamps].
        digits: decimal digits of group ids.
        head: the file's beginning, from ``metadata_record``.
    """
    rows = Records(len(nodes))
    comp = nodes.type == NodeType.COMP
    coll = nodes.type == NodeType.COLL
    message = (nodes.type == NodeType.SEND) | (nodes.type == NodeType.RECV)
    rows.number(NodeField.ID, np.arange(1, len(nodes) + 1, dtype=np.int64))
    rows.text([length_field(NodeField.NAME, name.encode()) for name in nodes.names], nodes.name)
    rows.text(
        [varint_field(NodeField.TYPE, kind) for kind in range(8)], nodes.type.astype(np.int64)
    )
    rows.packed(NodeField.DATA_DEPS, nodes.ptr, nodes.deps + 1)
    rows.number(NodeField.DURATION_MICROS, nodes.micros, nodes.micros > 0)
    rows.text([attribute("is_cpu_op", ValueField.BOOL, 0)], np.zeros(len(nodes), np.int64))
    _number(rows, "num_ops", nodes.num_ops, comp)
    moves = (nodes.type == NodeType.MEM_LOAD) | (nodes.type == NodeType.MEM_STORE)
    _number(rows, "tensor_size", nodes.tensor_size, comp | moves)
    _number(rows, "comm_type", nodes.comm_type, coll)
    src = _number(rows, "comm_src", values[np.where(message, nodes.src, 0)], message)
    dst = _number(rows, "comm_dst", values[np.where(message, nodes.dst, 0)], message)
    _number(rows, "comm_size", nodes.comm_size, coll | message)
    _number(rows, "comm_tag", nodes.tag, message)
    field = FIELD_OF["involved_dim"]
    involved = [length_field(1, bytes(mask)) for mask in nodes.masks]
    rows.text([attribute("involved_dim", field, dims) for dims in involved], nodes.mask)
    rows.text([_group_head(digits)], np.where(nodes.group >= 0, 0, -1))
    names = [str(value).zfill(digits).encode() for value in values.tolist()]
    group = rows.text(names, nodes.group)
    if nodes.note is not None:
        rows.text(nodes.notes, nodes.note)
    encoded = rows.framed(head)
    width = varint_width(np.maximum(values, 0))
    stamps = [
        *_places(nodes.src, message, encoded.positions[src], width),
        *_places(nodes.dst, message, encoded.positions[dst], width),
        *_places(
            nodes.group, nodes.group >= 0, encoded.positions[group], np.full_like(width, digits)
        ),
    ]
    return Template(encoded.data, tuple(stamps))


def stamp_bytes(values: Ints, width: int, as_text: bool) -> Bytes:
    """The bytes of a stamp for each of several ranks, shape [ranks, width]."""
    out = np.empty((len(values), width), np.uint8)
    if as_text:
        for place in range(width):
            out[:, width - 1 - place] = values // 10**place % 10 + ord("0")
    else:
        at = np.arange(len(values), dtype=np.int64) * width
        put_varints(out.reshape(-1), at, values, np.full(len(values), width, np.int64))
    return out


def _number(rows: Records, name: str, values: Ints, present: NDArray[np.bool_]) -> int:
    return rows.attribute(name, FIELD_OF[name], np.where(present, values, 0), present)


def _group_head(digits: int) -> bytes:
    whole = attribute("pg_name", FIELD_OF["pg_name"], b"0" * digits)
    return whole[: len(whole) - digits]


def _places(stamp: Ints, present: NDArray[np.bool_], at: Ints, width: Ints) -> list[StampPlaces]:
    found = []
    for number in distinct(stamp[present]).tolist():
        rows = at[present & (stamp == number)]
        found.append(StampPlaces(number, rows[:, None] + np.arange(int(width[number]))))
    return found
