"""Storages by number: tensors as views of them, and which of their bytes existed before the step.

storages = Storages()
storages.view(tensor)           # View(storage=3, offset=0, shape=(8, 16), ...)
storages.expose(tensor)         # it was read: was its value there before the step?
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from flint.frontends.torch.cluster.device import current_stream
from flint.frontends.torch.recording.hazards import Extent, extent
from flint.frontends.torch.recording.lifetimes import Lifetimes
from flint.frontends.torch.recording.recording import View
from flint.graph.allocations import HOST

#: Larger real host tensors are data.
_MOST_BYTES = 256


class Storages:
    """The storages that a step touches.

    Attributes:
        bytes: of every storage, the largest size that it ever had.
        made: storages that the step created.
        exposed: storage -> the view by which its value from before the step was first read.
        written: storage -> a view by which it was written.
        constants: storage -> bytes, if the host knows them.
        host: the storages in the host's memory.
        lifetimes: the lifetimes of their memory.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        """``now``: how many ops have been issued."""
        self.bytes: list[int] = []
        self.made: set[int] = set()
        self.exposed: dict[int, View] = {}
        self.written: dict[int, View] = {}
        self.constants: dict[int, bytes] = {}
        self.host: set[int] = set()
        self.lifetimes = Lifetimes(now)
        self._numbers = self.lifetimes.numbers
        self._covered: dict[int, list[tuple[int, int]]] = {}

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        number = self._numbers.get(key)
        if number is None:
            number = len(self.bytes)
            self.bytes.append(storage.nbytes())
            on_host = tensor.device.type == "cpu"
            self.host |= {number} if on_host else set()
            self.lifetimes.seen(storage, number, HOST if on_host else current_stream().stream_id)
        else:
            size = storage.nbytes()
            if size > self.bytes[number]:
                self.bytes[number] = size
        return number

    def known_number(self, tensor: torch.Tensor) -> int | None:
        """The number of a tensor's storage, if the step has touched it."""
        return self._numbers.get(tensor.untyped_storage()._cdata)

    def numbers_of(self, storages: Iterable[Any]) -> Iterator[int]:
        """The numbers of storages, those that the step has touched."""
        for storage in storages:
            number = self._numbers.get(storage._cdata)
            if number is not None:
                yield number

    def alias(self, tensor: torch.Tensor, number: int) -> None:
        """Note a tensor whose storage is really that of another tensor."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._numbers:
            self.lifetimes.seen(storage, number, 0)

    def view(self, tensor: torch.Tensor) -> View:
        """A tensor as a view of its storage."""
        return View(
            self.number(tensor),
            int(tensor.storage_offset()),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            _name(tensor.dtype),
            tensor.is_conj(),
        )

    def expose(self, tensor: torch.Tensor) -> None:
        """Note a read of a tensor: part of its value may be from before the step."""
        number = self.number(tensor)
        if number in self.made or number in self.exposed:
            return
        view = self.view(tensor)
        wanted = extent_of(view, tensor)
        if wanted.low < wanted.high and not _inside(self._covered.get(number, []), wanted):
            self.exposed[number] = view

    def cover(self, view: View, where: Extent) -> None:
        """Note a write of a view: these bytes are no longer from before the step."""
        if where.storage in self.made:
            return
        self.written.setdefault(where.storage, view)
        if where.dense:
            known = self._covered.setdefault(where.storage, [])
            known.append((where.low, where.high))
            known[:] = _merged(known)

    def keep_value(self, tensor: torch.Tensor) -> None:
        """Keep the host's value of a tensor that the device takes."""
        real = type(tensor) is torch.Tensor and tensor.untyped_storage().nbytes() <= _MOST_BYTES
        constant = tensor if real else getattr(tensor, "constant", None)
        if constant is not None:
            self.constants[self.number(tensor)] = _bytes(constant)


def extent_of(view: View, tensor: torch.Tensor) -> Extent:
    """The bytes of its storage that a tensor spans."""
    return extent(view.storage, view.offset, view.shape, view.stride, tensor.element_size())


_NAMES: dict[torch.dtype, str] = {}


def _name(dtype: torch.dtype) -> str:
    return _NAMES.get(dtype) or _NAMES.setdefault(dtype, str(dtype).removeprefix("torch."))


def _inside(covered: list[tuple[int, int]], wanted: Extent) -> bool:
    return any(low <= wanted.low and wanted.high <= high for low, high in covered)


def _merged(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


def _bytes(tensor: torch.Tensor) -> bytes:
    storage = tensor.untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""
