"""Ops that move, make or rename data without arithmetic.

The idea: three tables by role.  An ALIAS op is a view: nothing moves, where XLA's cost analysis
counts a copy (reshape, bitcast_convert, optimization_barrier, mhlo.copy) or a table of pointers
(tuple).  A GENERATE op writes its result.  A MOVEMENT op reads and writes; slices, gathers and
updates count only what they access, not the whole buffer, as in XLA.

A transpose that only moves dims of size 1, or a broadcast that only adds such dims, is a view in
row-major layout and moves nothing.  A constant array is in memory: its users read it, no op writes
it.  A splat has one value, which is in its users' code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flint.graph.tensor_types import TensorType
from flint.graph.work import NO_WORK, Role, Work
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.bytes import alias, boundary, generate, nothing, total_bytes
from flint.stablehlo.rules.forms import splat
from flint.stablehlo.rules.names import names
from flint.stablehlo.rules.rule import Rule


def _keeps_order(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> bool:
    """Whether a transpose or broadcast keeps the elements in place in row-major layout."""
    if not ins or ins[0].elements != outs[0].elements or ins[0].dynamic:
        return False
    shape = ins[0].shape
    if op.name.endswith("transpose"):
        kept = [dim for dim in op.attr("dimensions", ()) if shape[dim] != 1]
    else:
        kept = [to for dim, to in enumerate(op.attr("dimensions", ())) if shape[dim] != 1]
    return kept == sorted(kept)


def _unless_view(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    return (alias if _keeps_order(op, ins, outs) else boundary)(op, ins, outs)


def _stays(op: Op, _ins: Sequence[TensorType], _outs: Sequence[TensorType]) -> bool:
    """Whether a copy is only a name: so before a backend has decided which copies are made."""
    return not op.attr("made", False)


def _copy(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    return (alias if _stays(op, ins, outs) else boundary)(op, ins, outs)


def _taken(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Reads its result's size and the indices: gather and similar ops."""
    taken = outs[0].bytes
    return Work((), taken + total_bytes(ins[1:]), taken)


def _dynamic_slice(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Reads its result's size and one index, as XLA counts scalar indices."""
    taken = outs[0].bytes
    return Work((), taken + total_bytes(ins[1:2]), taken)


def _static_slice(_op: Op, _ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    taken = outs[0].bytes
    return Work((), taken, taken)


def _dynamic_update_slice(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Reads the update and one index, writes the update; the rest stays where it is."""
    update = ins[1].bytes
    return Work((), total_bytes(ins[1:3]), update, max(0, outs[0].bytes - update))


def _is_splat(op: Op) -> bool:
    """Whether all elements of a constant have one value."""
    value = op.attr("value", None)
    return value is not None and np.ndim(value) == 0


def _value(op: Op) -> tuple[bool, int | None]:
    return _is_splat(op), splat(op)


def _constant(op: Op, _ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """The buffer that an array is in; nothing for one value."""
    return NO_WORK if _is_splat(op) else alias(op, (), outs)


def _outfeed(_op: Op, ins: Sequence[TensorType], _outs: Sequence[TensorType]) -> Work:
    return Work((), total_bytes(ins), 0)


def _aliases(*names: str) -> dict[str, Rule]:
    return {name: Rule(Role.ALIAS, alias) for name in names}


def _copies(*names: str) -> dict[str, Rule]:
    return {name: Rule(Role.MOVEMENT, boundary) for name in names}


RULES: dict[str, Rule] = {
    **_aliases(
        *names("after_all bitcast_convert dynamic_reshape get_tuple_element optimization_barrier"),
        *names("reshape set_dimension_size tuple"),
    ),
    "constant": Rule(Role.GENERATE, _constant, types_only=False, kind=_value),
    "create_token": Rule(Role.GENERATE, nothing),
    "dynamic_iota": Rule(Role.GENERATE, generate),
    "get_dimension_size": Rule(Role.GENERATE, generate),
    "iota": Rule(Role.GENERATE, generate),
    "partition_id": Rule(Role.GENERATE, generate),
    "replica_id": Rule(Role.GENERATE, generate),
    **_copies(*names("broadcast concatenate dynamic_broadcast_in_dim")),
    "broadcast_in_dim": Rule(Role.MOVEMENT, _unless_view, types_only=False, view=_keeps_order),
    **_copies(*names("dynamic_pad pad reverse")),
    "transpose": Rule(Role.MOVEMENT, _unless_view, types_only=False, view=_keeps_order),
    "mhlo.copy": Rule(Role.MOVEMENT, _copy, types_only=False, view=_stays),
    "slice": Rule(Role.MOVEMENT, _static_slice),
    "real_dynamic_slice": Rule(Role.MOVEMENT, _taken),
    "dynamic_slice": Rule(Role.MOVEMENT, _dynamic_slice),
    "gather": Rule(Role.MOVEMENT, _taken),
    "dynamic_gather": Rule(Role.MOVEMENT, _taken),
    "torch_index_select": Rule(Role.MOVEMENT, _taken),
    "infeed": Rule(Role.MOVEMENT, generate),
    "outfeed": Rule(Role.MOVEMENT, _outfeed),
    "dynamic_update_slice": Rule(Role.UPDATE, _dynamic_update_slice),
}
