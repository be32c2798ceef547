"""Numbers and texts of the wire format, many at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.read.trace import Csr
from flint.mesh.ragged import Ints, segments

Words: TypeAlias = NDArray[np.uint64]


class NotPlain(Exception):
    """The file needs the general decoder."""


def varints(data: NDArray[np.uint8], at: Ints) -> tuple[NDArray[np.uint64], Ints]:
    """The varints that begin at `at`, and the positions behind them."""
    value = data[at].astype(np.uint64)
    after = at + 1
    rows = np.flatnonzero(value >= 0x80)
    value[rows] &= np.uint64(0x7F)
    shift = 7
    while rows.size:
        if shift == 70:
            raise NotPlain
        byte = data[after[rows]].astype(np.uint64)
        if shift == 63 and byte.max() > 1:
            raise NotPlain
        value[rows] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        after[rows] += 1
        rows = rows[byte >= 0x80]
        shift += 7
    return value, after


def strings(
    raw: bytes, words: Words, begin: Ints, end: Ints
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """The texts `raw[begin[i]:end[i]]` as numbers of the distinct ones, and these."""
    index, distinct = _intern(raw, words, begin, end)
    try:
        return index, tuple(item.decode() for item in distinct)
    except UnicodeDecodeError:
        raise NotPlain from None


def masks(
    raw: bytes, words: Words, begin: Ints, end: Ints
) -> tuple[NDArray[np.int32], tuple[tuple[bool, ...], ...]]:
    """The lists of booleans there as numbers of the distinct ones, and these."""
    index, distinct = _intern(raw, words, begin, end)
    try:
        masks = tuple(tuple(pb.BoolList.FromString(item).values) for item in distinct)
    except DecodeError:
        raise NotPlain from None
    if len(set(masks)) != len(masks):
        raise NotPlain
    return index, masks


def _intern(
    raw: bytes, words: Words, begin: Ints, end: Ints
) -> tuple[NDArray[np.int32], list[bytes]]:
    """Number the distinct byte strings `raw[begin[i]:end[i]]` in order of first appearance."""
    length = end - begin
    if length.size and length.max() <= 7:  # the usual case: as one number with its length on top
        keep = (np.uint64(1) << (length * 8).astype(np.uint64)) - np.uint64(1)
        key = (words[begin] & keep) | (length << 56).astype(np.uint64)
        _, first, index = np.unique(key, return_index=True, return_inverse=True)
        order = np.argsort(first)
        position = np.empty(len(order), np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        chosen = first[order]
        return position[index], [
            raw[start:stop]
            for start, stop in zip(begin[chosen].tolist(), end[chosen].tolist(), strict=True)
        ]
    known: dict[bytes, int] = {}
    numbers = [
        known.setdefault(raw[start:stop], len(known))
        for start, stop in zip(begin.tolist(), end.tolist(), strict=True)
    ]
    return np.array(numbers, np.int32), list(known)


def packed(data: NDArray[np.uint8], begin: Ints, end: Ints) -> Csr:
    """Decode one packed list of varints per node."""
    length = end - begin
    first = np.cumsum(length) - length
    stream = data[segments(begin, length)]
    last = stream < 0x80
    row_end = np.flatnonzero(length > 0)
    if not np.all(last[(first + length - 1)[row_end]]):
        raise NotPlain
    ends = np.flatnonzero(last)
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])[: len(ends)]
    value, after = varints(np.concatenate([stream, np.zeros(1, np.uint8)]), starts)
    if np.any(after != ends + 1):
        raise NotPlain
    counted = np.concatenate([np.zeros(1, np.int64), np.cumsum(last)])
    start = np.concatenate([counted[first], counted[-1:]])
    return Csr(start.astype(np.int64), value)
