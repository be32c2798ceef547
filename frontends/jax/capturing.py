"""A JAX step -> a workload, at the logical, the partitioned or the optimized level.

The idea: lower the step, have XLA partition it or compile it for a target (in a child that starts
while the step is traced), read and walk what comes out.  The logical level reads the lowered
program itself.

    workload = capture(request)
"""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack
from dataclasses import dataclass, replace

from flint import registry
from flint.capturing.converting import program_inputs, workload_of
from flint.capturing.request import Request
from flint.errors import UsageError
from flint.frontends.jax.compile.target_compiler import Compiled, Optimizer
from flint.frontends.jax.internals.modules import batch_partitionable
from flint.frontends.jax.internals.partitioning_rules import answer
from flint.frontends.jax.internals.tracing import whole_tracebacks
from flint.frontends.jax.lower.listing import MAX_BYTES, listing_of, listing_of_hlo
from flint.frontends.jax.lower.lowering import ANY_GPU, Lowered, OtherFrameworkError, lower
from flint.frontends.jax.lower.mlir_interface import named_inputs
from flint.frontends.jax.partition.partitioning import Partitioner
from flint.frontends.jax.partition.remarks import remarks
from flint.frontends.jax.requests import Compilation
from flint.frontends.jax.targets.table import table
from flint.hlo.reader import read_hlo
from flint.host.child_processes import Limits
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import walk
from flint.workload.compiler_report import CompilerReport
from flint.workload.programs import Level
from flint.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class _Program:
    """What a level makes of a lowered step.

    Attributes:
        module: the records.
        saved: the module's bytes and file suffix.
        listing: the same for people to read.
        compiled: the compiler's report, where one has compiled it.
    """

    module: Module
    saved: tuple[bytes, str]
    listing: tuple[bytes, str] | None
    compiled: CompilerReport | None = None


def capture(request: Request) -> Workload:
    """Capture a JAX step.

    Raises:
        UsageError, FlintError: as ``flint.capturing.decorator.Capture.capture``.
    """
    if request.options.audit is not None:
        raise UsageError(
            "audit (--audit) is for PyTorch, where few ranks are recorded for all: a JAX program "
            "is every rank's; leave it out"
        )
    with whole_tracebacks(), ExitStack() as stack:
        child = _child(request)
        if child is not None:
            stack.enter_context(child)
        try:
            if request.target is None:
                lowered = lower(request)
            else:
                target = table()[request.target]
                lowered = lower(request, (target.platform,), target.capability or ANY_GPU)
        except OtherFrameworkError as other:
            stack.close()
            workload: Workload = registry.frontend(str(other))(request)
            return workload
        program = _program(child, lowered, request)
    module = program.module
    module.donors = lowered.interface.donated
    module.warnings = module.warnings | lowered.warnings
    options = request.options.walk
    per_device = request.level is not Level.LOGICAL
    walked = replace(walk(module, lowered.mesh, options), per_device=per_device)
    workload = workload_of(
        walked,
        module,
        options=options,
        source={
            "function": request.name,
            "framework": "jax",
            "sha256": hashlib.sha256(lowered.bytecode).hexdigest(),
        },
        saved=program.saved,
        listing=program.listing,
        inputs=named_inputs(program_inputs(module, walked.graph), lowered.interface),
    )
    return replace(workload, compiled=program.compiled)


def _child(request: Request) -> Partitioner | Optimizer | None:
    """The compiler of the request's level, waiting."""
    limits = Limits(request.options.time_limit, request.options.memory_limit)
    if request.level is Level.PARTITIONED:
        return Partitioner(math.prod(request.shape), limits, answer=answer)
    if request.target is not None:
        return Optimizer(request.target, request.shape, limits, answer=answer)
    return None


def _program(child: Partitioner | Optimizer | None, lowered: Lowered, request: Request) -> _Program:
    bytecode, interface, name = lowered.bytecode, lowered.interface, request.name
    if child is None:
        return _Program(read_mlir(bytecode, name), (bytecode, ".mlirbc"), listing_of(bytecode))
    wanted = Compilation(
        bytecode, lowered.shardy, interface.inputs_free, interface.outputs_free,
        batch_partitionable(bytecode), len(interface.names), request.options.compiler_options,
    )  # fmt: skip
    if isinstance(child, Partitioner):
        proto = child.run(wanted)
        program = _Program(read_hlo(proto, name), (proto, ".hlo.pb"), listing_of_hlo(proto))
    else:
        compiled = child.run(wanted)
        proto = compiled.module
        text = (compiled.text, ".hlo") if 0 < len(compiled.text) <= MAX_BYTES else None
        program = _Program(read_hlo(proto, name), (proto, ".hlo.pb"), text, compiled.report)
        program.module.warnings |= _too_large(compiled) | _parts_of_chips(compiled.report.target)
        program.module.warnings |= _added(compiled)
    program.module.warnings |= remarks(child.log())
    return program


def _too_large(compiled: Compiled) -> dict[str, int]:
    """A warning where the program does not fit the target's memory."""
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
    """A warning where a device is less than what systems describe."""
    devices = table()[target].row.get("devices_per_chip", 1)
    if devices == 1:
        return {}
    text = (
        f"a device of target {target} is one of {devices} on a chip, and systems describe whole "
        "chips: durations come out too short"
    )
    return {text: 1}
