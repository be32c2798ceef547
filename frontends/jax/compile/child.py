"""The child process that compiles for a target: ``python -m flint.frontends.jax.compile.child``.

The idea: XLA and its plugins can abort or hang, so they run where they can be stopped.  The
arguments are target, mesh and the folder for requests.  The devices are created while the parent
still traces; then the child waits for requests.  The results are the compiled module, its text and,
written last, the compiler's report.

libtpu refuses a program that does not fit the memory of its chip, after it has optimised it; then
the result is the module that it dumped, and its message.  XLA's GPU compiler cannot try out tiles
of Triton products without a GPU, and finds no fitting ones for some; then products are library
calls.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flint.errors import UsageError
from flint.frontends.jax.internals import compile_only, questions, xla
from flint.frontends.jax.requests import Compilation, compilations
from flint.frontends.jax.saved_requests import as_lowered
from flint.frontends.jax.targets.table import CompileTarget, table
from flint.host.child_processes import end_with_parent
from flint.host.requests import REASON

#: Names of the result's files.
MODULE, TEXT, REPORT = "module.pb", "module.hlo", "report.json"

#: Subfolder for the compiler's dumps.
DUMP = "dump"
#: The beginning of XLA's message for a program that does not fit.
_NO_MEMORY = "RESOURCE_EXHAUSTED"

#: Part of XLA's message when it has found no tiles for a Triton product.
_NO_TILES = "Couldn't find output tile sizes"
#: The option without which products are library calls, and its source.
_TRITON = "xla_gpu_enable_triton_gemm"

#: TPUs take more parameters than this as one tuple, as in JAX.
_MANY_PARAMETERS = 2000


def main(name: str, mesh: str, folder: Path) -> None:
    """Compile the modules of requests."""
    target = table()[name]
    shape = [int(size) for size in mesh.split(",")]
    try:
        if target.platform == "tpu":
            devices = compile_only.tpu_devices(target, shape)
            numbers = np.array([device.id for device in devices])
        else:
            devices = compile_only.gpu_devices(target, math.prod(shape))
            numbers = np.arange(len(devices))
    except UsageError as error:
        sys.exit(f"{REASON}{error}")
    plugin = compile_only.load_plugin(target.platform)
    tools = compile_only.tools(folder) if target.platform == "cuda" else None
    questions.register(folder, plugin)
    for place, found in compilations(folder):
        request = as_lowered(found)
        if request is None:
            continue
        xla.split_by_batch(request.by_batch, plugin)
        options = xla.partitioned(numbers, request)
        if tools is not None:
            options.executable_build_options.debug_options.xla_gpu_cuda_data_dir = str(tools)
        _compile(target, devices, options, place, request)
    # Plugins of many devices take long to leave in order, and sometimes hang.
    os._exit(0)


def _compile(
    target: CompileTarget, devices: Sequence[Any], options: Any, place: Path, request: Compilation
) -> None:
    """Compile one module; without a result, the reason is on stderr."""
    if target.platform == "tpu" and request.parameters > _MANY_PARAMETERS:
        options.parameter_is_tupled_arguments = True
    compile_only.set_options(options, request.options)
    if target.platform == "tpu":
        compile_only.set_dump(options, place / DUMP)
    try:
        try:
            executable = compile_only.compile_for(devices, request.module, options)
            added: dict[str, Any] = {}
        except Exception as error:  # whatever a compiler raises
            if _NO_TILES not in str(error) or _TRITON in request.options:
                raise
            added = {_TRITON: False}
            compile_only.set_options(options, {**request.options, **added})
            executable = compile_only.compile_for(devices, request.module, options)
        compiled, text = compile_only.module_of(executable)
        report: dict[str, Any] = {
            "added": added,
            "memory": compile_only.memory_of(executable),
            "cost": compile_only.cost_of(executable, compiled),
        }
    except Exception as error:
        reason = " ".join(str(error).split())
        compiled, text = _dumped(place / DUMP) if _NO_MEMORY in reason else b"", ""
        if not compiled:
            sys.stderr.write(f"\n{REASON}{reason}\n")
            return
        report = {"too_large": reason}
    (place / MODULE).write_bytes(compiled)
    (place / TEXT).write_text(text, encoding="utf-8")
    (place / f".{REPORT}").write_text(json.dumps(report))
    (place / f".{REPORT}").rename(place / REPORT)


def _dumped(folder: Path) -> bytes:
    """The optimised module that the compiler has dumped, an ``HloProto``; empty without one."""
    found = next(folder.glob("*.after_optimizations.hlo.pb"), None)
    return found.read_bytes() if found is not None else b""


if __name__ == "__main__":
    end_with_parent()
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
