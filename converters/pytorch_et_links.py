"""What the ops of a PyTorch execution trace do with memory: storages, bytes, reads and writes.

The idea: every tensor in the trace is [tensor, storage, offset, elements, bytes of one, device];
which ones an op writes its schema marks with ``!`` (``Tensor(a!) self``), c10d's ops, whose schemas
do not say it, by a table.

    builder = AccessesBuilder(); builder.node(number, record, item); builder.finish(order, groups)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from flint.converters.torch_ops import dtype_of, shape_of
from flint.post_execution.storages import Access, Accesses, span_of
from flint.tensor_types import DTYPE_BITS, TensorType

#: c10d's ops whose first argument is where the result goes; of the others' it is changed in place.
_RESULT_FIRST = re.compile(r"_?(allgather|reduce_scatter|alltoall|gather|scatter|recv)")
_ONLY_READ = ("c10d::send", "c10d::barrier")
#: Arguments that are written without being read.
_OUT = re.compile(r"\bout\d*$")
#: Numbers in a tensor's entry.
_FIELDS = 6
_MAX_TENSORS = 100_000
#: Larger than anything that a tensor's entry counts.
_LARGEST = 1 << 48
_TYPES = re.compile(r"Tensor\(([^()]*)\)")

#: Entry, shape, strides and element type, as the file has them.
_Tensor: TypeAlias = tuple[list[Any], Any, Any, str]


class AccessesBuilder:
    """Gathers what nodes say of memory while they are read."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[Access, ...]] = {}
        self._record: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._known: dict[tuple[object, ...], Access] = {}
        self._schemas: dict[str, tuple[frozenset[int], frozenset[int]]] = {}

    def node(self, number: int, record: int, name: str, schema: str, item: dict[str, Any]) -> None:
        """A node of the trace.

        Args:
            number: its id.
            record: the profiler's number of it.
            name: of the op.
            schema: of the op, "" where it has none.
            item: the node as the file has it.
        """
        written, only = self._marks(name, schema)
        found: dict[int, Access] = {}  # equal ones are one object
        for place, tensor in _tensors(item.get("inputs")):
            access = self._access(tensor, place not in only, place in written)
            found[id(access)] = access
        for _, tensor in _tensors(item.get("outputs")):
            access = self._access(tensor, False, True)
            found[id(access)] = access
        self._tensors[number] = tuple(found.values())
        self._record[number] = record
        self._names[number] = name

    def finish(self, order: Sequence[int], groups: dict[str, tuple[int, ...]]) -> Accesses:
        """The columns, nodes in the order of their rows."""
        return Accesses(
            np.array([self._record[number] for number in order], np.int64),
            [self._names[number] for number in order],
            [self._tensors[number] for number in order],
            groups,
        )

    def _access(self, tensor: _Tensor, read: bool, written: bool) -> Access:
        entry, shape, strides, kind = tensor
        # Numbers are given out anew: everything that describes a tensor tells it apart.
        key = (*entry[1:5], _plain(shape), _plain(strides), kind, read, written)
        found = self._known.get(key)
        if found is None:
            low, high, described = _described(tensor)
            found = self._known[key] = Access(entry[1], low, high, read, written, described)
        return found

    def _marks(self, name: str, schema: str) -> tuple[frozenset[int], frozenset[int]]:
        """Arguments that are written, and those of them that are not read."""
        if name.startswith("c10d::"):
            if name.startswith(_ONLY_READ):
                return frozenset(), frozenset()
            first = frozenset((0,))
            return first, first if _RESULT_FIRST.match(name[6:]) else frozenset()
        if schema not in self._schemas:
            arguments = list(_arguments(schema))
            written = frozenset(i for i, text in enumerate(arguments) if "!" in text)
            only = frozenset(i for i in written if _OUT.search(arguments[i]))
            self._schemas[schema] = written, only
        return self._schemas[schema]


def _arguments(schema: str) -> Iterator[str]:
    """``Tensor(a!) self`` and the others of a schema, without defaults."""
    begin, end = schema.find("("), schema.rfind(") ->")
    depth, text = 0, ""
    for letter in schema[begin + 1 : end] if 0 <= begin < end else "":
        if letter == "," and not depth:
            yield from _named(text)
            text = ""
            continue
        depth += (letter in "([") - (letter in ")]")
        text += letter
    yield from _named(text)


def _named(text: str) -> Iterator[str]:
    name = text.partition("=")[0].strip()
    if name and name != "*":
        yield name


def _tensors(side: Any) -> list[tuple[int, _Tensor]]:
    """(argument, tensor) of every tensor of a node's side."""
    found: list[tuple[int, _Tensor]] = []
    if not isinstance(side, dict):
        return found
    values, shapes, types = side.get("values"), side.get("shapes"), side.get("types")
    strides = side.get("strides")
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        return found
    if not (isinstance(strides, list) and len(strides) == len(values)):
        strides = [None] * len(values)
    for place, (value, shape, stride, kind) in enumerate(
        zip(values, shapes, strides, types, strict=False)
    ):
        if not isinstance(value, list):
            continue
        text = str(kind)
        if _is_tensor(value):
            kind = text[7:-1] if text.startswith("Tensor(") else ""
            found.append((place, (value, shape, stride, kind)))
            continue
        nested = _flat(value, shape, stride, _TYPES.findall(text)[::-1])
        found += ((place, tensor) for tensor in nested)
    return found


def _plain(numbers: Any) -> object:
    """Something hashable that tells shapes and strides apart."""
    try:
        hash(plain := tuple(numbers))
    except TypeError:
        return str(numbers)
    return plain


def _is_tensor(value: list[Any]) -> bool:
    if len(value) != _FIELDS:
        return False
    _, storage, offset, count, size, _ = value
    return (
        type(storage) is type(offset) is type(count) is type(size) is int
        and 0 <= storage < _LARGEST
        and 0 <= offset < _LARGEST
        and 0 <= count < _LARGEST
        and size >= 0
        and count * size < _LARGEST
    )


def _flat(value: Any, shape: Any, stride: Any, kinds: list[str]) -> Iterator[_Tensor]:
    """The tensors of a list, nested as it may be; ``kinds`` are their types, the first one last."""
    if not isinstance(value, list):
        return
    if _is_tensor(value):
        yield value, shape, stride, kinds.pop() if kinds else ""
        return
    for i, inner in enumerate(value[:_MAX_TENSORS]):
        its_shape = shape[i] if isinstance(shape, list) and i < len(shape) else None
        its_stride = stride[i] if isinstance(stride, list) and i < len(stride) else None
        yield from _flat(inner, its_shape, its_stride, kinds)


def _described(tensor: _Tensor) -> tuple[int, int, TensorType]:
    """First byte and past the last one in its storage, and type of a tensor."""
    (_, _, offset, count, size, *_), dims, strides, kind = tensor
    shape = shape_of(dims)
    steps = strides if isinstance(strides, list) else None
    if steps is not None and not all(type(step) is int for step in steps):
        steps = None
    low, high = span_of(offset, count, size, shape, steps)
    dtype = dtype_of(kind)
    total = count * size
    if dtype not in DTYPE_BITS or shape is None:
        return low, high, TensorType((total,), "ui8", total)
    return low, high, TensorType(shape, dtype, total)
