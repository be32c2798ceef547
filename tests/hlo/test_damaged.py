"""Untrusted input: whatever the bytes, the reader returns a module or raises FlintError."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb
from flint.hlo.reader import read_hlo
from flint.hlo.reading import MAX_DEPTH
from tests.support.shared import examples

#: Workers would wait for each other's dumps (``conftest.py``).
pytestmark = pytest.mark.xdist_group("hlo-dumps")

F32, TUPLE = 11, 13


def shape(*dims, dtype=F32):
    return pb.ShapeProto(element_type=dtype, dimensions=dims).SerializeToString()


def tuple_shape(*parts):
    protos = [pb.ShapeProto.FromString(part) for part in parts]
    return pb.ShapeProto(element_type=TUPLE, tuple_shapes=protos).SerializeToString()


def instruction(number, opcode, operands=(), of=None, **fields):
    return pb.HloInstructionProto(
        name=f"i{number}", opcode=opcode, id=number, operand_ids=operands,
        shape=shape(4) if of is None else of, **fields,
    )  # fmt: skip


def computation(number, *instructions):
    root = instructions[-1].id if instructions else 0
    return pb.HloComputationProto(
        id=number, name=f"c{number}", instructions=instructions, root_id=root
    )


def module(*computations):
    return pb.HloModuleProto(
        name="m", entry_computation_name=computations[-1].name,
        entry_computation_id=computations[-1].id, computations=computations,
    ).SerializeToString()  # fmt: skip


def refused(*computations, match):
    with pytest.raises(FlintError, match=match) as caught:
        read_hlo(module(*computations), "f.pb")
    text = str(caught.value)
    assert text.startswith("f.pb: ") and "\n" not in text


PARAMETER = instruction(1, "parameter")


def test_operand_that_is_not_there():
    refused(computation(1, PARAMETER, instruction(2, "negate", [9])), match="%i2.*id 9")


def test_operand_after_its_user():
    late = instruction(3, "negate", [1])
    refused(computation(1, PARAMETER, instruction(2, "negate", [3]), late), match="id 3")


def test_computation_that_calls_itself():
    call = instruction(2, "call", [1], called_computation_ids=[1])
    refused(computation(1, PARAMETER, call), match="itself")


@pytest.mark.parametrize("opcode", ["call", "fusion", "reduce", "while", "conditional"])
def test_cycle_of_computations(opcode):
    ids = {"while": [2, 2], "conditional": [2]}.get(opcode, [2])
    dims = {"dimensions": [0]} if opcode == "reduce" else {}
    operands = [1, 1] if opcode == "conditional" else [1]
    there = computation(
        1, PARAMETER, instruction(2, opcode, operands, called_computation_ids=ids, **dims)
    )
    back = computation(
        2, instruction(3, "parameter"), instruction(4, "call", [3], called_computation_ids=[1])
    )
    refused(back, there, match="itself")


def test_computation_that_is_missing():
    call = instruction(2, "call", [1], called_computation_ids=[7])
    refused(computation(1, PARAMETER, call), match="id 7 is missing")


def test_entry_that_is_missing():
    proto = pb.HloModuleProto.FromString(module(computation(1, PARAMETER)))
    proto.entry_computation_id = 5
    with pytest.raises(FlintError, match="entry computation"):
        read_hlo(proto.SerializeToString())


def test_deep_nesting():
    chain = [computation(0, instruction(1, "parameter"))]
    for number in range(1, MAX_DEPTH + 1):
        call = instruction(
            2 * number + 1, "call", [2 * number], called_computation_ids=[number - 1]
        )
        chain.append(computation(number, instruction(2 * number, "parameter"), call))
    refused(*chain, match="nested")


def test_tuples_that_double_cannot_grow_without_limit():
    steps = [PARAMETER]
    for number in range(2, 60):
        last = number - 1
        steps.append(instruction(number, "tuple", [last, last], of=tuple_shape(shape(4), shape(4))))
    refused(computation(1, *steps), match="tuple's shape")


def test_a_tuple_of_tuples_of_20_000_is_one_line():
    """Written by hand: protobuf's own classes do not go so deep."""
    text = shape(4)
    for _ in range(20_000):
        body, length = text, len(text)
        size = b""
        while length > 127:
            size += bytes([length & 127 | 128])
            length >>= 7
        text = bytes([16, TUPLE, 34]) + size + bytes([length]) + body  # fields 2 and 4
    refused(computation(1, instruction(1, "parameter", of=text)), match="MaxDepth")


