"""jaxlib's functions for a whole module: its other form, and the calls that split by batch."""

from __future__ import annotations

import functools

from jax._src import xla_bridge
from jaxlib import _jax, xla_client


def stablehlo_of(proto: bytes) -> bytes | None:
    """An ``HloModuleProto`` as StableHLO, MLIR bytecode; None if XLA does not convert it."""
    try:
        converted: bytes = _jax.mlir.hlo_to_stablehlo(proto)
    except (ValueError, RuntimeError):
        return None
    return converted


def batch_partitionable(module: bytes) -> list[str]:
    """Custom calls of a module that are registered as divisible among devices.

    Only the batch dims of their operands may be split: LAPACK's, cuSOLVER's,
    and those of ``jax.ffi.register_ffi_target_as_batch_partitionable``.  XLA's partitioner
    gathers the operands of any other custom call.

    Args:
        module: MLIR bytecode, which contains names verbatim.
    """
    registered = [
        str(item.args[0])
        for item in xla_bridge._plugin_callbacks
        if isinstance(item, functools.partial)
        and item.func is xla_client.register_custom_call_as_batch_partitionable
    ]
    return [name for name in dict.fromkeys(registered) if name.encode() in module]
