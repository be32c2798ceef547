"""Attributes of collectives: groups, pairs, channel.

The idea: many collectives share one list of groups or pairs, which may have an entry per rank;
equal ones are read once per module and are one object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flint.stablehlo.read.bindings import ir, stablehlo
from flint.stablehlo.read.elements import integer_array
from flint.stablehlo.read.records import ReplicaGroups

#: XLA's conversion keeps the tuple form of all-to-all, which StableHLO lacks.
WITH_GROUPS = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "mhlo.all_to_all",
    "reduce_scatter",
)
WITH_PAIRS = ("collective_permute", "recv", "send")


def collective(op: Any, reader: Any) -> dict[str, Any]:
    """Groups and channel of a collective."""
    groups = replica_groups(op.attributes["replica_groups"], reader)
    return _channel(op.attributes) | {"groups": groups}


def point_to_point(op: Any, reader: Any) -> dict[str, Any]:
    """Source-target pairs and channel of a permute, send or receive."""
    attributes = op.attributes
    decoded = _channel(attributes)
    if "source_target_pairs" in attributes:
        written = attributes["source_target_pairs"]
        if written not in reader.pairs:
            reader.pairs[written] = integer_array(written).reshape(-1, 2)
        decoded["pairs"] = reader.pairs[written]
    if "is_host_transfer" in attributes:
        decoded["is_host_transfer"] = bool(ir.BoolAttr(attributes["is_host_transfer"]).value)
    return decoded


def replica_groups(attribute: Any, reader: Any) -> ReplicaGroups:
    """Replica groups of either form of the StableHLO attribute; equal ones are one object."""
    known: ReplicaGroups | None = reader.groups.get(attribute)
    if known is None:
        known = reader.groups[attribute] = _replica_groups(attribute, reader)
    return known


def _replica_groups(attribute: Any, reader: Any) -> ReplicaGroups:
    if isinstance(attribute, ir.DenseIntElementsAttr):
        table = integer_array(attribute)
        return ReplicaGroups(table=table) if table.size else ReplicaGroups()
    groups: Any = stablehlo.ReplicaGroupMeshAxesAttr(attribute)
    device_ids: tuple[int, ...] = ()
    if isinstance(groups.mesh, ir.FlatSymbolRefAttr):
        axes = reader.meshes[str(groups.mesh.value)]
        device_ids = reader.device_orders.get(str(groups.mesh.value), ())
    else:
        mesh: Any = stablehlo.MeshAttr(groups.mesh)
        axes = tuple((axis.name, axis.size) for axis in map(stablehlo.MeshAxisAttr, mesh.axes))
        device_ids = tuple(mesh.device_ids or ())
    along: list[tuple[str, tuple[int, int] | None]] = []
    for item in groups.axes:
        axis: Any = stablehlo.AxisRefAttr(item)
        info = axis.sub_axis_info
        if info is None:
            along.append((axis.name, None))
        else:
            sub_axis = stablehlo.SubAxisInfoAttr(info)
            along.append((axis.name, (sub_axis.pre_size, sub_axis.size)))
    entry: tuple[Any, ...] = (axes, tuple(along))
    if device_ids:
        entry = (*entry, np.array(device_ids, dtype=np.int64))
    return ReplicaGroups(mesh=entry)


def _channel(attributes: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = {"channel_id": 0, "use_global_device_ids": False}
    if "channel_handle" in attributes:
        decoded["channel_id"] = stablehlo.ChannelHandle(attributes["channel_handle"]).handle
    if "use_global_device_ids" in attributes:
        decoded["use_global_device_ids"] = True
    return decoded
