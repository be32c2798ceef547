"""Elementwise ops: one application per result element.

The idea: two tables of names, because an elementwise op's work is its result's number of elements
on one of two units.  Which op is transcendental is XLA's choice (``HloCostAnalysis``), which counts
every other one, integer and boolean ops, ``convert``, ``select`` and complex arithmetic included,
as one FLOP; the item's dtype, that of the operands, lets a cost model weigh them.

CHLO's special functions (``chlo.lgamma`` ...) count as one transcendental per element although XLA
expands some of them into polynomials of up to hundreds of FLOPs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from flint.graph.tensor_types import TensorType
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.names import names
from flint.stablehlo.rules.rule import Rule, WorkRule

_TRANSCENDENTAL = names(
    "atan2 cbrt cosine exponential exponential_minus_one log log_plus_one logistic power rsqrt",
    "sine sqrt tan tanh",
    "chlo._asin_acos_kernel chlo.acos chlo.acosh chlo.asin chlo.asinh chlo.atan chlo.atanh",
    "chlo.bessel_i1e chlo.broadcast_atan2 chlo.broadcast_polygamma chlo.broadcast_power",
    "chlo.broadcast_zeta chlo.cosh chlo.digamma chlo.erf chlo.erf_inv chlo.erfc chlo.lgamma",
    "chlo.polygamma chlo.sinh chlo.tan chlo.zeta",
    "mhlo.acos mhlo.acosh mhlo.asin mhlo.asinh mhlo.atanh mhlo.cosh mhlo.erf mhlo.sinh",
)

_ARITHMETIC = names(
    "abs add and ceil clamp compare complex convert count_leading_zeros divide floor imag",
    "is_finite maximum minimum multiply negate not or popcnt real reduce_precision remainder",
    "round_nearest_afz round_nearest_even select shift_left shift_right_arithmetic",
    "shift_right_logical sign subtract uniform_dequantize uniform_quantize xor",
    "chlo.broadcast_add chlo.broadcast_and chlo.broadcast_compare chlo.broadcast_complex",
    "chlo.broadcast_divide chlo.broadcast_maximum chlo.broadcast_minimum chlo.broadcast_multiply",
    "chlo.broadcast_next_after chlo.broadcast_or chlo.broadcast_remainder chlo.broadcast_select",
    "chlo.broadcast_shift_left chlo.broadcast_shift_right_arithmetic",
    "chlo.broadcast_shift_right_logical chlo.broadcast_subtract chlo.broadcast_xor",
    "chlo.conj chlo.is_inf chlo.is_neg_inf chlo.is_pos_inf chlo.mulhi chlo.next_after chlo.square",
    "mhlo.mulhi mhlo.stochastic_convert",
)

#: Ops whose first operand is a predicate: the item's dtype is the result's.
_PREDICATED = frozenset(("select", "chlo.broadcast_select"))


def elementwise(unit: Unit) -> WorkRule:
    """One application per result element on ``unit``, in the first operand's dtype."""

    def work(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
        out = outs[0]
        read = 0
        for tensor in ins:
            read += tensor.bytes
        return Work((WorkItem(unit, ins[0].dtype, prod(out.shape)),), read, out.bytes)

    return work


def _predicated(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    out = outs[0]
    read = ins[0].bytes + ins[1].bytes + ins[2].bytes
    return Work((WorkItem(Unit.VECTOR, out.dtype, prod(out.shape)),), read, out.bytes)


#: Op name -> unit on which one application runs: what reductions and maps count in their regions.
UNIT_OF: dict[str, Unit] = {
    **dict.fromkeys(_TRANSCENDENTAL, Unit.TRANSCENDENTAL),
    **dict.fromkeys(_ARITHMETIC, Unit.VECTOR),
}

_BY_UNIT = {unit: elementwise(unit) for unit in (Unit.VECTOR, Unit.TRANSCENDENTAL)}

RULES: dict[str, Rule] = {
    name: Rule(Role.ELEMENTWISE, _predicated if name in _PREDICATED else _BY_UNIT[unit])
    for name, unit in UNIT_OF.items()
}
