"""Shardings by the axes of a mesh -> shardings by tiles.

The idea: newer XLA states a sharding by the axes of its mesh, older XLA by the device of each tile;
what reads the older form can read both.  The mesh's axes are split where a sharding takes a part of
one, and the devices are put into the order of the axes that shard dims; the remaining axes repeat.

    mesh['x'=4,'y'=2], [{}, {'x'}]   ->   {devices=[1,4,2]<=[8] last_tile_dim_replicate}
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from flint.hlo import hlo_pb2 as pb
from flint.hlo.groups import MAX_DEVICES, device_order

_TILED = 3


def tiled(sharding: pb.OpSharding) -> pb.OpSharding:
    """A sharding without names of axes; one that has none is returned as it is.

    Raises:
        ValueError: an axis that the mesh lacks or that is used twice, or a part that does not
            divide its axis.
        NotImplementedError: unreduced or manual axes.
    """
    if not sharding.HasField("named_sharding"):
        return sharding
    named = sharding.named_sharding
    if named.unreduced_axes or named.manual_axes:
        raise NotImplementedError("a sharding with unreduced or manual axes has no tiles")
    sizes = [axis.size for axis in named.mesh.axes]
    devices = math.prod(sizes)
    if not 0 < devices <= MAX_DEVICES:
        raise ValueError(f"a sharding over a mesh of {devices} devices: damaged file?")
    dims = [[_range(axis, sizes) for axis in dim.axes] for dim in named.dim_shardings]
    parts = _parts(sizes, [taken for dim in dims for taken in dim])
    order = [
        number
        for dim in dims
        for axis, low, high in dim
        for number, (of, start, end) in enumerate(parts)
        if of == axis and low <= start and end <= high
    ]
    if len(set(order)) != len(order):
        raise ValueError("a sharding with one axis of the mesh on two dims")
    tiles = [math.prod(high // low for _, low, high in dim) for dim in dims]
    rest = [number for number in range(len(parts)) if number not in order]
    repeated = devices // math.prod(tiles)
    ids = device_order(named.mesh, devices)
    grid = (np.arange(devices) if ids is None else ids).reshape([b // a for _, a, b in parts])
    return pb.OpSharding(
        type=_TILED,
        tile_assignment_dimensions=tiles + [repeated] * (repeated > 1),
        tile_assignment_devices=grid.transpose(order + rest).reshape(-1).tolist(),
        replicate_on_last_tile_dim=repeated > 1,
    )


def _range(axis: pb.AxisRefProto, sizes: list[int]) -> tuple[int, int, int]:
    """An axis and the products of its major factors before and with the part that is meant."""
    index = axis.mesh_axis_index
    if not 0 <= index < len(sizes):
        raise ValueError(f"a sharding along axis {index} of a mesh of {len(sizes)} axes")
    if not axis.HasField("sub_axis_info"):
        return index, 1, sizes[index]
    low = axis.sub_axis_info.pre_size
    high = low * axis.sub_axis_info.size
    if low < 1 or high < low or sizes[index] % high:
        raise ValueError(f"a sharding along {low} to {high} of an axis of size {sizes[index]}")
    return index, low, high


def _parts(sizes: list[int], taken: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The mesh's axes, each cut where a sharding's part begins or ends."""
    parts = []
    for axis, size in enumerate(sizes):
        ends = {1, size} | {end for of, *both in taken if of == axis for end in both}
        cuts = sorted(ends)
        if any(high % low for low, high in itertools.pairwise(cuts)):
            raise ValueError(f"parts {cuts} of an axis do not divide each other")
        parts += [(axis, low, high) for low, high in itertools.pairwise(cuts)]
    return parts
