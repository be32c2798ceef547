"""The substitute for an op without a lowering: a custom call that states its FLOPs.

The idea: torch's FLOP counter has formulas for the ops that it knows, shims add theirs, an op whose
function is in Python has the products that it calls, ``flint.cost.aten_work`` has the formulas of
ops in profiles (attention over packed sequences, for one), and ``formulas.py`` those of windows and
of linear algebra.  Any other op counts one FLOP per element that it writes.  Bytes follow from the
types.  The values are not computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from flint.cost import attention_work
from flint.cost.aten_work import work_of
from flint.cost.op_work import block_scaled
from flint.frontends.torch.emission.formulas import FORMULAS
from flint.frontends.torch.lowerings import dtypes, own_ops
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.lowerings.calls import Call, Operand, Unsupported
from flint.frontends.torch.lowerings.decomposed import as_given, on_shapes
from flint.frontends.torch.modes import dispatch_mode
from flint.graph.work import Unit
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.bindings import stablehlo as hlo

_EQUAL = (
    "FLOPs as if all sequences had the same length, a lower bound: their lengths are values "
    "(cu_seqlens)"
)
#: What only the scales of blocks are.
_BLOCK_SCALE = "float8_e8m0fnu"


def substitute(call: Call, args: list[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], str]:
    """A custom call ``flint.<op>`` of an op's tensors with all of its targets as results.

    Returns:
        The values of the targets, and how the FLOPs were found, for a warning.
    """
    operands = [item.value for item in _operands([*args, *kwargs.values()])]
    flops, unit, how = _flops(call, args, kwargs)
    estimate: dict[str, Any] = {"flops": flops, "unit": unit}
    tensors = _operands([*args, *kwargs.values()])
    if any(item.dtype == _BLOCK_SCALE for item in tensors):
        estimate["dtype"] = block_scaled(dtypes.mlir_name(tensors[0].dtype))
    config = json.dumps({"custom_call_config": {"cost_estimate": estimate}})
    made = hlo.CustomCallOp(
        [build.tensor(spec.shape, spec.dtype) for spec in call.targets],
        operands,
        ir.StringAttr.get("flint." + call.name),
        backend_config=ir.StringAttr.get(config),
        has_side_effect=ir.BoolAttr.get(False),
    )
    return list(made.results), how


def _flops(call: Call, args: list[Any], kwargs: Mapping[str, Any]) -> tuple[int, str, str]:
    recorded = _of_recorded(call, args, kwargs)
    if recorded is not None and attention_work.needs_values(call.base):
        return recorded
    formula = _formula(call.name)
    if formula is not None:
        try:
            shapes = [_shapes(item) for item in args]
            named = {name: _shapes(item) for name, item in kwargs.items() if name != "out"}
            outs: Any = tuple(spec.shape for spec in call.targets)
            outs = outs[0] if len(outs) == 1 else outs
            return (
                int(formula(*shapes, **named, out_val=outs)),
                "matmul",
                "FLOPs by a formula",
            )
        except Exception:
            # The formulas are not for every overload; the estimate below is for those.
            pass
    products = _of_function(call, args, kwargs)
    if products:
        return products, "matmul", "FLOPs of the products that its function calls"
    if recorded is not None:
        return recorded
    own = FORMULAS.get(call.base)
    if own is not None:
        return round(own(call, args)), "vector", "FLOPs by a formula"
    return sum(spec.elements for spec in call.targets), "vector", "one FLOP per element assumed"


def _of_function(call: Call, args: list[Any], kwargs: Mapping[str, Any]) -> int:
    """FLOPs of the products in the Python function of an op, run on shapes; 0 if it has none.

    Such a function may write in place, and then has no lowering.
    """
    function = own_ops.function_of(call.name)
    if function is None:
        return 0
    given = [as_given(item, _meta) for item in args]
    named = {name: as_given(item, _meta) for name, item in kwargs.items()}
    found = 0

    def see(op: Any, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal found
        result = op(*args, **kwargs)
        formula = _formula(str(op).replace("_.", "."))  # in place as elsewhere
        found += int(formula(*args, **kwargs, out_val=result)) if formula is not None else 0
        return result

    try:
        with torch.no_grad(), dispatch_mode(see):
            on_shapes(call.name, function, given, named)
    except Unsupported:
        return 0
    return found


def _meta(item: Operand) -> torch.Tensor:
    return torch.empty(item.shape, dtype=dtypes.torch_dtype(item.dtype), device="meta")


def _of_recorded(
    call: Call, args: list[Any], kwargs: Mapping[str, Any]
) -> tuple[int, str, str] | None:
    """By the formulas of recorded ops: attention over packed sequences by their number and total,
    within windows by the positions that they show (torch's formulas ask for the lengths, and take
    no window); products of narrow types; None if there is none."""
    try:
        args = list(call.arguments(args, kwargs).values())
    except AttributeError:  # no op of this process
        return None
    tensors = [[(item.shape, item.dtype) for item in _operands([arg])] for arg in args]
    work = work_of(call.base, tensors, [_told(arg) for arg in args])
    if not work.items:
        return None
    products = sum(item.flops for item in work.items if item.unit is Unit.MATMUL)
    flops = products or sum(item.flops for item in work.items)
    how = _EQUAL if work.lacks else "FLOPs by a formula"
    return flops, "matmul" if products else "vector", how


def _told(arg: Any) -> Any:
    """An argument's values, as far as they are known."""
    if not isinstance(arg, Operand):
        return arg
    return None if arg.numbers is None else list(arg.numbers)


def _formula(name: str) -> Any:
    namespace, base, _ = name.split(".", 2)
    packet = getattr(getattr(torch.ops, namespace), base, None)
    return flop_registry.get(packet)


def _shapes(item: Any) -> Any:
    if isinstance(item, Operand):
        return item.shape
    if isinstance(item, tuple | list):
        return [_shapes(part) for part in item]
    return item


def _operands(items: list[Any]) -> list[Operand]:
    found: list[Operand] = []
    for item in items:
        if isinstance(item, Operand):
            found.append(item)
        elif isinstance(item, tuple | list):
            found += _operands(list(item))
    return found
