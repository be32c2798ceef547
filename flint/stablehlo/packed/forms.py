"""Attribute values as bytes: only the types that a record's attributes may have.

The idea: attributes are plain Python, arrays and replica groups (the table in ``records.py``).
MessagePack encodes the plain part; arrays and groups, which many ops share, are entries of two
tables and are encoded as their numbers.  Lists become tuples.

    writer = ValueWriter();  text = writer.text({"dimensions": (1, 0)})
    ValueReader(writer.arrays, writer.groups).value(text)     # {"dimensions": (1, 0)}
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from flint.stablehlo.read.records import ReplicaGroups

#: Codes of the two kinds of references.
_ARRAY, _GROUPS = 1, 2
#: Element types of arrays: rank tables, counters, indices; splats may be floats.
_DTYPES = ("<i8", "<u8", "<f8")
#: The range of integers that MessagePack can write.
_LEAST, _MOST = -(2**63), 2**64 - 1


class PackedArray(msgspec.Struct, array_like=True, frozen=True):
    """An array: its dims, the index of its element type in ``_DTYPES``, its bytes."""

    shape: tuple[int, ...]
    dtype: int
    data: bytes


class ValueWriter:
    """Writes values; equal arrays and groups are written once.

    Attributes:
        arrays, groups: the tables that go with the texts.
    """

    def __init__(self) -> None:
        self.arrays: list[PackedArray] = []
        self.groups: list[bytes] = []
        self._numbers: dict[Hashable, int] = {}
        self._by_identity: dict[int, tuple[object, msgspec.msgpack.Ext]] = {}
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._reference)

    def text(self, attributes: dict[str, Any]) -> bytes:
        """Attributes in MessagePack.

        Raises:
            TypeError: a value of a type that no attribute has.
        """
        groups = attributes.get("groups")
        if groups is not None:  # a dataclass, which MessagePack would turn into a dictionary
            attributes = {**attributes, "groups": self._reference(groups)}
        try:
            return self._encoder.encode(attributes)
        except OverflowError:
            return self._encoder.encode(_without_wide_integers(attributes))

    def _reference(self, value: object) -> msgspec.msgpack.Ext:
        known = self._by_identity.get(id(value))
        if known is None:
            # The value is kept, so that its id is not reused.
            known = self._by_identity[id(value)] = value, self._entry(value)
        return known[1]

    def _entry(self, value: object) -> msgspec.msgpack.Ext:
        if isinstance(value, np.ndarray):
            array = _packed(value)
            return self._extension(_ARRAY, array, array, self.arrays)
        if isinstance(value, ReplicaGroups):
            text = self._encoder.encode((value.table, value.iota, value.mesh))
            return self._extension(_GROUPS, text, text, self.groups)
        raise TypeError(f"an attribute of type {type(value).__name__}")

    def _extension(
        self, code: int, key: Hashable, entry: Any, table: list[Any]
    ) -> msgspec.msgpack.Ext:
        number = self._numbers.setdefault((code, key), len(table))
        if number == len(table):
            table.append(entry)
        return msgspec.msgpack.Ext(code, number.to_bytes(4, "little"))


def _packed(array: NDArray[Any]) -> PackedArray:
    kind = {"f": 2, "u": 1}.get(array.dtype.kind, 0)
    return PackedArray(array.shape, kind, array.astype(_DTYPES[kind]).tobytes())


def _without_wide_integers(value: Any) -> Any:
    """A value with integers of more than 64 bits, which no rule reads, replaced by text."""
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return str(value)
    if isinstance(value, dict):
        return {key: _without_wide_integers(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_without_wide_integers(item) for item in value]
    return value


class ValueReader:
    """Reads what a ``ValueWriter`` has written.

    Args:
        arrays, groups: the writer's tables.

    Raises:
        ValueError, TypeError: the tables are not a writer's.
    """

    def __init__(self, arrays: Sequence[PackedArray], groups: Sequence[bytes]) -> None:
        self._tables: dict[int, list[Any]] = {_ARRAY: [_array(item) for item in arrays]}
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._entry)
        self._tables[_GROUPS] = [ReplicaGroups(*self.value(text)) for text in groups]

    def value(self, text: bytes) -> Any:
        """The value of a text; lists are tuples.

        Raises:
            msgspec.DecodeError, LookupError: it is not a writer's.
        """
        return _tuples(self._decoder.decode(text))

    def _entry(self, code: int, data: memoryview) -> Any:
        return self._tables[code][int.from_bytes(data, "little")]


def _array(packed: PackedArray) -> NDArray[Any]:
    return np.frombuffer(packed.data, _DTYPES[packed.dtype]).reshape(packed.shape)


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_tuples(item) for item in value])
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value
