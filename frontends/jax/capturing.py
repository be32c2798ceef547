"""A JAX step -> a workload, at the partitioned or the logical level.

The idea: lower the step, have XLA partition it (in a child that starts while the step is traced),
read and walk what comes out.  The logical level reads the lowered program itself.

    workload = capture(request)
"""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack

from flint import registry
from flint.capturing import Request
from flint.converting import workload_of
from flint.frontends.jax.listing import listing_of, listing_of_hlo
from flint.frontends.jax.lowering import Lowered, OtherFrameworkError, lower
from flint.frontends.jax.mlir_interface import inputs_of
from flint.frontends.jax.partitioner_remarks import remarks
from flint.frontends.jax.partitioning import Partitioner
from flint.hlo.reader import read_hlo
from flint.stablehlo.reader import read_mlir
from flint.stablehlo.walker import walk
from flint.workload import Level, Workload


def capture(request: Request) -> Workload:
    """Capture a JAX step.

    Raises:
        UsageError, FlintError: as ``flint.capturing.Capture.capture``.
    """
    with ExitStack() as stack:
        partitioner = None
        if request.level is Level.PARTITIONED:
            limits = request.options
            partitioner = stack.enter_context(
                Partitioner(
                    math.prod(request.shape),
                    time_limit=limits.time_limit,
                    memory_limit=limits.memory_limit,
                )
            )
        try:
            lowered = lower(request)
        except OtherFrameworkError as other:
            stack.close()
            workload: Workload = registry.frontend(str(other))(request)
            return workload
        if partitioner is None:
            module = read_mlir(lowered.bytecode, request.name)
            saved, text = (lowered.bytecode, ".mlirbc"), listing_of(lowered.bytecode)
        else:
            proto = _partitioned(lowered, partitioner)
            module, saved = read_hlo(proto, request.name), (proto, ".hlo.pb")
            text = listing_of_hlo(proto)
            module.warnings |= remarks(partitioner.log())
    module.partitioned = request.level is not Level.LOGICAL
    module.warnings = module.warnings | lowered.warnings
    options = request.options.walk
    walked = walk(module, lowered.mesh, options)
    return workload_of(
        walked,
        module,
        options=options,
        source={
            "function": request.name,
            "framework": "jax",
            "sha256": hashlib.sha256(lowered.bytecode).hexdigest(),
        },
        saved=saved,
        listing=text,
        inputs=inputs_of(module, lowered.interface),
    )


def _partitioned(lowered: Lowered, partitioner: Partitioner) -> bytes:
    return partitioner.run(
        lowered.bytecode,
        shardy=lowered.shardy,
        inputs_free=lowered.interface.inputs_free,
        outputs_free=lowered.interface.outputs_free,
    )
