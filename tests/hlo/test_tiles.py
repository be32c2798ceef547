"""Shardings by axes as tiles, against JAX's own tiles for the same axes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src.op_shardings import are_hlo_shardings_equal
from jax.sharding import NamedSharding, PartitionSpec
from jaxlib import xla_client

from flint.hlo import hlo_pb2 as pb
from flint.hlo.tiles import tiled
from tests.support.meshes import auto_mesh


def named(mesh, dims):
    """Over ``mesh`` ((name, size), ...); per dim the axes: a number, or (number, before, size)."""
    sharding = pb.OpSharding()
    for name, size in mesh:
        sharding.named_sharding.mesh.axes.add(name=name, size=size)
    for axes in dims:
        dim = sharding.named_sharding.dim_shardings.add()
        for axis in axes:
            if isinstance(axis, int):
                dim.axes.add(mesh_axis_index=axis)
            else:
                number, before, size = axis
                reference = dim.axes.add(mesh_axis_index=number)
                reference.sub_axis_info.pre_size = before
                reference.sub_axis_info.size = size
    return sharding


def of_jax(mesh, spec):
    names, sizes = zip(*mesh, strict=True)
    whole = NamedSharding(auto_mesh(sizes, names), PartitionSpec(*spec))
    return whole._to_xla_hlo_sharding(len(spec))


def are_equal(sharding, expected):
    proto = xla_client.OpSharding()
    proto.ParseFromString(sharding.SerializeToString())
    return are_hlo_shardings_equal(xla_client.HloSharding.from_proto(proto), expected)


@st.composite
def meshes_and_dims(draw):
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    dims = [[] for _ in range(draw(st.integers(1, 3)))]
    for axis in order:
        if (place := draw(st.integers(-1, len(dims) - 1))) >= 0:
            dims[place].append(axis)
    return [(f"axis_{number}", size) for number, size in enumerate(sizes)], dims


@given(meshes_and_dims())
def test_tiles_are_those_that_jax_makes_of_the_same_axes(example):
    mesh, dims = example
    spec = [tuple(mesh[axis][0] for axis in axes) for axes in dims]
    assert are_equal(tiled(named(mesh, dims)), of_jax(mesh, spec))


def test_a_part_of_an_axis_is_an_axis_of_the_finer_mesh():
    """An axis of 8 devices is one of 2, one of 2 and one of 2, major first."""
    found = tiled(named([("x", 8), ("y", 3)], [[(0, 4, 2)], [1, (0, 1, 2)]]))
    finer = [("a", 2), ("b", 2), ("c", 2), ("y", 3)]
    assert are_equal(found, of_jax(finer, ["c", ("y", "a")]))


def test_devices_keep_the_order_of_the_mesh():
    sharding = named([("x", 2), ("y", 2)], [[1], []])
    sharding.named_sharding.mesh.device_ids.extend([3, 1, 2, 0])
    # Along y, device 3 is beside 1 and 2 beside 0: the tiles are on (3, 2) and (1, 0).
    assert list(tiled(sharding).tile_assignment_devices) == [3, 2, 1, 0]


def test_tiles_stay_as_they_are():
    sharding = pb.OpSharding(type=3, tile_assignment_dimensions=[8], iota_reshape_dims=[8])
    assert tiled(sharding) is sharding


@pytest.mark.parametrize(
    "dims",
    (
        [[2], []],  # no such axis
        [[0], [0]],  # one axis twice
        [[(0, 1, 3)], []],  # no part of 8
        [[(0, 1, 4), (0, 2, 2)], []],  # parts that overlap
    ),
)
def test_a_sharding_that_contradicts_itself_is_an_error(dims):
    with pytest.raises(ValueError, match=r"sharding|parts"):
        tiled(named([("x", 8), ("y", 2)], dims))
