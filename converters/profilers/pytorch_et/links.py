"""Memory accesses of the ops of a PyTorch execution trace: storages, bytes, reads and writes.

The idea: every tensor in the trace is [tensor, storage, offset, elements, bytes of one, device]; an
op's schema marks those that it writes with ``!`` (``Tensor(a!) self``); a table has those of c10d's
ops, whose schemas lack the mark.  Ops with equal shapes, strides and types share a *plan* with the
positions of tensors among their values; only the tensors are read op by op.

    builder = AccessesBuilder()
    plan = builder.plan("aten::mm", schema, inputs, outputs)
    builder.accesses(plan, input_values, output_values)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from flint.converters.profilers.torch_ops import UNDEFINED, dtype_of, shape_of
from flint.graph.tensor_types import DTYPE_BITS, TensorType
from flint.post_execution.storages import EVERYTHING, HIDDEN, Access, reach_of

#: c10d's ops whose first argument receives the result; for the others it is changed in place.
_RESULT_FIRST = re.compile(r"_?(allgather|reduce_scatter|alltoall|gather|scatter|recv)")
_ONLY_READ = ("c10d::send", "c10d::barrier")
#: Ops that need no byte of what they change, which their schemas do not show.  They still wait for
#: earlier writers, which may run on another stream.
_OVERWRITES = re.compile(
    r"aten::(_foreach_)?"
    r"(copy|zero|fill|normal|log_normal|uniform|bernoulli|random|exponential|geometric|cauchy)_$"
)
#: Arguments that are written without being read.
_OUT = re.compile(r"\bout\d*$")
#: Number of values in a tensor's entry.
_FIELDS = 6
_MAX_TENSORS = 100_000
#: Larger than any valid value in a tensor's entry.
_LARGEST = 1 << 48
_TYPES = re.compile(r"Tensor\(((?:[^()]|\([^()]*\))*)\)")


class _Use(NamedTuple):
    """Whether a tensor's old content is needed, whether its bytes are read, whether it is
    written.
    """

    read: bool
    counted: bool
    written: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """What is known about a tensor without its storage; equal ones are one object.

    Attributes:
        kind: element type, as in the file.
        use: how the op uses it.
        shape: None if not recorded.
        dtype: element type by its StableHLO name; "" if it has none.
        reach: from its first element to its last one, in elements; None if unknown.
        types: its type by its bytes.
        known: its accesses by storage, offset, elements and bytes of one.
    """

    kind: str
    use: _Use
    shape: tuple[int, ...] | None
    dtype: str
    reach: int | None
    types: dict[int, TensorType] = field(default_factory=dict)
    known: dict[tuple[int, int, int, int], Access] = field(default_factory=dict)

    def span(self, offset: int, count: int, size: int) -> tuple[int, int]:
        """First byte in its storage and past the last one.

        Args:
            offset, count: offset and number of elements.
            size: bytes of one.
        """
        low = min(offset * size, EVERYTHING)
        if not count:
            return low, low
        if self.reach is None:
            return 0, EVERYTHING
        return low, min(low + (self.reach + 1) * size, EVERYTHING)

    def type_of(self, total: int) -> TensorType:
        """Its type if it has that many bytes."""
        found = self.types.get(total)
        if found is None:
            plain = self.shape is None or self.dtype not in DTYPE_BITS
            shape, dtype = ((total,), "ui8") if plain else (self.shape or (), self.dtype)
            found = self.types[total] = TensorType(shape, dtype, total)
        return found


class _Listed(NamedTuple):
    """A list of tensors, possibly nested."""

    shapes: Any
    strides: Any
    kinds: tuple[str, ...]
    use: _Use


class Side(NamedTuple):
    """Shapes, types and strides of a node's inputs or outputs, as in the file."""

    shapes: Any
    types: Any
    strides: Any


_Places: TypeAlias = tuple[tuple[int, _Slot | _Listed], ...]
#: Positions of tensors, and of lists of tensors, among the values of inputs and outputs.
Plan: TypeAlias = tuple[_Places, _Places]


