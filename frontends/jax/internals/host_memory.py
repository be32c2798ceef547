"""Copies between the device's memory and the host's, which stay in a partitioned program.

The idea: ``jax.device_put`` with a memory kind, a policy that offloads values for the backward
pass, and ``out_shardings`` with a memory kind become annotations with side effects, which XLA's
partitioner for CPUs cannot split.  XLA's compilers for GPUs and TPUs represent them before
partitioning as separate elementwise ops, ``MoveToHost`` and ``MoveToDevice``; here a step is
lowered to these directly.

    rules = (rule(),)       # for ``mlir.LoweringParameters``
    with results_moved():   # while JAX lowers
        ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax._src import dispatch
from jax._src.custom_partitioning_sharding_rule import (
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from flint.graph.transfers import TO_DEVICE, TO_HOST

#: JAX's names of the host's memories.
_HOST_KINDS = ("pinned_host", "unpinned_host")


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


@contextmanager
def results_moved() -> Iterator[None]:
    """Within it, results that ``out_shardings`` place in the other memory are moved by such ops."""
    lowering: Any = mlir
    annotate = lowering.wrap_with_memory_kind
    lowering.wrap_with_memory_kind = _result
    try:
        yield
    finally:
        lowering.wrap_with_memory_kind = annotate


def _result(*arguments: Any) -> Any:
    """A result in the memory of a given kind.

    Args:
        arguments: of JAX's own function: in newer versions a context, then the result, the kind and
            a type.  Whether the type's memory is that of the traced function's result or the
            wanted one depends on the version, so it is not used.
    """
    value, kind, _ = arguments[-3:]
    target = TO_HOST if kind in _HOST_KINDS else TO_DEVICE
    return value if _lies_on_host(value) == (target == TO_HOST) else _copied(value, target)


def _lies_on_host(value: Any) -> bool:
    """Whether a value of the lowered function is an argument or a copy in the host's memory."""
    if isinstance(value.owner, ir.Block):
        function: Any = value.owner.owner
        stated = ir.DictAttr(function.arg_attrs[ir.BlockArgument(value).arg_number])
        name = "mhlo.memory_kind"
        return name in stated and ir.StringAttr(stated[name]).value in _HOST_KINDS
    made = value.owner.opview
    if isinstance(made, stablehlo.CustomCallOp):
        return ir.StringAttr(made.call_target_name).value == TO_HOST
    # A statement about the sharding of a value stands between it and its use.
    return made.OPERATION_NAME == "sdy.sharding_constraint" and _lies_on_host(made.operands[0])


def _on_host(value: Any) -> bool:
    return _is_of_host(value.aval)


def _is_of_host(aval: Any) -> bool:
    return getattr(aval, "memory_space", None) is jax.memory.Space.Host


def _lower(ctx: Any, *values: Any, devices: Any, srcs: Any, copy_semantics: Any) -> Any:
    return [
        value
        if before.memory_space == after.memory_space
        else _copied(value, TO_HOST if _is_of_host(after) else TO_DEVICE)
        for value, before, after in zip(values, ctx.avals_in, ctx.avals_out, strict=True)
    ]


def _copied(value: Any, target: str) -> Any:
    """The op that copies a value to the other memory."""
    kind = value.type
    made = stablehlo.CustomCallOp(
        [kind],
        [value],
        call_target_name=ir.StringAttr.get(target),
        has_side_effect=ir.BoolAttr.get(False),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(""),
    )
    rank = ir.RankedTensorType(kind).rank
    if rank:  # a dim of the result is split as that of the operand
        names = " ".join(f"d{number}" for number in range(rank))
        same = str_to_sdy_sharding_rule(f"{names} -> {names}")
        made.attributes["sdy.sharding_rule"] = sdy_sharding_rule_to_mlir(same, [kind], [kind])
    return made.results[0]
