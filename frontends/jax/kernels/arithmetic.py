"""The arithmetic of one equation of a kernel, by the name of its primitive.

The idea: as for ops of a program, XLA's counts: one FLOP per element and op, function evaluations
apart, 2 per multiply-add of a product, in its left operand's type.  Primitives that only move or
order are listed as such, and scalars (mostly indices) are not counted.  A primitive that is in no
list makes the kernel's count unknown.

    arithmetic_of("dot_general", parameters, operands, results)   # {(Unit.MATMUL, "bf16"): 2 m n k}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from flint.cost.op_work import gemm_flops
from flint.graph.work import Unit
from flint.stablehlo.rules.names import names

#: FLOPs by unit and StableHLO's name of the element type.
Counts = dict[tuple[Unit, str], int]

_TRANSCENDENTAL = names(
    "acos acosh approx_tanh asin asinh atan atan2 atanh cbrt cos cosh erf erf_inv erfc exp exp2 "
    "expm1 lgamma log log1p log2 logistic pow rsqrt sin sinh sqrt tan tanh"
)
_ELEMENTWISE = names(
    "abs add add_any and ceil clamp clz convert_element_type cumlogsumexp cummax cummin cumprod "
    "cumsum div eq floor ge gt imag integer_pow is_finite le lt max min mul ne neg nextafter not "
    "or population_count real reciprocal reduce_precision rem round select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign square stochastic_round sub xor"
)
_REDUCTIONS = names(
    "argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor"
)
#: Primitives that write their results to memory.
_IN_MEMORY = names("addupdate atomic_rmw")
_NOTHING = names(
    "add_dependency async_prefetch axis_index bitcast bitcast_convert_type broadcast "
    "broadcast_in_dim broadcast_to check concatenate copy debug_barrier debug_callback debug_print "
    "delay dma_start dma_wait dynamic_slice dynamic_update_slice empty expand_dims gather get "
    "get_barrier_semaphore get_global iota masked_load masked_swap max_contiguous multiple_of "
    "num_programs optimization_barrier pad program_id repeat reshape rev roll "
    "semaphore_read semaphore_signal semaphore_wait slice split squeeze stop_gradient swap tile "
    "trace_value transpose with_memory_space_constraint"
)


def arithmetic_of(
    name: str, parameters: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any]
) -> Counts | None:
    """FLOPs of an equation without equations inside; None for a primitive that is not known.

    Args:
        name: of the primitive.
        parameters: of the equation.
        operands, results: types, with ``shape`` and ``dtype`` if they have elements.
    """
    rule = _RULES.get(name)
    return None if rule is None else rule(parameters, operands, results)


def _nothing(_parameters: Any, _operands: Sequence[Any], _results: Sequence[Any]) -> Counts:
    return {}


def _elementwise(unit: Unit) -> Callable[..., Counts]:
    def rule(_parameters: Any, operands: Sequence[Any], results: Sequence[Any]) -> Counts:
        shape = results[0].shape
        typed = operands[
            -1 if len(operands) > 2 else 0
        ]  # a selection's first operand is the condition
        return {(unit, element_type(typed)): prod(shape)} if shape else {}

    return rule


def _several(ops: Callable[[int], int]) -> Callable[..., Counts]:
    """Written as several elementwise ops: how many, by the number of operands."""
    one = _elementwise(Unit.VECTOR)

    def rule(parameters: Any, operands: Sequence[Any], results: Sequence[Any]) -> Counts:
        count = one(parameters, operands[:1], results)
        return {key: flops * ops(len(operands)) for key, flops in count.items()}

    return rule


def _reduction(_parameters: Any, operands: Sequence[Any], results: Sequence[Any]) -> Counts:
    count = prod(operands[0].shape) - prod(results[0].shape)
    return {(Unit.VECTOR, element_type(operands[0])): count}


def _in_memory(_parameters: Any, operands: Sequence[Any], results: Sequence[Any]) -> Counts:
    value = results[0] if results else operands[1]  # the previous value, or the added one
    return {(Unit.VECTOR, element_type(value)): prod(value.shape)}


def _product(parameters: Mapping[str, Any], operands: Sequence[Any], _results: Any) -> Counts:
    (contracted, other), (batch, other_batch) = parameters["dimension_numbers"]
    left, right = operands[0].shape, operands[1].shape
    rows = prod(s for dim, s in enumerate(left) if dim not in (*contracted, *batch))
    columns = prod(s for dim, s in enumerate(right) if dim not in (*other, *other_batch))
    depth, batches = (prod(left[dim] for dim in dims) for dims in (contracted, batch))
    flops = gemm_flops((batches, rows, columns, depth))
    return {(Unit.MATMUL, element_type(operands[0])): flops}


def element_type(value: Any) -> str:
    """StableHLO's name of a value's element type, of NumPy's: ``bf16``, ``i1``, ``f8E4M3FN``."""
    name = str(value.dtype)
    if name == "bool":
        return "i1"
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "ui"), ("int", "i")):
        if name.startswith(long):
            width, _, rest = name.removeprefix(long).partition("_")
            return short + width + rest.upper()
    return name


_RULES: dict[str, Callable[..., Counts]] = {
    **dict.fromkeys(_NOTHING, _nothing),
    **dict.fromkeys(_TRANSCENDENTAL, _elementwise(Unit.TRANSCENDENTAL)),
    **dict.fromkeys(_ELEMENTWISE, _elementwise(Unit.VECTOR)),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_IN_MEMORY, _in_memory),
    "dot_general": _product,
    "one_minus_square": _several(lambda _: 3),  # (1 + x) (1 - x)
    "polynomial": _several(lambda operands: 2 * (operands - 2)),  # Horner's rule
}
