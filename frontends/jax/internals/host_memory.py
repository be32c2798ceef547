"""Copies between the device's memory and the host's, which stay in a partitioned program.

The idea: ``jax.device_put`` with a memory kind, and a policy that offloads values for the backward
pass, become annotations with side effects, which XLA's partitioner for CPUs cannot split.  XLA's
compilers for GPUs and TPUs represent them before partitioning as separate elementwise ops,
``MoveToHost`` and ``MoveToDevice``; here a step is lowered to these directly.

    rules = (rule(),)       # for ``mlir.LoweringParameters``
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import core, dispatch
from jax._src.custom_partitioning_sharding_rule import (
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from flint.graph.transfers import TO_DEVICE, TO_HOST


def moves(equation: Any) -> bool:
    """Whether a traced equation copies to or from the host's memory."""
    if equation.primitive is not dispatch.device_put_p:
        return False
    return any(
        _on_host(before) != _on_host(after)
        for before, after in zip(equation.invars, equation.outvars, strict=True)
    )


def rule() -> tuple[Any, Any]:
    """The op and how it is lowered."""
    return dispatch.device_put_p, _lower


def _on_host(value: Any) -> bool:
    return getattr(value.aval, "memory_space", None) is jax.memory.Space.Host


def _lower(ctx: Any, *values: Any, devices: Any, srcs: Any, copy_semantics: Any) -> Any:
    return [
        _moved(ctx, value, before, after) if before.memory_space != after.memory_space else value
        for value, before, after in zip(values, ctx.avals_in, ctx.avals_out, strict=True)
    ]


def _moved(ctx: Any, value: Any, before: core.ShapedArray, after: core.ShapedArray) -> Any:
    target = TO_HOST if after.memory_space is jax.memory.Space.Host else TO_DEVICE
    kind = mlir.aval_to_ir_type(ctx.module_context, after)
    made = stablehlo.CustomCallOp(
        [kind],
        [value],
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(False),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(""),
    )
    if after.ndim:  # a dim of the result is split as that of the operand
        names = " ".join(f"d{number}" for number in range(after.ndim))
        same = str_to_sdy_sharding_rule(f"{names} -> {names}")
        given = [value.type]
        made.attributes["sdy.sharding_rule"] = sdy_sharding_rule_to_mlir(same, given, [kind])
    return made.results[0]
