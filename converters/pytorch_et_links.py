"""What the ops of a PyTorch execution trace do with memory: storages, bytes, reads and writes.

The idea: every tensor in the trace is [tensor, storage, offset, elements, bytes of one, device];
which ones an op writes its schema marks with ``!`` (``Tensor(a!) self``), c10d's ops, whose schemas
do not say it, by a table.

    builder = AccessesBuilder(); builder.node(number, record, item); builder.finish(order, groups)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flint.converters.torch_ops import dtype_of, shape_of
from flint.post_execution.storages import Access, Accesses, span_of
from flint.tensor_types import DTYPE_BITS, TensorType

#: c10d's ops whose first argument is where the result goes; of the others' it is changed in place.
_RESULT_FIRST = re.compile(r"_?(allgather|reduce_scatter|alltoall|gather|recv)")
_ONLY_READ = ("c10d::send", "c10d::barrier")
#: Arguments that are written without being read.
_OUT = re.compile(r"\bout\d*$")
#: Numbers in a tensor's entry.
_FIELDS = 6
_MAX_TENSORS = 100_000


class AccessesBuilder:
    """Gathers what nodes say of memory while they are read."""

    def __init__(self) -> None:
        self._tensors: dict[int, tuple[Access, ...]] = {}
        self._record: dict[int, int] = {}
        self._names: dict[int, str] = {}
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
        found: list[Access] = []
        for place, tensor in _tensors(item.get("inputs")):
            change = place in written
            found.append(_access(tensor, place not in only, change))
        for _, tensor in _tensors(item.get("outputs")):
            found.append(_access(tensor, False, True))
        self._tensors[number] = tuple(dict.fromkeys(found))
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


def _tensors(side: Any) -> Iterator[tuple[int, tuple[list[int], Any, Any, str]]]:
    """(argument, (entry, shape, strides, type)) of every tensor of a node's side."""
    if not isinstance(side, dict):
        return
    values, shapes, types = side.get("values"), side.get("shapes"), side.get("types")
    strides = side.get("strides")
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        return
    known = strides if isinstance(strides, list) and len(strides) == len(values) else None
    for place, (value, shape, kind) in enumerate(zip(values, shapes, types, strict=False)):
        stride = known[place] if known is not None else None
        for entry in _flat(value, shape, stride, re.findall(r"Tensor\(([^()]*)\)", str(kind))):
            yield place, entry


def _flat(
    value: Any, shape: Any, stride: Any, kinds: list[str]
) -> Iterator[tuple[list[int], Any, Any, str]]:
    if not isinstance(value, list):
        return
    if len(value) == _FIELDS and all(type(number) is int for number in value[:5]):
        yield value, shape, stride, kinds.pop(0) if kinds else ""
        return
    for i, inner in enumerate(value[:_MAX_TENSORS]):
        its_shape = shape[i] if isinstance(shape, list) and i < len(shape) else None
        its_stride = stride[i] if isinstance(stride, list) and i < len(stride) else None
        yield from _flat(inner, its_shape, its_stride, kinds)


def _access(tensor: tuple[list[int], Any, Any, str], read: bool, written: bool) -> Access:
    (_, storage, offset, count, size, *_), dims, strides, kind = tensor
    shape = shape_of(dims)
    steps = strides if isinstance(strides, list) else None
    if steps is not None and not all(type(step) is int for step in steps):
        steps = None
    low, high = span_of(offset, count, size, shape, steps)
    dtype = dtype_of(kind)
    total = max(0, count * size)
    if dtype not in DTYPE_BITS or shape is None:
        described = TensorType((total,), "ui8", total)
    else:
        described = TensorType(shape, dtype, total)
    return Access(storage, low, high, read, written, described)