def test_branches_that_share_computations_are_read_once():
    """A chain in which every conditional calls the same computation from both branches."""
    computations = [computation(1, instruction(1, "parameter"))]
    for number in range(2, 40):
        index = instruction(10 * number + 1, "constant", of=shape(dtype=4))
        parameter = instruction(10 * number, "parameter")
        choice = instruction(
            10 * number + 2, "conditional", [index.id, parameter.id, parameter.id],
            called_computation_ids=[number - 1, number - 1],
        )  # fmt: skip
        computations.append(computation(number, parameter, index, choice))
    read = read_hlo(module(*computations))
    assert len(read.value_type) < 10 * len(computations)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (shape(-3), "dims"),
        (shape(4, dtype=77), "number 77"),
        (shape(4, dtype=30), "s1"),
        (shape(*[1] * 300), "rank"),
        (shape(2**40, 2**40), "bytes"),
        (b"\xff\xff", "%i2"),
    ],
)
def test_shape_that_is_none(bad, match):
    refused(computation(1, PARAMETER, instruction(2, "negate", [1], of=bad)), match=match)


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (pb.IotaReplicaGroupListProto(num_replica_groups=2, num_devices_per_group=4,
                                      iota_reshape_dims=[7]), "are not valid"),
        (pb.IotaReplicaGroupListProto(num_replica_groups=2, num_devices_per_group=2,
                                      iota_reshape_dims=[2, 2], iota_transpose_perm=[0, 0]),
         "are not valid"),
        (pb.IotaReplicaGroupListProto(num_replica_groups=2**40, num_devices_per_group=2**20,
                                      iota_reshape_dims=[2**60]), "are not valid"),
    ],
)  # fmt: skip
def test_iota_groups_that_contradict_themselves(groups, match):
    reduce = instruction(
        2, "collective-broadcast", [1], iota_collective_device_list=groups.SerializeToString()
    )
    refused(computation(1, PARAMETER, reduce), match=match)


def test_mesh_groups_along_an_axis_that_is_not_there():
    mesh = pb.MeshProto(axes=[pb.MeshProto.MeshAxis(name="x", size=4)])
    groups = pb.MeshAxesReplicaGroupListProto(mesh=mesh, axes=[pb.AxisRefProto(mesh_axis_index=3)])
    op = instruction(
        2, "collective-broadcast", [1], mesh_axes_replica_group_list=groups.SerializeToString()
    )
    refused(computation(1, PARAMETER, op), match="axis 3")


def test_unknown_opcode_is_kept_and_counted():
    op = instruction(2, "frobnicate", [1])
    read = read_hlo(module(computation(1, PARAMETER, op)))
    assert [op.name for op in read.functions["main"].ops] == ["hlo.frobnicate"]
    assert read.warnings == {"unknown HLO opcode 'frobnicate': kept without work": 1}


def test_names_from_the_file_cannot_break_the_line():
    bad = pb.HloInstructionProto(name="a\nb\x1b[31m", opcode="negate", id=2, operand_ids=[9])
    refused(computation(1, PARAMETER, bad), match=r"a\?b\?\[31m")


def test_control_dependencies_are_counted():
    first = instruction(2, "negate", [1])
    second = instruction(3, "exponential", [1], control_predecessor_ids=[2])
    read = read_hlo(module(computation(1, PARAMETER, first, second)))
    assert read.warnings == {"instructions with control dependencies, which are not kept": 1}


def test_dynamic_dims_count_at_their_bound():
    dynamic = pb.ShapeProto(element_type=F32, dimensions=[8], is_dynamic_dimension=[True])
    read = read_hlo(
        module(computation(1, instruction(1, "parameter", of=dynamic.SerializeToString())))
    )
    [value] = read.functions["main"].args
    assert (read.type_of(value).shape, read.type_of(value).dynamic) == ((8,), True)
    assert read.warnings == {"a dynamic dim: counted at its bound": 1}


def test_dims_without_a_bound_are_refused():
    open_dim = pb.ShapeProto(element_type=F32, dimensions=[-(2**63)], is_dynamic_dimension=[True])
    with pytest.raises(FlintError, match="has a dim whose size the program leaves open"):
        read_hlo(
            module(computation(1, instruction(1, "parameter", of=open_dim.SerializeToString())))
        )


def test_every_cut_of_a_wrapped_module_is_refused(partitioned):
    data = partitioned["ring_loop"]
    for end in range(0, len(data), 7):
        with pytest.raises(FlintError):
            read_hlo(data[:end], "cut.pb")


def test_a_cut_of_a_bare_module_never_gives_another_program(optimized):
    """Only what follows the entry computation may be lost without notice: nothing reads on."""
    data = optimized["ring_loop"]
    whole = [op.name for op in read_hlo(data).functions["main"].ops]
    for end in range(0, len(data), 7):
        try:
            read = read_hlo(data[:end])
        except FlintError:
            continue
        assert sorted(op.name for op in read.functions["main"].ops) == sorted(whole)


@settings(max_examples=examples(300))
@given(data=st.data())
def test_flipped_bytes_end_in_a_module_or_an_error(partitioned, data):
    name = data.draw(st.sampled_from(["ring_loop", "conditionals", "collectives"]))
    damaged = bytearray(partitioned[name])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = read_hlo(bytes(damaged), "damaged.pb")
    except FlintError as error:
        assert "\n" not in str(error)
        return
    for op in read.functions["main"].ops:
        read.location(op.loc)
