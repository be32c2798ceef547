"""A saved program, partitioned by XLA, or compiled by a GPU's or TPU's own compiler.

The idea: the file has been read into records, which give its number of devices and whether it is
global or per device; the process that partitions or compiles it gets its bytes unchanged and
converts them into the form of JAX's lowered programs (``saved_module.py``).

    program = partitioned(content, module, (64, 8))
    program = compiled(content, module, (64, 8), "h100", {})
    program.module, program.compiled
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from flint.capturing.request import MEMORY_LIMIT, TIME_LIMIT
from flint.errors import FlintError, UsageError
from flint.frontends.jax.compile.target_compiler import Optimizer
from flint.frontends.jax.compiled import CompiledProgram, optimized, split
from flint.frontends.jax.partition.partitioning import Partitioner
from flint.frontends.jax.requests import Compilation, Form
from flint.frontends.saved.kinds import Kind
from flint.frontends.saved.wrappers import opened
from flint.host.child_processes import Limits
from flint.host.packed_files import Content
from flint.mesh.mesh import Mesh
from flint.stablehlo.collectives.devices import world_of
from flint.stablehlo.read.records import Module

_FORMS = {
    Kind.MLIR_BYTECODE: Form.MLIR,
    Kind.VHLO: Form.MLIR,
    Kind.MLIR_TEXT: Form.MLIR,
    Kind.HLO_PROTO: Form.HLO,
    Kind.HLO_MODULE_PROTO: Form.HLO,
    Kind.HLO_TEXT: Form.HLO_TEXT,
}


#: Custom calls that only annotate.
_ANNOTATIONS = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"})


def compiled(
    content: Content,
    module: Module,
    shape: Sequence[int],
    target: str,
    options: Mapping[str, Any],
) -> CompiledProgram:
    """A saved program as XLA's compiler for a target makes it.

    Args:
        content: of the file.
        module: its records.
        shape: of the mesh.
        target: name of a target that can be compiled for here.
        options: the compiler's own, name -> value.

    Raises:
        UsageError: the program is compiled already, PyTorch recorded it, an option is wrong.
        FlintError: the compiler failed, or went over a limit.
    """
    check(module, str(content.path))
    request = _request(content, module, shape, options)
    with (
        _named(content),
        Optimizer(target, shape, Limits(TIME_LIMIT, MEMORY_LIMIT), answer=_no_answer) as optimizer,
    ):
        return _like(module, optimized(optimizer, request, str(content.path)))


def partitioned(content: Content, module: Module, shape: Sequence[int]) -> CompiledProgram:
    """A saved global program as XLA's partitioner makes it: the program of each device.

    Args:
        content: of the file.
        module: its records; its shapes are global.
        shape: of the mesh.

    Raises:
        FlintError: the partitioner failed, or went over a limit.
    """
    request = _request(content, module, shape, {})
    by_batch = _divisible_calls(module)
    limits = Limits(TIME_LIMIT, MEMORY_LIMIT)
    with (
        _named(content),
        Partitioner(math.prod(shape), limits, answer=_no_answer) as partitioner,
    ):
        found = split(partitioner, replace(request, by_batch=by_batch), str(content.path))
    found.module.partitioned = True
    return _like(module, found)


def _request(
    content: Content, module: Module, shape: Sequence[int], options: Mapping[str, Any]
) -> Compilation:
    data, kind = opened(content.data, str(content.path), MEMORY_LIMIT // 4)
    world = world_of(module, Mesh(tuple(shape)))
    return Compilation(
        data,
        form=_FORMS[kind],
        options=dict(options),
        per_device=world.partitions if module.partitioned else 1,
        replicas=world.replicas,
        donors=sorted({*module.donated, *module.donors}),
    )


def _divisible_calls(module: Module) -> list[str]:
    """The custom calls that JAX registers as divisible among devices."""
    targets = {
        str(op.attr("target", ""))
        for block in module.blocks()
        for op in block.ops
        if op.name == "custom_call"
    }
    if targets <= _ANNOTATIONS:
        return []
    # Imports jax, which takes a second.
    from flint.frontends.jax.internals.modules import batch_partitionable

    return batch_partitionable(" ".join(sorted(targets)).encode())


@contextmanager
def _named(content: Content) -> Iterator[None]:
    """Errors with the file's name."""
    try:
        yield
    except UsageError:
        raise
    except FlintError as error:
        raise FlintError(f"{content.path}: {error}") from error


def _like(module: Module, found: CompiledProgram) -> CompiledProgram:
    """A program with what its saved form knows of its inputs."""
    made = found.module
    made.donors = module.donors
    if len(made.functions["main"].args) == len(module.functions["main"].args):
        made.input_names, made.input_roles = module.input_names, module.input_roles
    return found


def _no_answer(question: bytes) -> bytes:
    """For ops with a partitioning rule in Python.

    Raises:
        FlintError: always; the compiler reports it.
    """
    raise FlintError(
        "an op has a partitioning rule in Python (custom_partitioning), which a saved program does "
        "not contain: capture the step instead"
    )


def check(module: Module, name: str) -> None:
    """Check that a compiler can process a program further.

    Raises:
        UsageError: it cannot.
    """
    if module.optimized or module.scheduled:
        raise UsageError(f"{name} is already compiled; omit --level and --target")
    if module.issues:
        raise UsageError(
            f"{name}: PyTorch recorded it kernel by kernel, and XLA cannot compile it again; omit "
            "--level and --target"
        )
