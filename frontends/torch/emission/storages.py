"""Functionalisation: one SSA value per storage.

The idea: reading a tensor reads its view out of the storage's current value; writing a tensor gives
the storage a new value.  Aliasing then needs no analysis: views are never kept in sync but read
again.  Reads since the last write are cached, so that a view costs its ops once.

    value = storages.read(view)
    storages.write(view, new)
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from flint.errors import FlintError
from flint.frontends.torch.emission import strided
from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.recording.recording import View


@dataclass(slots=True)
class _Storage:
    """A storage's current value, as the whole dense view through which it was last written.

    Attributes:
        value, view: the value, and the view whose value it is.
        memory: dtype -> the storage's elements in memory order, in any shape.
        views: the views that have been read.
        version: how many times it has been written.
    """

    value: Value
    view: View
    version: int
    memory: dict[str, Value] = field(default_factory=dict)
    views: dict[View, Value] = field(default_factory=dict)


class Storages:
    """The storages of a program and their values as emission proceeds."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        """``sizes``: of every storage, bytes."""
        self.sizes = sizes
        #: Storages that were read before anything was written, with the readers' views.
        self.unwritten: Counter[int] = Counter()
        self._known: dict[int, _Storage] = {}
        self._allocated: set[int] = set()

    def allocate(self, storage: int) -> None:
        """Memory without values (``torch.empty``): reading it is not an error of the recording."""
        self._allocated.add(storage)

    def length(self, storage: int, dtype: str) -> int:
        """How many elements of a dtype a storage holds."""
        return self.sizes[storage] // dtypes.size(dtype)

    def version(self, storage: int) -> int:
        """How many times a storage has been written; 0 when it has no value yet."""
        known = self._known.get(storage)
        return known.version if known else 0

    def covers(self, view: View) -> bool:
        """Whether a view is the whole of its storage, once."""
        whole = math.prod(view.shape) == self.length(view.storage, view.dtype)
        return (
            whole and not view.offset and strided.dense_order(view.shape, view.stride) is not None
        )

    def whole(self, view: View) -> View:
        """``view`` when it covers its storage, else the storage as a vector of its dtype."""
        if self.covers(view):
            return view
        return View(view.storage, 0, (self.length(view.storage, view.dtype),), (1,), view.dtype)

    def read(self, view: View) -> Value:
        """The current value of a view."""
        known = self._known.get(view.storage) or self._unknown(view)
        value = known.views.get(view)
        if value is None:
            if view.conjugate:
                value = op.conjugate(self.read(replace(view, conjugate=False)))
            else:
                value = self._read(known, view)
            known.views[view] = value
        return value

    def _read(self, known: _Storage, view: View) -> Value:
        if not math.prod(view.shape):
            return op.constant(0, view.shape, view.dtype)
        if view.dtype == known.view.dtype and self.covers(view):
            order = strided.dense_order(view.shape, view.stride)
            assert order is not None
            if view.shape == known.view.shape and order == _order(known.view):
                return known.value
            return strided.from_memory(self._memory(known, view.dtype), view.shape, order)
        self._check(view)
        return strided.read(self._memory(known, view.dtype), view)

    def write(self, view: View, value: Value) -> None:
        """Give a view a new value.

        Raises:
            FlintError: the value has another shape or dtype, or the view repeats memory.
        """
        if op.shape_of(value) != view.shape or op.dtype_of(value) != view.dtype:
            found = f"{op.dtype_of(value)}{list(op.shape_of(value))}"
            raise FlintError(f"{found} is written to {view.dtype}{list(view.shape)}")
        if view.conjugate:
            self.write(replace(view, conjugate=False), op.conjugate(value))
            return
        version = self.version(view.storage) + 1
        if not math.prod(view.shape):
            return
        if self.covers(view):
            self._known[view.storage] = _Storage(value, view, version, views={view: value})
            return
        self._check(view)
        self.allocate(view.storage)  # reading the rest later is allowed
        known = self._known.get(view.storage) or self._unknown(view)
        ends = [
            self.length(view.storage, dtype) * dtypes.size(dtype)
            for dtype in (view.dtype, known.view.dtype)
        ]
        if ends[0] < ends[1]:
            raise FlintError(
                f"a write as {view.dtype} into {ends[1]} bytes of {known.view.dtype}, "
                f"of which {ends[1] - ends[0]} are left over"
            )
        memory = strided.write(self._memory(known, view.dtype), view, value)
        shape = op.shape_of(memory)
        whole = View(view.storage, 0, shape, _contiguous(shape), view.dtype)
        fresh = _Storage(memory, whole, version, {view.dtype: memory}, {view: value})
        self._known[view.storage] = fresh

    def _memory(self, known: _Storage, dtype: str) -> Value:
        """A storage in memory order, as a vector of a dtype."""
        own = known.view.dtype
        if own not in known.memory:
            known.memory[own] = op.transpose(known.value, _order(known.view))
        if dtype not in known.memory:
            memory = known.memory[own]
            flat = op.reshape(memory, (math.prod(op.shape_of(memory)),))
            known.memory[dtype] = op.bitcast(flat, dtype)
        return known.memory[dtype]

    def _check(self, view: View) -> None:
        steps = zip(view.shape, view.stride, strict=True)
        last = view.offset + sum((size - 1) * step for size, step in steps)
        if last >= self.length(view.storage, view.dtype):
            raise FlintError(
                f"a view reaches element {last} of storage {view.storage}, "
                f"which has {self.length(view.storage, view.dtype)} of {view.dtype}"
            )

    def _unknown(self, view: View) -> _Storage:
        """Zeros, for memory that no op has written."""
        if view.storage not in self._allocated and self.sizes[view.storage]:
            self.unwritten[view.storage] += 1
        whole = View(view.storage, 0, (self.length(view.storage, view.dtype),), (1,), view.dtype)
        value = op.constant(0, whole.shape, view.dtype)
        known = self._known[view.storage] = _Storage(value, whole, 0, {view.dtype: value})
        return known


def _order(view: View) -> list[int]:
    order = strided.dense_order(view.shape, view.stride)
    assert order is not None, "a storage's value is that of a dense view"
    return order


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