class AccessesBuilder:
    """Makes accesses, equal ones once.

    Attributes:
        on_device: whether any tensor is on a GPU.
    """

    def __init__(self) -> None:
        self.on_device = False
        self._slots: dict[tuple[object, ...], _Slot] = {}
        self._schemas: dict[str, tuple[frozenset[int], frozenset[int]]] = {}

    def plan(self, name: str, schema: str, inputs: Side, outputs: Side) -> Plan:
        """The plan of ops with a name, a schema ("" if there is none), and these tensors."""
        written, only = self._marks(name, schema)
        overwrites = _OVERWRITES.match(name) is not None
        sides: list[_Places] = []
        for side, is_input in ((inputs, True), (outputs, False)):
            found: list[tuple[int, _Slot | _Listed]] = []
            for place, shape, strides, kind in _tensors(side):
                changed = not is_input or place in written
                taken = is_input and place not in only
                # Without strides it may be a part, and the others of the storage stay.
                read = taken or (is_input and strides is None)
                use = _Use(read, taken and not (changed and overwrites), changed)
                if kind.startswith("Tensor("):
                    slot = self._slot(shape, strides, kind[7:-1], use)
                    found.append((place, slot))
                else:
                    kinds = tuple(_TYPES.findall(kind))
                    found.append((place, _Listed(shape, strides, kinds, use)))
            sides.append(tuple(found))
        return sides[0], sides[1]

    def accesses(self, plan: Plan, inputs: object, outputs: object) -> tuple[Access, ...]:
        """The memory accesses of an op of the plan.

        Args:
            plan: the plan for its name, shapes and types.
            inputs, outputs: values of its arguments and results, as in the file.
        """
        found: dict[int, Access] = {}  # equal ones are one object
        for values, places in ((inputs, plan[0]), (outputs, plan[1])):
            if not isinstance(values, list):
                continue
            for place, slot in places:
                if isinstance(slot, _Listed):
                    for inner in self._of_list(slot, values, place):
                        found[id(inner)] = inner
                    continue
                try:
                    _, storage, offset, count, size, _ = entry = values[place]
                    access = slot.known.get((storage, offset, count, size))
                except (TypeError, ValueError, IndexError):
                    continue  # a value that is not a tensor
                if access is None:
                    access = self._new(slot, entry)
                    if access is None:
                        continue
                found[id(access)] = access
        return tuple(found.values())

    def _of_list(self, listed: _Listed, values: list[Any], place: int) -> Iterator[Access]:
        value = values[place] if place < len(values) else None
        kinds = list(reversed(listed.kinds))
        for entry, shape, strides in _flat(value, listed.shapes, listed.strides):
            kind = kinds.pop() if kinds else ""
            slot = self._slot(shape, strides, kind, listed.use)
            storage, offset, count, size = entry[1:5]
            access = slot.known.get((storage, offset, count, size)) or self._new(slot, entry)
            if access is not None:
                yield access

    def _slot(self, shape: Any, strides: Any, kind: str, use: _Use) -> _Slot:
        key = str(shape), str(strides), kind, use
        found = self._slots.get(key)
        if found is None:
            sizes = shape_of(shape)
            reach = reach_of(sizes, strides)
            found = self._slots[key] = _Slot(kind, use, sizes, dtype_of(kind), reach)
        return found

    def _new(self, slot: _Slot, entry: Any) -> Access | None:
        if not _is_tensor(entry) or slot.kind == UNDEFINED:
            return None
        self.on_device = self.on_device or str(entry[5]).startswith("cuda")
        storage, offset, count, size = entry[1:5]
        low, high = slot.span(offset, count, size)
        kind = slot.type_of(count * size)
        taken = kind.bytes if slot.use.counted else 0
        access = Access(storage, low, high, slot.use.read, slot.use.written, kind, taken)
        if not size:  # sparse: its storages are those of other tensors
            access = Access(HIDDEN, 0, EVERYTHING, True, slot.use.written, kind, 0)
        slot.known[storage, offset, count, size] = access
        return access

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


def _tensors(side: Side) -> Iterator[tuple[int, Any, Any, str]]:
    """(place, shape, strides, type) of the tensors and lists of tensors of a side."""
    shapes, types, strides = side
    if not (isinstance(shapes, list) and isinstance(types, list)):
        return
    if not (isinstance(strides, list) and len(strides) == len(types)):
        strides = [None] * len(types)
    for place, (shape, steps, kind) in enumerate(zip(shapes, strides, types, strict=False)):
        if "Tensor(" in str(kind):
            yield place, shape, steps, str(kind)


def _is_tensor(value: object) -> bool:
    if not isinstance(value, list) or len(value) != _FIELDS:
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


def _flat(value: object, shape: Any, strides: Any) -> Iterator[tuple[list[Any], Any, Any]]:
    """(entry, shape, strides) of the tensors of a possibly nested list."""
    if not isinstance(value, list):
        return
    if _is_tensor(value):
        yield value, shape, strides
        return
    for i, inner in enumerate(value[:_MAX_TENSORS]):
        its_shape = shape[i] if isinstance(shape, list) and i < len(shape) else None
        its_strides = strides[i] if isinstance(strides, list) and i < len(strides) else None
        yield from _flat(inner, its_shape, its_strides)
