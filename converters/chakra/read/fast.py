"""Decodes the plain encoding of nodes for all nodes of a file at once.

The idea: walk all nodes in lockstep.  Step k reads the k-th field of every node that has one, so a
file of any length takes as many numpy steps as its longest node has fields.  "Plain" is what
serializers write: each singular field at most once, dependency lists packed, attributes as name
then value.  If anything is not plain, `decode_plain` returns None and the caller falls back to
protobuf; it never guesses.

    bytes:   [08 03 | 18 07 | 52 0b ...]   [08 04 | 12 02 .. .. | 18 04]
    step 0:   ^ id                          ^ id
    step 1:           ^ type                        ^ name
    step 2:                   ^ attr                               ^ type
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.read.bulk import NotPlain, Words, masks, packed, strings, varints
from flint.converters.chakra.read.trace import INT_ATTRIBUTES, Trace
from flint.converters.chakra.schema import FIELD_OF, NodeField, ValueField
from flint.mesh.ragged import Ints

_PADDING: Final = 24  # reads past the end of a truncated value stay inside the buffer
_LEN, _VARINT = 2, 0


def _tag(field: NodeField, wire: int) -> int:
    return int(field) << 3 | wire


_ID = _tag(NodeField.ID, _VARINT)
_TYPE = _tag(NodeField.TYPE, _VARINT)
_START = _tag(NodeField.START_TIME_MICROS, _VARINT)
_DURATION = _tag(NodeField.DURATION_MICROS, _VARINT)
_NAME = _tag(NodeField.NAME, _LEN)
_CTRL = _tag(NodeField.CTRL_DEPS, _LEN)
_DATA = _tag(NodeField.DATA_DEPS, _LEN)
_ATTR = _tag(NodeField.ATTR, _LEN)
_NUMBERS: Final = (_ID, _TYPE, _START, _DURATION)
_RANGES: Final = (_NAME, _CTRL, _DATA)
_PLAIN_TAGS: Final = frozenset((*_NUMBERS, *_RANGES, _ATTR))
_PLAIN_VARINTS: Final = (
    ValueField.INT32,
    ValueField.INT64,
    ValueField.UINT32,
    ValueField.UINT64,
    ValueField.BOOL,
)


class _Fields(NamedTuple):
    numbers: dict[int, NDArray[np.uint64]]
    begin: dict[int, Ints]
    end: dict[int, Ints]
    attr_node: Ints
    attr_begin: Ints
    attr_end: Ints


class _Attributes(NamedTuple):
    values: dict[str, Ints]
    used: dict[str, NDArray[np.uint8]]
    pg_name: NDArray[np.int32]
    pg_names: tuple[str, ...]
    involved: NDArray[np.int32]
    involved_dims: tuple[tuple[bool, ...], ...]


def decode_plain(
    data: bytes, starts: list[int], ends: list[int], path: str, version: str
) -> Trace | None:
    """Columns of the nodes at `data[starts[i]:ends[i]]`, or None if one of them is not plain."""
    padded = np.frombuffer(data + bytes(_PADDING), np.uint8)
    # Eight bytes at any position as one number: short strings compare as integers.
    words: Words = np.ndarray((len(padded) - 7,), np.dtype("<u8"), padded, 0, (1,))
    begin = np.array(starts, np.int64)
    end = np.array(ends, np.int64)
    try:
        fields = _walk_nodes(padded, begin, end)
        attrs = _walk_attributes(data, padded, words, fields, len(begin))
        types = fields.numbers[_TYPE].astype(np.int64)
        if len(types) and (types.min() < 0 or types.max() > 127):
            raise NotPlain
        name, names = strings(data, words, fields.begin[_NAME], fields.end[_NAME])
        return Trace(
            path=path,
            version=version,
            offset=begin,
            id=fields.numbers[_ID],
            type=types.astype(np.int32),
            duration=fields.numbers[_DURATION],
            name=name,
            names=names,
            data_deps=packed(padded, fields.begin[_DATA], fields.end[_DATA]),
            ctrl_deps=packed(padded, fields.begin[_CTRL], fields.end[_CTRL]),
            **attrs.values,
            pg_name=attrs.pg_name,
            pg_names=attrs.pg_names,
            involved_dim=attrs.involved,
            involved_dims=attrs.involved_dims,
            field=attrs.used,
            repeated={},
        )
    except NotPlain:
        return None


def _walk_nodes(data: NDArray[np.uint8], starts: Ints, ends: Ints) -> _Fields:
    count = len(starts)
    numbers = {tag: np.zeros(count, np.uint64) for tag in _NUMBERS}
    begin = {tag: np.zeros(count, np.int64) for tag in _RANGES}
    end = {tag: np.zeros(count, np.int64) for tag in _RANGES}
    seen = np.zeros(count, np.uint16)
    attr_node: list[Ints] = []
    attr_begin: list[Ints] = []
    attr_end: list[Ints] = []
    cursor = starts.copy()
    active = np.flatnonzero(cursor < ends)
    while active.size:
        at = cursor[active]
        tags = data[at]
        value, after = varints(data, at + 1)
        stop = after.copy()
        for tag in np.flatnonzero(np.bincount(tags, minlength=256)).tolist():
            if tag not in _PLAIN_TAGS:
                raise NotPlain
            rows = np.flatnonzero(tags == tag)
            nodes = active[rows]
            if tag != _ATTR:
                bit = np.uint16(1 << (tag >> 3))
                if np.any(seen[nodes] & bit):
                    raise NotPlain
                seen[nodes] |= bit
            if tag in numbers:
                numbers[tag][nodes] = value[rows]
                continue
            if np.any(value[rows] > np.uint64(len(data))):
                raise NotPlain
            stop[rows] += value[rows].astype(np.int64)
            if tag == _ATTR:
                attr_node.append(nodes)
                attr_begin.append(after[rows])
                attr_end.append(stop[rows])
            else:
                begin[tag][nodes] = after[rows]
                end[tag][nodes] = stop[rows]
        if np.any(stop > ends[active]):
            raise NotPlain
        cursor[active] = stop
        active = active[stop < ends[active]]
    empty = np.zeros(0, np.int64)
    return _Fields(
        numbers,
        begin,
        end,
        np.concatenate([empty, *attr_node]),
        np.concatenate([empty, *attr_begin]),
        np.concatenate([empty, *attr_end]),
    )


def _walk_attributes(
    raw: bytes, data: NDArray[np.uint8], words: Words, fields: _Fields, count: int
) -> _Attributes:
    node, begin, end = fields.attr_node, fields.attr_begin, fields.attr_end
    values = {name: np.zeros(count, np.int64) for name in INT_ATTRIBUTES}
    used = {name: np.zeros(count, np.uint8) for name in FIELD_OF}
    if np.any(end - begin < 2) or np.any(data[begin] != 0x0A) or np.any(data[begin + 1] >= 0x80):
        raise NotPlain
    length = data[begin + 1].astype(np.int64)
    value_at = begin + 2 + length
    if np.any(value_at > end):
        raise NotPlain
    at = np.minimum(begin + 2, len(words) - 9)
    head, tail = words[at], words[at + 8]
    unknown = np.ones(len(node), bool)
    pg_name, pg_names = np.full(count, -1, np.int32), tuple[str, ...]()
    involved, involved_dims = np.full(count, -1, np.int32), tuple[tuple[bool, ...], ...]()
    for name in FIELD_OF:
        rows = np.flatnonzero(_is_name(name, length, head, tail))
        rows = rows[np.argsort(node[rows], kind="stable")]
        if not rows.size:
            continue
        unknown[rows] = False
        nodes = node[rows]
        field, start = _value_tags(data, value_at[rows], end[rows])
        if np.bincount(nodes, minlength=1).max() > 1:
            raise NotPlain
        used[name][nodes] = field
        if name in values:
            values[name][nodes] = _integers(data, field, start, end[rows])
        elif name == "pg_name":
            begin_s, end_s = _payload(data, field, start, end[rows], ValueField.STRING)
            index, pg_names = strings(raw, words, begin_s, end_s)
            pg_name[nodes] = index
        else:
            begin_s, end_s = _payload(data, field, start, end[rows], ValueField.BOOL_LIST)
            index, involved_dims = masks(raw, words, begin_s, end_s)
            involved[nodes] = index
    _check_unknown(raw, begin[unknown], end[unknown])
    return _Attributes(values, used, pg_name, pg_names, involved, involved_dims)


def _is_name(
    name: str, length: Ints, head: NDArray[np.uint64], tail: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    code = name.encode()
    low, high = int.from_bytes(code[:8], "little"), int.from_bytes(code[8:], "little")
    low_mask = (1 << 8 * min(len(code), 8)) - 1
    high_mask = (1 << 8 * max(len(code) - 8, 0)) - 1
    match: NDArray[np.bool_] = length == len(code)
    match &= (head & np.uint64(low_mask)) == np.uint64(low)
    match &= (tail & np.uint64(high_mask)) == np.uint64(high)
    return match


def _value_tags(data: NDArray[np.uint8], at: Ints, end: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """Field numbers of the values that begin at `at`, and where their content begins."""
    tag, after = varints(data, at)
    if np.any(at >= end) or np.any(tag >= 33 * 8):
        raise NotPlain
    field = (tag >> np.uint64(3)).astype(np.uint8)
    wire = tag & np.uint64(7)
    numeric = np.isin(field, np.array(_PLAIN_VARINTS, np.uint8))
    delimited = (field == ValueField.STRING) | (field == ValueField.BOOL_LIST)
    if np.any(wire != np.where(delimited, _LEN, _VARINT)) or not np.all(numeric | delimited):
        raise NotPlain
    return field, after


def _integers(data: NDArray[np.uint8], field: NDArray[np.uint8], at: Ints, end: Ints) -> Ints:
    if np.any((field == ValueField.STRING) | (field == ValueField.BOOL_LIST)):
        raise NotPlain
    value, after = varints(data, at)
    if np.any(after != end):
        raise NotPlain
    signed = value.view(np.int64)
    signed = np.where(field == ValueField.INT32, signed.astype(np.int32), signed)
    signed = np.where(field == ValueField.UINT32, signed & 0xFFFFFFFF, signed)
    return np.where(field == ValueField.BOOL, (signed != 0).astype(np.int64), signed)


def _payload(
    data: NDArray[np.uint8], field: NDArray[np.uint8], at: Ints, end: Ints, wanted: ValueField
) -> tuple[Ints, Ints]:
    if np.any(field != wanted):
        raise NotPlain
    length, after = varints(data, at)
    if np.any(length > np.uint64(len(data))) or np.any(after + length.astype(np.int64) != end):
        raise NotPlain
    return after, end


def _check_unknown(raw: bytes, begin: Ints, end: Ints) -> None:
    """Unused attributes must also be well-formed, because a consumer's parser reads them, too."""
    slices = {raw[start:stop] for start, stop in zip(begin.tolist(), end.tolist(), strict=True)}
    for item in slices:
        try:
            name = pb.AttributeProto.FromString(item).name
        except DecodeError:
            raise NotPlain from None
        if name in FIELD_OF:
            raise NotPlain
