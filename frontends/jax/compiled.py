"""A lowered program at the requested level, from a compiler's process.

The idea: the logical level reads the lowered program itself; the partitioned one is XLA's
partitioner's, the optimized one a backend's.  A compiler's process is
started before the step is traced, and takes one program after another; one that a program has
ended, or that still works long after its result is known, is replaced.

    with Compilers(request) as compilers:
        program = compilers.compiled(lowered)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Self

from flint.capturing.request import Request
from flint.frontends.jax.compile.target_compiler import Compiled, Optimizer
from flint.frontends.jax.internals.modules import batch_partitionable
from flint.frontends.jax.internals.partitioning_rules import answer
from flint.frontends.jax.lower.listing import MAX_BYTES, listing_of, listing_of_hlo
from flint.frontends.jax.lower.lowering import Lowered
from flint.frontends.jax.partition.partitioning import Partitioner
from flint.frontends.jax.partition.remarks import remarks
from flint.frontends.jax.requests import Compilation, words_and_module
from flint.frontends.jax.targets.table import table
from flint.hlo.reader import read_hlo
from flint.host.child_processes import Limits
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.bindings import without_locations
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import Walked, walk
from flint.workload.compiler_report import CompilerReport
from flint.workload.programs import Level, Listing


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A lowered program at a level.

    Attributes:
        module: the records.
        saved: the module's bytes and file suffix.
        listing: makes the same for people to read.
        compiled: the compiler's report, if one has compiled it.
    """

    module: Module
    saved: tuple[bytes, str]
    listing: Listing | None
    compiled: CompilerReport | None = None


#: What the partitioner has made of programs, with remarks of its log, by their content.
Kept = dict[bytes, tuple[bytes, Mapping[str, int]]]


class Compilers:
    """The compiler of a request's level: a waiting process, or one started when needed.

    Args:
        request: the request.
        kept: what the partitioner has made of earlier programs, to which these are added; None if
            none comes twice.
    """

    def __init__(self, request: Request, kept: Kept | None = None) -> None:
        self._request, self._kept = request, kept
        self._stack = ExitStack()
        self._child: Partitioner | Optimizer | None = None

    def __enter__(self) -> Self:
        self._child = self._started()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process: its work after the result is of no use."""
        self._child = None
        self._stack.close()

    def compiled(self, lowered: Lowered) -> CompiledProgram:
        """A program at the level.

        Raises:
            FlintError: the compiler fails, or goes over a limit.
        """
        program = _compiled(self._ready(), lowered, self._request, self._kept)
        program.module.donors = lowered.interface.donated
        return program

    def walked(
        self, program: CompiledProgram, lowered: Lowered, options: WalkOptions | None = None
    ) -> Walked:
        """The graph of a compiled program; with the request's options unless others are given."""
        per_device = self._request.level is not Level.LOGICAL
        options = options or self._request.options.walk
        found = walk(program.module, lowered.mesh, options, values=lowered.values)
        return replace(found, per_device=per_device)

    def _ready(self) -> Partitioner | Optimizer | None:
        """The process, or its replacement."""
        if self._child is None or not self._child.waits():
            self.close()
            self._child = self._started()
        return self._child

    def _started(self) -> Partitioner | Optimizer | None:
        request = self._request
        limits = Limits(request.options.time_limit, request.options.memory_limit)
        child: Partitioner | Optimizer
        if request.level is Level.PARTITIONED:
            child = Partitioner(math.prod(request.shape), limits, answer=answer)
        elif request.target is not None:
            child = Optimizer(request.target, request.shape, limits, answer=answer)
        else:
            return None
        self._stack.enter_context(child)
        return child


def _compiled(
    child: Partitioner | Optimizer | None, lowered: Lowered, request: Request, kept: Kept | None
) -> CompiledProgram:
    bytecode, interface, name = lowered.bytecode, lowered.interface, request.name
    if child is None:
        return CompiledProgram(
            read_mlir(bytecode, name), (bytecode, ".mlirbc"), cache(partial(listing_of, bytecode))
        )
    options = {**lowered.compiler_options, **request.options.compiler_options}
    wanted = Compilation(
        bytecode, lowered.shardy, interface.inputs_free, interface.outputs_free,
        batch_partitionable(bytecode), len(interface.names), options,
    )  # fmt: skip
    if isinstance(child, Optimizer):
        return optimized(child, wanted, name)
    if kept is None:
        return split(child, wanted, name)
    words, module = words_and_module(wanted)
    said = repr((child.devices, lowered.function, words)).encode()  # its lines are kept as well
    key = hashlib.sha256(said + without_locations(module)).digest()
    if key not in kept:
        kept[key] = child.run(wanted), remarks(child.log())
    return _partitioned(*kept[key], name)


def split(child: Partitioner, wanted: Compilation, name: str) -> CompiledProgram:
    """A program as XLA's partitioner makes it.

    Args:
        child: the partitioner's process.
        wanted: the program.
        name: its name in errors.

    Raises:
        FlintError: the partitioner fails, or goes over a limit.
    """
    return _partitioned(child.run(wanted), remarks(child.log()), name)


def _partitioned(proto: bytes, remarked: Mapping[str, int], name: str) -> CompiledProgram:
    listing = cache(partial(listing_of_hlo, proto))  # asked for by each call of the program
    program = CompiledProgram(read_hlo(proto, name), (proto, ".hlo.pb"), listing)
    program.module.warnings |= remarked
    return program


def optimized(child: Optimizer, wanted: Compilation, name: str) -> CompiledProgram:
    """A program as compiled by a backend's compiler.

    Args:
        child: the compiler's process.
        wanted: the program.
        name: its name in errors.

    Raises:
        FlintError: the compiler fails, or goes over a limit.
    """
    compiled = child.run(wanted)
    proto = compiled.module
    text = (compiled.text, ".hlo") if 0 < len(compiled.text) <= MAX_BYTES else None
    saved = proto, ".hlo.pb"
    program = CompiledProgram(read_hlo(proto, name), saved, lambda: text, compiled.report)
    program.module.warnings |= _too_large(compiled) | _parts_of_chips(compiled.report.target)
    program.module.warnings |= _added(compiled) | remarks(child.log())
    return program


def _too_large(compiled: Compiled) -> dict[str, int]:
    """A warning if the program does not fit the target's memory."""
    report, reason = compiled.report, compiled.too_large
    if not reason:
        needed = report.needed_bytes
        if needed is None or needed <= report.memory:
            return {}
        reason = f"the compiler plans {needed / 2**30:.1f} GiB of memory per device"
    return {
        f"{reason}; {report.target} has {report.memory / 2**30:.1f} GiB: the program would not run "
        "there": 1
    }


def _added(compiled: Compiled) -> dict[str, int]:
    """A warning for options that the compiler needed."""
    return {
        f"compiled with {name}={str(value).lower()}: without it, {compiled.report.target}'s "
        "compiler fails if there is no GPU to tune products on. Products are library calls": 1
        for name, value in compiled.added.items()
    }


def _parts_of_chips(target: str) -> dict[str, int]:
    """A warning if a device is less than the unit that systems describe."""
    devices = table()[target].row.get("devices_per_chip", 1)
    if devices == 1:
        return {}
    text = (
        f"a device of target {target} is one of {devices} on a chip, and systems describe whole "
        "chips: durations come out too short"
    )
    return {text: 1}
