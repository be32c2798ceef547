"""Replica groups in XLA's compact forms against XLA's own expansion of them.

XLA's conversion to StableHLO writes iota groups out as a table; that table is the reference.
"""

import math

import jaxlib._jax as xla
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.hlo import hlo_pb2 as pb
from flint.hlo.groups import groups_of_iota, groups_of_list, groups_of_mesh
from flint.hlo.reader import read_hlo
from flint.stablehlo.read.reader import read_mlir
from tests.hlo.comparing import expand
from tests.support.shared import examples

F32 = pb.ShapeProto(element_type=11, dimensions=[4])


@st.composite
def iotas(draw):
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    permutation = draw(st.permutations(range(len(dims))))
    devices = math.prod(dims)
    size = draw(st.sampled_from([d for d in range(1, devices + 1) if devices % d == 0]))
    return pb.IotaReplicaGroupListProto(
        num_replica_groups=devices // size, num_devices_per_group=size,
        iota_reshape_dims=dims, iota_transpose_perm=permutation,
    )  # fmt: skip


def broadcast_over(iota):
    layout = pb.LayoutProto(minor_to_major=[0])
    shape = pb.ShapeProto(element_type=11, dimensions=[4], layout=layout)
    program = pb.ProgramShapeProto(parameters=[shape], result=shape, parameter_names=["p"])
    value = shape.SerializeToString()
    instructions = [
        pb.HloInstructionProto(name="p", opcode="parameter", id=1, shape=value),
        pb.HloInstructionProto(
            name="b", opcode="collective-broadcast", id=2, operand_ids=[1], shape=value,
            channel_id=1, iota_collective_device_list=iota.SerializeToString(),
        ),
    ]  # fmt: skip
    computation = pb.HloComputationProto(
        name="e", id=1, root_id=2, instructions=instructions, program_shape=program
    )
    return pb.HloModuleProto(
        name="m", entry_computation_name="e", entry_computation_id=1,
        computations=[computation], host_program_shape=program,
    ).SerializeToString()  # fmt: skip


@settings(max_examples=examples(100))
@given(iota=iotas())
def test_iota_groups_are_what_xla_expands_them_to(iota):
    data = broadcast_over(iota)
    [ours] = read_hlo(data).functions["main"].ops
    [theirs] = read_mlir(xla.mlir.hlo_to_stablehlo(data)).functions["main"].ops
    assert ours.attr("groups").iota is not None
    assert expand(ours.attr("groups")) == theirs.attr("groups").table.tolist()


@given(iota=iotas())
def test_older_writers_put_the_iota_into_the_list(iota):
    nested = pb.CollectiveDeviceListProto(iota_replica_group_list=iota)
    old = groups_of_list(nested.SerializeToString())
    assert old == groups_of_iota(iota.SerializeToString())


def test_mesh_axes_sub_axes_and_device_order():
    axis = pb.MeshProto.MeshAxis
    groups = groups_of_mesh(
        pb.MeshAxesReplicaGroupListProto(
            mesh=pb.MeshProto(
                axes=[axis(name="a", size=4), axis(name="b", size=2)],
                iota_transform=pb.MeshProto.IotaTransform(
                    reshape_dims=[2, 4], transpose_perm=[1, 0]
                ),
            ),
            axes=[
                pb.AxisRefProto(
                    mesh_axis_index=0, sub_axis_info=pb.AxisRefProto.SubAxis(pre_size=2, size=2)
                ),
                pb.AxisRefProto(mesh_axis_index=1),
            ],
        ).SerializeToString()
    )
    axes, along, order = groups.mesh
    assert axes == (("a", 4), ("b", 2))
    assert along == (("a", (2, 2)), ("b", None))
    # iota(8) as [[0 1 2 3] [4 5 6 7]], transposed to 4 x 2
    assert order.tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_device_order_written_out_must_fit_the_mesh():
    axis = pb.MeshProto.MeshAxis(name="a", size=4)
    mesh = pb.MeshProto(axes=[axis], device_ids=[0, 1, 2])
    with pytest.raises(ValueError, match="order of 3"):
        groups_of_mesh(pb.MeshAxesReplicaGroupListProto(mesh=mesh).SerializeToString())
