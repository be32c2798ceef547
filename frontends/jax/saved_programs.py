"""A saved program at the optimized level, from a GPU's or TPU's own compiler.

The idea: the file has been read into records, which give its number of devices and whether it is
global or per device; the compiler's process gets its bytes unchanged and converts them into the
form of JAX's lowered programs (``compile/saved_module.py``).

    program = compiled(content, module, (64, 8), "h100", {})
    program.module, program.compiled
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flint.capturing.request import MEMORY_LIMIT, TIME_LIMIT
from flint.errors import FlintError, UsageError
from flint.frontends.jax.compile.target_compiler import Optimizer
from flint.frontends.jax.compiled import CompiledProgram, optimized
from flint.frontends.jax.requests import Compilation, Form
from flint.frontends.saved.kinds import Kind, detect
from flint.host.child_processes import Limits
from flint.host.packed_files import Content, unpacked
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
    name = str(content.path)
    check(module, name)
    data, world = _plain(content), world_of(module, Mesh(tuple(shape)))
    request = Compilation(
        data,
        form=_FORMS[detect(data)],
        options=dict(options),
        per_device=world.partitions if module.partitioned else 1,
        replicas=world.replicas,
        donors=sorted({*module.donated, *module.donors}),
    )
    with Optimizer(target, shape, Limits(TIME_LIMIT, MEMORY_LIMIT)) as optimizer:
        try:
            found = optimized(optimizer, request, name)
        except UsageError:
            raise
        except FlintError as error:
            raise FlintError(f"{name}: {error}") from error
    made = found.module
    made.donors = module.donors
    if len(made.functions["main"].args) == len(module.functions["main"].args):
        made.input_names, made.input_roles = module.input_names, module.input_roles
    return found


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


def _plain(content: Content) -> bytes:
    """The file's bytes, unpacked."""
    data = content.data
    for _ in range(2):
        if detect(data) is Kind.GZIP:
            data = unpacked(data, str(content.path), MEMORY_LIMIT // 4)
    return data
