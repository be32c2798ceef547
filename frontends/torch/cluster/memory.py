"""How much of the device's memory a program holds: what ``torch.cuda``'s statistics answer.

The idea: a storage's Python object lives as long as the storage, so that a weak reference is told
of its end.  Each op's results are counted when they appear.  The caching allocator gives memory in
blocks of 512 bytes, from segments of at least 2 MiB that it keeps until its cache is emptied
(``c10/core/AllocatorConfig.h``); gaps within segments are not known here, so that reserved memory
is a lower bound.

    account.made(tensor)
    account.current, account.peak           # bytes
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.patching import around

_BLOCK, _SEGMENT = 512, 2 << 20


class Account:
    """Live storages of the device.

    Attributes:
        current, peak: bytes in blocks, now and at most since the last reset.
        count: live blocks.
        reserved, reserved_peak: bytes in segments, at least.
        made_bytes, made_blocks: of all blocks that there ever were.
    """

    def __init__(self) -> None:
        """Nothing is allocated."""
        self.current = self.peak = self.count = self.reserved = self.reserved_peak = 0
        self.made_bytes = self.made_blocks = 0
        self._sizes: dict[int, int] = {}  # address of a storage -> bytes of its block
        self._references: dict[int, Any] = {}

    def made(self, result: Any) -> None:
        """An op has given these tensors."""
        if isinstance(result, FakeTensor):
            if result.device.type == NAME:
                storage = result.untyped_storage()
                if storage._cdata not in self._references:
                    self._hold(storage)
        elif isinstance(result, list | tuple):
            for item in result:
                self.made(item)

    def resized(self, storage: Any) -> None:
        """A storage may have another size now."""
        if storage._cdata in self._references:
            self._change(storage._cdata, storage.nbytes())

    def restart_peak(self) -> None:
        """Peaks are counted from now on."""
        self.peak, self.reserved_peak = self.current, self.reserved

    def empty_cache(self) -> None:
        """The allocator gives back what is not allocated."""
        self.reserved = _rounded(self.current, _SEGMENT)

    def _hold(self, storage: Any) -> None:
        address = storage._cdata
        self._references[address] = weakref.ref(storage, functools.partial(self._ended, address))
        self._change(address, storage.nbytes())

    def _ended(self, address: int, _: Any) -> None:
        del self._references[address]
        self._change(address, 0)

    def _change(self, address: int, size: int) -> None:
        before, block = self._sizes.pop(address, 0), _rounded(size, _BLOCK)
        if block:
            self._sizes[address] = block
        self.current += block - before
        self.count = len(self._sizes)
        if block > before:
            self.made_bytes += block
            self.made_blocks += 1
            self.peak = max(self.peak, self.current)
            self.reserved = max(self.reserved, _rounded(self.current, _SEGMENT))
            self.reserved_peak = max(self.reserved_peak, self.reserved)

    def statistics(self) -> dict[str, int]:
        """``torch.cuda.memory_stats``: the figures that follow; others are 0."""
        found = {
            "allocated_bytes": (self.current, self.peak, self.made_bytes),
            "active_bytes": (self.current, self.peak, self.made_bytes),
            "requested_bytes": (self.current, self.peak, self.made_bytes),
            "reserved_bytes": (self.reserved, self.reserved_peak, self.reserved_peak),
            "inactive_split_bytes": (0, 0, 0),
            "allocation": (self.count, self.count, self.made_blocks),
            "active": (self.count, self.count, self.made_blocks),
        }
        made: dict[str, int] = {}
        for name, (current, peak, allocated) in found.items():
            each = (current, peak, allocated, allocated - current)
            for what, number in zip(("current", "peak", "allocated", "freed"), each, strict=True):
                made[f"{name}.all.{what}"] = number
        return {**made, "num_alloc_retries": 0, "num_ooms": 0}


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


#: Of this process's device.
account = Account()


def watch() -> Callable[[Any], None]:
    """Count storages that are resized, as FSDP does; what is returned takes each op's result."""

    def resize(original: Any, storage: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(storage, *args, **kwargs)
        account.resized(storage)
        return result

    around(torch.UntypedStorage, "resize_", resize)
    return account.made
