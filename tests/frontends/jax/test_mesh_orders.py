"""Groups along transposed meshes in the text of a captured module, which XLA converts without."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.jax.lower.listing import listing_of_hlo
from flint.frontends.jax.lower.mesh_orders import along_a_mesh_in_order
from flint.hlo import hlo_pb2 as pb
from flint.stablehlo.read.reader import read_mlir
from tests.hlo.test_groups import broadcast_over


@st.composite
def references(draw):
    """Groups along some axes, or parts of them, of a mesh that may be transposed."""
    dims = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3))
    order = draw(st.permutations(range(len(dims))))
    # Sizes of the axes: what the transposed dims are, some cut in two.
    sizes = []
    for dim in order:
        cut = draw(st.sampled_from([n for n in range(1, dims[dim] + 1) if dims[dim] % n == 0]))
        sizes += [cut, dims[dim] // cut]
    mesh = pb.MeshProto(
        axes=[pb.MeshProto.MeshAxis(name=f"a{n}", size=size) for n, size in enumerate(sizes)],
        iota_transform=pb.MeshProto.IotaTransform(reshape_dims=dims, transpose_perm=order),
    )
    proto = pb.MeshAxesReplicaGroupListProto(mesh=mesh)
    for number in draw(st.lists(st.sampled_from(range(len(sizes))), unique=True)):
        reference = proto.axes.add(mesh_axis_index=number)
        if draw(st.booleans()):
            parts = [
                (pre, size)
                for pre in range(1, sizes[number] + 1)
                for size in range(1, sizes[number] // pre + 1)
                if sizes[number] % (pre * size) == 0
            ]
            pre, size = draw(st.sampled_from(parts))
            reference.sub_axis_info.pre_size, reference.sub_axis_info.size = pre, size
    return proto


def table(proto):
    """Groups by the definition: axes of the array of devices, each in three parts."""
    sizes = [axis.size for axis in proto.mesh.axes]
    devices = np.arange(math.prod(sizes))
    if proto.mesh.HasField("iota_transform"):
        transform = proto.mesh.iota_transform
        devices = devices.reshape(transform.reshape_dims).transpose(transform.transpose_perm)
    parts = [(1, size) for size in sizes]
    for item in proto.axes:
        if item.HasField("sub_axis_info"):
            parts[item.mesh_axis_index] = item.sub_axis_info.pre_size, item.sub_axis_info.size
    shape = [
        part
        for size, (pre, own) in zip(sizes, parts, strict=True)
        for part in (pre, own, size // pre // own)
    ]
    along = [3 * item.mesh_axis_index + 1 for item in proto.axes]
    moved = np.moveaxis(devices.reshape(shape), along, range(-len(along), 0)) if along else devices
    return sorted(moved.reshape(-1, math.prod(shape[dim] for dim in along)).tolist())


@given(proto=references())
def test_groups_along_a_mesh_in_order_are_those_along_the_transposed_one(proto):
    made = along_a_mesh_in_order(proto.SerializeToString())
    assert made is not None
    plain = pb.MeshAxesReplicaGroupListProto.FromString(made)
    assert not plain.mesh.HasField("iota_transform")
    assert table(plain) == table(proto)


def module_of(proto):
    """A module with a collective over these groups."""
    module = pb.HloModuleProto.FromString(broadcast_over(pb.IotaReplicaGroupListProto()))
    [_, instruction] = module.computations[0].instructions
    instruction.ClearField("iota_collective_device_list")
    instruction.mesh_axes_replica_group_list = proto.SerializeToString()
    return module.SerializeToString()


def test_the_text_of_a_module_has_its_groups():
    """4 x 2 devices, of which the transposed mesh has the 2 first: pairs are (0, 1), (2, 3) ..."""
    axes = [pb.MeshProto.MeshAxis(name=name, size=size) for name, size in (("a", 2), ("b", 4))]
    transform = pb.MeshProto.IotaTransform(reshape_dims=[4, 2], transpose_perm=[1, 0])
    proto = pb.MeshAxesReplicaGroupListProto(
        mesh=pb.MeshProto(axes=axes, iota_transform=transform),
        axes=[pb.AxisRefProto(mesh_axis_index=0)],
    )
    text, _ = listing_of_hlo(module_of(proto))
    [op] = read_mlir(text).functions["main"].ops
    sizes, along = op.attr("groups").mesh
    found = pb.MeshAxesReplicaGroupListProto()
    for name, size in sizes:
        found.mesh.axes.add(name=name, size=size)
    for name, _ in along:
        found.axes.add(mesh_axis_index=[axis for axis, _ in sizes].index(name))
    assert table(found) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_no_text_is_better_than_one_with_other_groups():
    axis = pb.MeshProto.MeshAxis(name="a", size=4)
    proto = pb.MeshAxesReplicaGroupListProto(
        mesh=pb.MeshProto(axes=[axis], device_ids=[0, 2, 3, 1]),
        axes=[
            pb.AxisRefProto(
                mesh_axis_index=0, sub_axis_info=pb.AxisRefProto.SubAxis(pre_size=1, size=2)
            )
        ],
    )
    assert listing_of_hlo(module_of(proto)) is None
