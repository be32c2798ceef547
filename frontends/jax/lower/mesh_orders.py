"""Groups along a mesh whose devices are in another order, as groups along one that is in order.

The idea: XLA's partitioner names groups by axes of meshes, some of which are transposed.  XLA's
conversion to StableHLO drops the transposition, and with it the assignment of devices.  A
transposed mesh has the axes of a mesh that is in order: the same groups lie along axes of the
latter.

    axis a of [a=2, b=4]<=[4,2]T(1,0)       ->  axis 1 of [axis_0=4, axis_1=2]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from flint.hlo import hlo_pb2 as pb


def put_in_order(module: pb.HloModuleProto) -> bool:
    """Write a module's groups along meshes that are in order; False if that is not possible."""
    known: dict[bytes, bytes | None] = {b"": b""}
    for computation in module.computations:
        for instruction in computation.instructions:
            written = instruction.mesh_axes_replica_group_list
            if written not in known:
                known[written] = along_a_mesh_in_order(written)
            found = known[written]
            if found is None:
                return False
            if found != written:
                instruction.mesh_axes_replica_group_list = found
    return True


def along_a_mesh_in_order(data: bytes) -> bytes | None:
    """The same groups, as a ``MeshAxesReplicaGroupListProto`` of a mesh that is in order.

    Args:
        data: a ``MeshAxesReplicaGroupListProto``.

    Returns:
        None if the devices are in an order that no transposed mesh has.
    """
    proto = pb.MeshAxesReplicaGroupListProto.FromString(data)
    if proto.mesh.device_ids:
        return None
    if not proto.mesh.HasField("iota_transform"):
        return data
    sizes = [axis.size for axis in proto.mesh.axes]
    dims = list(proto.mesh.iota_transform.reshape_dims)
    order = list(proto.mesh.iota_transform.transpose_perm)
    dim_spans = dict(zip(order, _spans([dims[dim] for dim in order]), strict=True))
    axis_spans = _spans(sizes)
    along = [_part(axis_spans[item.mesh_axis_index], item) for item in proto.axes]
    cuts = sorted({cut for span in (*dim_spans.values(), *axis_spans, *along) for cut in span})
    if any(high % low for low, high in pairwise(cuts)):
        return None
    parts = list(pairwise(cuts))[::-1]  # the major ones first
    placed = [part for dim in range(len(dims)) for part in _inside(parts, dim_spans[dim])]
    made = pb.MeshAxesReplicaGroupListProto()
    for number, (low, high) in enumerate(placed):
        made.mesh.axes.add(name=f"axis_{number}", size=high // low)
    for span in along:
        for part in _inside(parts, span):
            made.axes.add(mesh_axis_index=placed.index(part))
    return made.SerializeToString()


#: Of an axis in the linear number of a place: its stride, and the stride of what lies around it.
Span = tuple[int, int]


def _spans(sizes: Sequence[int]) -> list[Span]:
    strides = [math.prod(sizes[place:]) for place in range(len(sizes) + 1)]
    return [(low, high) for high, low in pairwise(strides)]


def _part(span: Span, reference: pb.AxisRefProto) -> Span:
    """The span of an axis, or of a part of it."""
    if not reference.HasField("sub_axis_info"):
        return span
    high = span[1] // reference.sub_axis_info.pre_size
    return high // reference.sub_axis_info.size, high


def _inside(parts: Sequence[Span], span: Span) -> list[Span]:
    return [part for part in parts if span[0] <= part[0] and part[1] <= span[1]]
