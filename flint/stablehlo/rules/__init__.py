"""The table of op rules: what every op is to a compiler and what work it does.

The idea: one entry per op name (see ``rule.py``), assembled from one module per kind of op.
``rule_for`` also looks up a custom call's target; an unknown op is one kernel with boundary bytes,
and is marked as unknown so that the walker can warn.

    rule, known = rule_for(op)
    work = rule.work(op, operand_types, result_types)

**Conventions are those of XLA's cost analysis** (``HloCostAnalysis``).  What differs, and why:

    op                                     XLA                     here
    reshape, bitcast_convert,              a copy (bitcast_convert nothing moves: the result is the
    optimization_barrier, mhlo.copy        also 1 FLOP/element)    operand's buffer (a copy that a
                                                                   backend has left is one)
    tuple, results of variadic ops         8 bytes per pointer     no pointer tables
    transpose of size-1 dims only, and     a copy                  nothing moves
    broadcast that adds only such dims
    transpose                              free where the caller's boundary bytes (row-major)
                                           layout makes it one
    batch_norm_*                           0 FLOPs (left open)     the specification's definition
    top_k                                  0 FLOPs                 a selection's comparisons
    ragged_dot                             a plain dot's formula   2 x left elements x n
    reduce_window that is a long running   n windows of n          a scan: 2 (n - 1) applications
    sum
    scan                                   fewer than every step   body x elements scanned
    all_reduce                             1 FLOP per element      0: what travels is the walker's
    chlo special functions                 their expansion         1 transcendental per element
    broadcast_in_dim of a size-1 dim       two broadcasts and a    operand read, result written
                                           reshape
    clamp, select with scalar operands     broadcasts them         scalars read
    iota, splat constant                   1-d iota or scalar,     iota: result written;
                                           then a broadcast        constant: nothing
    constant array                         nothing                 aliased: stands in memory
    sub-byte types                         a byte per element      packed (``tensor_types``)
    custom_call                            -1                      library formulas, else a flag
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role, Work
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules import (
    collectives,
    contraction,
    control,
    dialects,
    elementwise,
    kernels,
    movement,
    reduction,
)
from flint.stablehlo.rules.bytes import boundary
from flint.stablehlo.rules.custom_calls import (
    custom_call_flops_known,
    custom_call_rule,
    is_known_custom_call,
)
from flint.stablehlo.rules.rule import Rule

__all__ = ["RULES", "Rule", "flops_known", "is_known_custom_call", "rule_for", "work_of"]

_OWN = (
    elementwise.RULES
    | contraction.RULES
    | movement.RULES
    | reduction.RULES
    | kernels.RULES
    | collectives.RULES
    | control.RULES
    | {"custom_call": Rule(Role.OPAQUE, boundary, types_only=False)}
)

#: Op name -> rule, for every op of StableHLO, CHLO, MHLO and Shardy.
RULES: dict[str, Rule] = dialects.twins(_OWN) | _OWN | dialects.RULES

_UNKNOWN = Rule(Role.OPAQUE, boundary)
_CUSTOM_CALLS = frozenset(("custom_call", "mhlo.custom_call"))


def rule_for(op: Op) -> tuple[Rule, bool]:
    """The rule of ``op``, and whether the op is known.

    A custom call is looked up by its target, also where the target names an op (``mhlo.topk``,
    ``chlo.erf``: the portable spelling of ops that StableHLO lacks).  For an unknown op the rule is
    one kernel that reads its operands and writes its results; the second value is False.
    """
    name = op.name
    if name in _CUSTOM_CALLS:
        return _custom_call(op)
    rule = RULES.get(name)
    return (_UNKNOWN, False) if rule is None else (rule, True)


def _custom_call(op: Op) -> tuple[Rule, bool]:
    target = op.attr("target", "")
    named = _named(target)
    if named is not None:
        return named, True
    return custom_call_rule(target), is_known_custom_call(target)


def _named(target: str) -> Rule | None:
    """The rule of the op that a target names, uncached: its name is the custom call's."""
    dialect, dot, _ = target.partition(".")
    if not dot or dialect not in ("mhlo", "chlo", "stablehlo", "sdy"):
        return None
    rule = RULES.get(target.removeprefix("stablehlo."))
    return rule and Rule(rule.role, rule.work, types_only=False)


def flops_known(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> bool:
    """Whether an op's FLOPs are known: False for kernels whose arithmetic cannot be seen from
    outside (Triton kernels, callbacks, unlisted targets), so that a summary can name them."""
    if op.name in _CUSTOM_CALLS:
        target = op.attr("target", "")
        return _named(target) is not None or custom_call_flops_known(op, ins, outs)
    return op.name in RULES


def work_of(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """The work of ``op`` by its rule.

    Raises:
        FlintError: the op is inconsistent (too few operands, dims that do not exist).
    """
    try:
        return rule_for(op)[0].work(op, ins, outs)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        name = op.attr("target", op.name) if op.name == "custom_call" else op.name
        shown = ", ".join(map(str, ins))
        raise FlintError(f"{name}({shown}) does not have the form of that op: {error}") from error
