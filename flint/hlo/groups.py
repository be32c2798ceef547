"""Device lists of HLO collectives -> ``ReplicaGroups``.

The idea: HLO writes groups as lists, as a reshaped and transposed iota (``[2,4]<=[4,2]T(1,0)``), or
as axes of a mesh; each is kept in its own form, checked for consistency, and parsed once per
distinct content.

    [2,4]<=[4,2]T(1,0)  ->  ReplicaGroups(iota=((2, 4), (4, 2), (1, 0)))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.hlo import hlo_pb2 as pb
from flint.stablehlo.read.records import ReplicaGroups

#: The most devices in groups; a file with more is damaged.
MAX_DEVICES = 2**26


def groups_of_list(data: bytes) -> ReplicaGroups:
    """Groups of a ``CollectiveDeviceListProto``: a table, or (older writers) an iota.

    Raises:
        ValueError: an iota that contradicts itself.
    """
    proto = pb.CollectiveDeviceListProto.FromString(data)
    if proto.HasField("iota_replica_group_list"):
        return _iota(proto.iota_replica_group_list)
    return groups_of_table(proto.replica_groups)


def groups_of_table(groups: Sequence[pb.ReplicaGroup]) -> ReplicaGroups:
    """Groups written out one by one; ragged rows are padded with -1.

    Raises:
        ValueError: the padded table would exceed ``MAX_DEVICES`` entries, or a negative device.
    """
    rows = [list(group.replica_ids) for group in groups]
    width = max(map(len, rows), default=0)
    if width == 0:
        return ReplicaGroups()
    if len(rows) * width > MAX_DEVICES:
        raise ValueError(f"{len(rows)} replica groups of up to {width} devices: damaged file?")
    if min(map(len, rows)) < width:
        if min(map(min, filter(None, rows))) < 0:
            raise ValueError("a replica group with a negative device number")
        rows = [row + [-1] * (width - len(row)) for row in rows]
    table = np.array(rows, dtype=np.int64)
    return ReplicaGroups(table=table)


def groups_of_iota(data: bytes) -> ReplicaGroups:
    """Groups of an ``IotaReplicaGroupListProto``.

    Raises:
        ValueError: sizes that do not multiply, or a permutation that is not one.
    """
    return _iota(pb.IotaReplicaGroupListProto.FromString(data))


def _iota(proto: pb.IotaReplicaGroupListProto) -> ReplicaGroups:
    shape = (proto.num_replica_groups, proto.num_devices_per_group)
    dims = tuple(proto.iota_reshape_dims)
    permutation = tuple(proto.iota_transpose_perm) or tuple(range(len(dims)))
    sizes_fit = min((*shape, *dims)) > 0 and math.prod(shape) == math.prod(dims) <= MAX_DEVICES
    if not sizes_fit or sorted(permutation) != list(range(len(dims))):
        raise ValueError(f"replica groups {list(shape)}<={list(dims)}T{permutation} are not valid")
    return ReplicaGroups(iota=(shape, dims, permutation))


def groups_of_mesh(data: bytes) -> ReplicaGroups:
    """Groups of a ``MeshAxesReplicaGroupListProto``.

    Raises:
        ValueError: an axis that the mesh lacks, a sub-axis that does not divide, or a device order
            of another size than the mesh.
    """
    proto = pb.MeshAxesReplicaGroupListProto.FromString(data)
    axes = tuple((axis.name, axis.size) for axis in proto.mesh.axes)
    devices = math.prod(size for _, size in axes)
    if not 0 < devices <= MAX_DEVICES or any(size < 1 for _, size in axes):
        raise ValueError(f"replica groups along the mesh {dict(axes)} are not valid")
    along: list[tuple[str, tuple[int, int] | None]] = []
    for reference in proto.axes:
        if not 0 <= reference.mesh_axis_index < len(axes):
            raise ValueError(f"replica groups along axis {reference.mesh_axis_index} of {axes}")
        name, size = axes[reference.mesh_axis_index]
        part: tuple[int, int] | None = None
        if reference.HasField("sub_axis_info"):
            part = (reference.sub_axis_info.pre_size, reference.sub_axis_info.size)
            if min(part) < 1 or size % math.prod(part):
                raise ValueError(f"replica groups along {part} of the axis {name!r} of size {size}")
        along.append((name, part))
    mesh: tuple[Any, ...] = (axes, tuple(along))
    order = device_order(proto.mesh, devices)
    return ReplicaGroups(mesh=mesh if order is None else (*mesh, order))


def device_order(mesh: pb.MeshProto, devices: int) -> NDArray[np.int64] | None:
    """The numbers of a mesh's devices in the order of its axes; None if it is theirs.

    Raises:
        ValueError: another number of devices than the mesh has, or no permutation.
    """
    if mesh.HasField("iota_transform"):
        dims = tuple(mesh.iota_transform.reshape_dims)
        permutation = tuple(mesh.iota_transform.transpose_perm)
        if math.prod(dims) != devices or sorted(permutation) != list(range(len(dims))):
            raise ValueError(
                f"the device order {list(dims)}T{permutation} of a mesh is not a permutation"
            )
        return np.arange(devices, dtype=np.int64).reshape(dims).transpose(permutation).reshape(-1)
    if not mesh.device_ids:
        return None
    order = np.fromiter(mesh.device_ids, np.int64, len(mesh.device_ids))
    if order.size != devices:
        raise ValueError(f"a mesh of {devices} devices with an order of {order.size}")
    return order
