"""Reads Chakra ET files as columns.

The idea: most files hold nodes in the one plain encoding that serializers produce, and those are
decoded for all nodes at once with numpy (`read.fast`).  Other encodings (repeated fields, unpacked
lists, zigzag integers, garbage) go through protobuf node by node, which also decides what is an
error and where.  Files with the same content are read once.

    trace = read_trace(Path("trace.0.et"))
    traces = TraceReader()
    same = traces.read(Path("trace.1.et")) is traces.read(Path("trace.2.et"))
"""

from __future__ import annotations

import hashlib
from array import array
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.read.fast import decode_plain
from flint.converters.chakra.read.framing import (
    FramingError,
    MissingMetadata,
    load_bytes,
    require_metadata,
    split_records,
)
from flint.converters.chakra.read.similar import KnownFile, decode_similar, known_file
from flint.converters.chakra.read.trace import INT_ATTRIBUTES, Csr, Trace
from flint.converters.chakra.schema import FIELD_OF
from flint.errors import FlintError
from flint.host.packed_files import check_plain
from flint.host.reading_memory import bounded

_VALUE = pb.AttributeProto.DESCRIPTOR.oneofs_by_name["value"]
_FIELD_NUMBER = {field.name: field.number for field in _VALUE.fields}
_INTEGER_FIELDS = frozenset(
    f"{kind}_val"
    for kind in ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64")
) | {"sfixed32_val", "sfixed64_val", "bool_val"}


_SMALL = 1 << 18
"""Files up to this size are read without a memory limit: gzip expands them to at most 64 MiB."""

_KNOWN_FILES = 8
"""The most contents of one length that are kept for comparison,"""
_KNOWN_BYTES = 1 << 26
"""and so many bytes in all."""


def read_trace(path: Path) -> Trace:
    """The whole file as columns.

    Raises:
        MissingMetadata: the file is empty or does not start with GlobalMetadata.
        FramingError: truncated, over-long or corrupt records, with the byte offset.
        FlintError: the file cannot be read.
    """
    return decode_trace(load_bytes(path), str(path))


def decode_trace(data: bytes, path: str) -> Trace:
    """The columns of an ET file's (unpacked) content; `path` is for messages."""
    return _decode(data, path)[0]


def _decode(data: bytes, path: str) -> tuple[Trace, list[int], list[int]]:
    """The columns, and where the nodes start and end."""
    starts, ends = split_records(data, path)
    if not starts:
        raise MissingMetadata(f"{path}: the file is empty; it must start with GlobalMetadata")
    version = _parse_metadata(data[starts[0] : ends[0]], starts[0], path).version
    del starts[0], ends[0]
    trace = decode_plain(data, starts, ends, path, version)
    if trace is None:
        trace = _decode_any(data, starts, ends, path, version)
    return trace, starts, ends


def _parse_metadata(record: bytes, offset: int, path: str) -> pb.GlobalMetadata:
    require_metadata(record, path)
    try:
        return pb.GlobalMetadata.FromString(record)
    except DecodeError as error:
        raise FramingError(f"{path}: corrupt GlobalMetadata at byte {offset}: {error}") from error


def _decode_any(data: bytes, starts: list[int], ends: list[int], path: str, version: str) -> Trace:
    """Columns through protobuf: about ten times slower, for every valid encoding."""
    count = len(starts)
    ids, durations = array("Q"), array("Q")
    types, name_index = array("i"), array("i")
    names: dict[str, int] = {}
    deps = {"data_deps": (array("q", [0]), array("Q")), "ctrl_deps": (array("q", [0]), array("Q"))}
    values = {name: np.zeros(count, np.int64) for name in INT_ATTRIBUTES}
    used = {name: np.zeros(count, np.uint8) for name in FIELD_OF}
    pg_name, pg_names = np.full(count, -1, np.int32), dict[str, int]()
    involved, involved_dims = np.full(count, -1, np.int32), dict[tuple[bool, ...], int]()
    repeated: dict[str, list[int]] = {}
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        try:
            node = pb.Node.FromString(data[start:end])
        except DecodeError as error:
            raise FramingError(f"{path}: corrupt node at byte {start}: {error}") from error
        ids.append(node.id)
        types.append(node.type)
        durations.append(node.duration_micros)
        name_index.append(names.setdefault(node.name, len(names)))
        for list_name, (begin, parents) in deps.items():
            parents.extend(getattr(node, list_name))
            begin.append(len(parents))
        for attr in node.attr:
            name = attr.name
            if name not in FIELD_OF:
                continue
            if used[name][row]:
                repeated.setdefault(name, []).append(row)
            field = attr.WhichOneof("value")
            used[name][row] = _FIELD_NUMBER[field] if field else 0
            if name == "pg_name":
                if field == "string_val":
                    pg_name[row] = pg_names.setdefault(attr.string_val, len(pg_names))
            elif name == "involved_dim":
                if field == "bool_list":
                    mask = tuple(attr.bool_list.values)
                    involved[row] = involved_dims.setdefault(mask, len(involved_dims))
            elif field in _INTEGER_FIELDS:
                values[name][row] = _as_int64(int(getattr(attr, field)))
    return Trace(
        path=path,
        version=version,
        offset=np.array(starts, np.int64),
        id=np.array(ids, np.uint64),
        type=np.array(types, np.int32),
        duration=np.array(durations, np.uint64),
        name=np.array(name_index, np.int32),
        names=tuple(names),
        data_deps=_csr(*deps["data_deps"]),
        ctrl_deps=_csr(*deps["ctrl_deps"]),
        **values,
        pg_name=pg_name,
        pg_names=tuple(pg_names),
        involved_dim=involved,
        involved_dims=tuple(involved_dims),
        field=used,
        repeated={name: tuple(rows) for name, rows in repeated.items()},
    )


