"""``OpSharding`` -> XLA's text for it.

OpSharding(type=OTHER, tile_assignment_dimensions=[8, 1], iota_reshape_dims=[8])
-> "{devices=[8,1]<=[8]}"
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from flint.hlo import hlo_pb2 as pb

_TYPES = ("replicated", "maximal", "tuple", "other", "manual", "unknown", "unreduced")
_MAXIMAL, _TUPLE, _OTHER = 1, 2, 3

#: Where JAX keeps Shardy's meshes in HLO that is not partitioned yet, one mesh, and its axes.
_MESHES = "xla.sdy.meshes"
_MESH = re.compile(r"([\w.]+) = #sdy\.mesh<\[([^\]]*)\]")
_AXIS = re.compile(r'"([^"]+)"=([0-9]{1,18})')


def declared_meshes(proto: pb.HloModuleProto) -> dict[str, tuple[tuple[str, int], ...]]:
    """Shardy's meshes that the module declares: name -> ((axis, size), ...)."""
    stated = proto.frontend_attributes.map.get(_MESHES, "")
    return {
        name: tuple((axis, int(size)) for axis, size in _AXIS.findall(axes))
        for name, axes in _MESH.findall(stated)
    }


def devices_of(sharding: pb.OpSharding) -> int:
    """Over how many devices a tensor is spread; 1 if each has all of it, or one has."""
    if sharding.HasField("named_sharding"):
        named = sharding.named_sharding
        spread = any(dim.axes for dim in named.dim_shardings)
        return math.prod(axis.size for axis in named.mesh.axes) if spread else 1
    return math.prod(sharding.tile_assignment_dimensions) if sharding.type == _OTHER else 1


def _list(items: Iterable[int]) -> str:
    return ",".join(map(str, items))


def sharding_text(sharding: pb.OpSharding) -> str:
    """The sharding as XLA's HLO printer writes it (``{devices=[4,2]<=[2,4]T(1,0)}``)."""
    if sharding.HasField("named_sharding"):
        return "{" + _named(sharding.named_sharding) + "}"
    if sharding.type == _TUPLE:
        return "{" + ", ".join(sharding_text(part) for part in sharding.tuple_shardings) + "}"
    if sharding.type == _MAXIMAL:
        device = sharding.tile_assignment_devices
        return f"{{maximal device={device[0] if device else 0}}}"
    if sharding.type != _OTHER:
        kind = sharding.type
        return "{" + (_TYPES[kind] if 0 <= kind < len(_TYPES) else f"type {kind}") + "}"
    text = f"devices=[{_list(sharding.tile_assignment_dimensions)}]"
    if sharding.iota_reshape_dims:
        text += f"<=[{_list(sharding.iota_reshape_dims)}]"
        if len(sharding.iota_transpose_perm) > 1:
            text += f"T({_list(sharding.iota_transpose_perm)})"
    else:
        text += _list(sharding.tile_assignment_devices)
    if sharding.replicate_on_last_tile_dim:
        text += " last_tile_dim_replicate"
    if sharding.last_tile_dims:
        kinds = [_TYPES[k] if 0 <= k < len(_TYPES) else str(k) for k in sharding.last_tile_dims]
        text += f" last_tile_dims={{{', '.join(kinds)}}}"
    return "{" + text + "}"


def _named(sharding: pb.NamedShardingProto) -> str:
    axes = [(axis.name, axis.size) for axis in sharding.mesh.axes]

    def reference(axis: pb.AxisRefProto) -> str:
        index = axis.mesh_axis_index
        name = axes[index][0] if 0 <= index < len(axes) else f"axis {index}"
        if axis.HasField("sub_axis_info"):
            return f"'{name}':({axis.sub_axis_info.pre_size}){axis.sub_axis_info.size}"
        return f"'{name}'"

    def several(references: Iterable[pb.AxisRefProto]) -> str:
        return "{" + ", ".join(map(reference, references)) + "}"

    text = "mesh[" + ",".join(f"'{name}'={size}" for name, size in axes) + "]"
    text += ", [" + ", ".join(several(dim.axes) for dim in sharding.dim_shardings) + "]"
    for label, references in (
        ("replicated", sharding.replicated_axes),
        ("unreduced", sharding.unreduced_axes),
        ("manual", sharding.manual_axes),
    ):
        if references:
            text += f", {label}={several(references)}"
    return text
