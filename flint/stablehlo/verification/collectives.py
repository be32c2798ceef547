"""Checks of collectives: what a rank gets follows from what it gives and from its group."""

from __future__ import annotations

from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op, ReplicaGroups
from flint.stablehlo.verification.kinds import (
    Check,
    Types,
    Unfit,
    fixed,
    paired,
    require,
    same_rank,
    same_shape,
)


def _alike(_op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) > 0, "has no operand")
    paired(ins, outs)
    for one, other in zip(ins, outs, strict=True):
        same_shape(one, other)


def _permute(op: Op, ins: Types, outs: Types) -> None:
    # In place, it has as many buffers, and indices in both, behind what it sends.
    in_place = len(ins) >= 2 * len(outs) + 2
    _alike(op, ins[: len(outs)] if in_place else ins, outs)


def _all_to_all(_op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) > 0, "has no operand")
    paired(ins, outs)
    for one, other in zip(ins, outs, strict=True):
        same_rank(one, other)
        as_much = one.elements == other.elements
        require(as_much or not fixed(one, other), f"has the operand {one} for the result {other}")


def _gathered(op: Op, ins: Types, outs: Types) -> None:
    _along_one_dim(op, ins, outs, "result")


def _scattered(op: Op, ins: Types, outs: Types) -> None:
    _along_one_dim(op, outs, ins, "operand")


def _along_one_dim(op: Op, parts: Types, wholes: Types, larger: str) -> None:
    """Check that each whole is a part of each member of a group, side by side along one dim."""
    require(len(parts) > 0 and len(wholes) > 0, "has no operand or no result")
    paired(parts, wholes)
    members = _members(op)
    scalars = [part for part in parts if not part.shape]  # PyTorch/XLA's tokens, beside tensors
    require(len(scalars) < len(parts), f"has {parts[0]}, which has no dim")
    for part, whole in zip(parts, wholes, strict=True):
        same_rank(part, whole)
        if not part.shape:
            continue
        if not fixed(part, whole):
            continue
        text = f"has the {larger} {whole} for parts {part}"
        factors = _factors(part, whole, text)
        require(len(factors) <= 1, text)
        if members is not None and min(whole.shape):
            found = factors[0] if factors else 1
            require(found == members, f"{text} of {members} ranks")


def _factors(part: TensorType, whole: TensorType, text: str) -> list[int]:
    """How many times as large a whole is, along each dim where that differs."""
    factors = []
    for size, all_of_it in zip(part.shape, whole.shape, strict=True):
        if size != all_of_it:
            if not size or not all_of_it or all_of_it % size:
                raise Unfit(text)
            factors.append(all_of_it // size)
    return factors


def _members(op: Op) -> int | None:
    """Ranks of each group; None where the op alone does not say it, or groups differ."""
    groups: ReplicaGroups | None = op.attr("groups")
    # With a channel, groups of replicas have all of their partitions as well.
    of_replicas = op.attr("channel_id", 0) > 0 and not op.attr("use_global_device_ids", False)
    if groups is None or of_replicas:
        return None
    if groups.iota is not None:
        return groups.iota[0][1]
    if groups.table is None or not groups.table.size or (groups.table < 0).any():
        return None
    return int(groups.table.shape[1])


CHECKS: dict[str, Check] = {
    "all_gather": _gathered,
    "all_reduce": _alike,
    "all_to_all": _all_to_all,
    "collective_broadcast": _alike,
    "collective_permute": _permute,
    "mhlo.all_to_all": _all_to_all,
    "reduce_scatter": _scattered,
}