def _csr(start: array[int], ids: array[int]) -> Csr:
    return Csr(np.array(start, np.int64), np.array(ids, np.uint64))


def _as_int64(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


class TraceReader:
    """Reads many files, each distinct content once, and lets equal columns share their memory.

    Files that are hard links to each other are not even opened twice; files with equal bytes are
    decoded once.  `read` then returns the same object, so `is` tells which ranks share a trace.
    Of a file that differs from an earlier one of the same length in some nodes, only those are
    decoded (`read.similar`).

    Attributes:
        files_decoded: how many distinct contents were decoded so far.
        nodes_decoded: how many nodes.
    """

    def __init__(self) -> None:
        self._by_inode: dict[tuple[int, int], Trace] = {}
        self._by_content: dict[bytes, Trace] = {}
        self._arrays: dict[tuple[str, bytes], Any] = {}
        self._known: dict[int, list[KnownFile]] = {}
        self._known_bytes = 0
        self.files_decoded = 0
        self.nodes_decoded = 0

    def read(self, path: Path) -> Trace:
        """The trace at `path`.

        Raises as `read_trace`; a FlintError, too, if it takes more memory than is allowed.
        """
        try:
            stat = path.stat()
            check_plain(path, stat)
        except OSError as error:
            raise FlintError(f"{path}: cannot be read: {error.strerror or error}") from error
        inode = (stat.st_dev, stat.st_ino)
        if inode not in self._by_inode:
            with bounded(path) if stat.st_size > _SMALL else nullcontext():
                data = load_bytes(path)
                digest = hashlib.blake2b(data, digest_size=16).digest()
                if digest not in self._by_content:
                    self._by_content[digest] = self._decode(data, str(path))
            self._by_inode[inode] = self._by_content[digest]
        return self._by_inode[inode]

    def _decode(self, data: bytes, path: str) -> Trace:
        self.files_decoded += 1
        known = self._known.setdefault(len(data), [])
        for candidate in known:
            similar = decode_similar(candidate, data, path)
            if similar is not None:
                trace, rows = similar
                self.nodes_decoded += rows
                return self._share(trace)
        trace, starts, ends = _decode(data, path)
        self.nodes_decoded += len(trace)
        trace = self._share(trace)
        if len(known) < _KNOWN_FILES and self._known_bytes + len(data) <= _KNOWN_BYTES:
            known.append(known_file(data, starts, ends, trace))
            self._known_bytes += len(data)
        return trace

    def _share(self, trace: Trace) -> Trace:
        changes: dict[str, Any] = {}
        for column in fields(trace):
            value = getattr(trace, column.name)
            if isinstance(value, np.ndarray):
                changes[column.name] = self._intern(value)
            elif isinstance(value, Csr):
                changes[column.name] = Csr(self._intern(value.start), self._intern(value.ids))
        changes["field"] = {name: self._intern(used) for name, used in trace.field.items()}
        return replace(trace, **changes)

    def _intern(self, values: Any) -> Any:
        if not values.flags.writeable:
            return values  # it is shared already
        digest = hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
        shared = self._arrays.setdefault((f"{values.dtype}{values.shape}", digest), values)
        shared.flags.writeable = False
        return shared
