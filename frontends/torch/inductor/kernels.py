"""A kernel that Inductor has scheduled: what it reads, writes and computes.

The idea: Inductor's loop bodies state which operations run per element and which parts of which
buffers they touch.  A kernel call is an op of a separate namespace; its description is an argument
in text form, so that recordings stay plain data.

    define(Kernel("triton_poi_fused_add_0", (Argument("read", 512), Argument("write", 512)), ...))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flint.frontends.torch.inductor import evaluated, memories
from flint.frontends.torch.inductor.attention import Products
from flint.frontends.torch.inductor.loops import Loops
from flint.frontends.torch.recording.effects import KERNELS

_SCHEMA = "(Tensor[] read, Tensor(a!)[] written, str work) -> ()"

_new_library: Any = torch.library.Library
_libraries: list[Any] = []
_defined: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor that a kernel is called with.

    Attributes:
        read, written: bytes of it that are read and written; 0 if none.
    """

    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a generated program.

    Attributes:
        name: as a profiler shows it.
        arguments: its tensors, in the order of its call; other arguments follow.
        flops: elementary operations.
        transcendentals: applications of special functions.
        products: those of an attention, besides.
        loops: those that can be run on known values, if it has any.
    """

    name: str
    arguments: tuple[Argument, ...]
    flops: int
    transcendentals: int
    products: Products | None = None
    loops: Loops | None = None

    def call(self, tensors: Sequence[torch.Tensor]) -> None:
        """Act as if it ran: an op of its name that reads and writes the tensors."""
        pairs = list(zip(self.arguments, tensors, strict=True))
        # A tensor that is read and written is passed twice, so that the read is known.
        read = [item.detach() for each, item in pairs if each.read]
        written = [item for each, item in pairs if each.written]
        work: dict[str, Any] = {
            "flops": self.flops,
            "transcendentals": self.transcendentals,
            "read": [each.read for each, _ in pairs if each.read],
            "written": [each.written for each, _ in pairs if each.written],
        }
        if self.products is not None:
            products, flops, special = self.products.work(tensors)
            work["products"] = products
            work["flops"] += flops
            work["transcendentals"] += special
            work["dtype"] = self.products.attention.dtype
        found, before = {}, {}
        if self.loops is not None:
            found = evaluated.results_of(self.loops, tensors)
            before = {number: memories.before(tensors[number]) for number in found}
        _op(self.name)(read, written, json.dumps(work))
        for number, known in found.items():
            memories.note(tensors[number], known, before[number])


@dataclass(frozen=True, slots=True)
class OnHost:
    """A kernel for the host, of which only what is known counts: a loop's number and condition.

    Attributes:
        loops: those that can be run on known values, if it has any.
    """

    loops: Loops | None

    def __call__(self, *args: Any) -> None:
        """Give the tensors that it writes what is known of them."""
        tensors = [item for item in args if isinstance(item, torch.Tensor)]
        if self.loops is not None:
            for number, known in evaluated.results_of(self.loops, tensors).items():
                memories.note(tensors[number], known, memories.before(tensors[number]))


def _op(name: str) -> Any:
    """The op that represents the kernels of a name."""
    if name not in _defined:
        if not _libraries:
            _libraries.append(_new_library(KERNELS, "DEF"))
        _libraries[0].define(f"{name}{_SCHEMA}")
        torch.library.register_fake(
            f"{KERNELS}::{name}", lambda read, written, work: None, lib=_libraries[0]
        )
        _defined[name] = getattr(getattr(torch.ops, KERNELS), name).default
    return _defined[name]
