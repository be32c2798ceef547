"""When storages get memory from the device's allocator, and when they return it.

The idea: PyTorch frees a storage when its last holder releases it: a variable, autograd, a module's
buffer.  No op shows this, but a storage's Python object lives as long as the storage, so that a
weak reference to it is notified of its end (``torch.distributed._tools.mem_tracker`` does the
same). FSDP keeps storages and resizes them to nothing and back: each time is a separate life.
The host frees and allocates in the order in which it runs, which is the order the caching allocator
sees.

    lifetimes.seen(storage, number=7, pool=0)
    lifetimes.used(7)
    lifetimes.resized(storage)
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from flint.frontends.torch.patching import around
from flint.frontends.torch.recording.recording import Life
from flint.graph.allocations import NEVER

#: Where programs set the allocator's options.
_OPTIONS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def has_expandable_segments() -> bool:
    """Whether the environment gives the allocator segments that grow."""
    return any("expandable_segments:True" in os.environ.get(name, "") for name in _OPTIONS)


@contextlib.contextmanager
def watching_sizes(resized: Callable[[Any], None]) -> Iterator[None]:
    """Within it, ``resized`` is called with each storage that has been resized."""

    def watched(original: Any, storage: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(storage, *args, **kwargs)
        resized(storage)
        return result

    undo = around(torch.UntypedStorage, "resize_", watched)
    try:
        yield
    finally:
        undo()


def held(lives: Sequence[Life], updates: Sequence[int]) -> tuple[Life, ...]:
    """Lives of which those that last past an op of an optimizer are used until their end.

    The program holds such memory, as parameters do their gradients, and not autograd: a compiler of
    the model does not give it back any sooner.

    Args:
        lives: of a step.
        updates: numbers of the optimizers' ops, in order.
    """

    def until_its_end(life: Life) -> Life:
        later = bisect.bisect_left(updates, life.used)
        lasts = life.freed != NEVER and later < len(updates) and updates[later] < life.freed
        return replace(life, used=life.freed - 1) if lasts else life

    return tuple(map(until_its_end, lives))


class Lifetimes:
    """The lives of the storages that a step touches.

    Attributes:
        lives: in the order in which they began.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        """``now``: how many ops have been issued."""
        self.lives: list[Life] = []
        self.numbers: dict[int, int] = {}
        self._now = now
        self._alive: dict[int, int] = {}  # number -> its current life
        self._first: dict[int, int] = {}  # number -> its first life
        self._pools: dict[int, int] = {}
        self._names: Counter[int] = Counter()  # number -> its storages
        self._references: dict[
            int, Any
        ] = {}  # address -> weak reference that is notified of a storage's end

    def seen(self, storage: Any, number: int, pool: int) -> None:
        """A storage is seen for the first time; ``pool``: the pool of its memory (``Life``)."""
        address = storage._cdata
        self.numbers[address] = number
        self._names[number] += 1
        self._references[address] = weakref.ref(storage, functools.partial(self._ended, address))
        if number not in self._pools:
            self._pools[number] = pool
            self._change(number, storage.nbytes())

    def resized(self, storage: Any) -> None:
        """A storage may have a different size now."""
        number = self.numbers.get(storage._cdata)
        if number is not None:
            self._change(number, storage.nbytes())

    def used(self, number: int) -> None:
        """The next op takes or gives a value in a storage."""
        index = self._alive.get(number)
        if index is not None:
            self.lives[index] = replace(self.lives[index], used=self._now())

    def finished(self, before: dict[int, int]) -> tuple[Life, ...]:
        """All lives.

        Args:
            before: storages that existed before the step -> since when (``Life.born``).
        """
        lives = list(self.lives)
        for number, born in before.items():
            index = self._first.get(number)
            if index is not None:
                lives[index] = replace(lives[index], born=born)
        return tuple(sorted(lives, key=lambda life: life.born))

    def _ended(self, address: int, _: Any) -> None:
        del self._references[address]
        number = self.numbers.pop(address)
        self._names[number] -= 1
        if not self._names[number]:
            self._change(number, 0)

    def _change(self, number: int, size: int) -> None:
        index = self._alive.get(number)
        if size == (0 if index is None else self.lives[index].bytes):
            return
        now = self._now()
        if index is not None:
            del self._alive[number]
            self.lives[index] = replace(self.lives[index], freed=now)
        if size:
            self._alive[number] = len(self.lives)
            self._first.setdefault(number, len(self.lives))
            self.lives.append(Life(size, self._pools[number], now, used=now))
