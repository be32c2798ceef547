"""Records come back from bytes unchanged; bytes that are not packed records are refused."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.graph.tensor_types import TOKEN, tensor_type
from flint.stablehlo.packed.forms import ValueReader, ValueWriter
from flint.stablehlo.packed.packing import PackedModule, packed, unpacked
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.read.records import Block, Issue, Module, Op, ReplicaGroups, SourceInfo

MLIR = b"""
#there = loc("jit(f)/while"("model.py":7:1))
module @m attributes {mhlo.num_partitions = 4 : i32} {
  func.func public @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<f32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %table = stablehlo.constant dense<[3, 1, 2]> : tensor<3xi32>
    %y = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }) : (tensor<4x8xf32>) -> tensor<4x8xf32> loc(#there)
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<4x8xf32>, tensor<f32>) -> tensor<f32>
    %z = call @f(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %z, %s : tensor<4x8xf32>, tensor<f32>
  }
  func.func private @f(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %y = stablehlo.negate %x : tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
"""


def plain(value):
    """A value whose arrays can be compared."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.kind, value.tolist()
    if isinstance(value, ReplicaGroups):
        return "groups", plain(value.table), value.iota, plain(value.mesh)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return value


def listing(module):
    """The whole contents of a module, to be compared."""

    def of(block):
        return block.args, [op_of(op) for op in block.ops], block.yields

    def op_of(op):
        place = SourceInfo() if op.loc is None else module.location(op.loc)
        return (
            op.name, op.operands, op.results, plain(op.attrs), [of(one) for one in op.regions],
            place,
        )  # fmt: skip

    fields = {
        name: getattr(module, name)
        for name in Module.__slots__
        if name not in ("functions", "location")
    }
    return fields | {"functions": {name: of(block) for name, block in module.functions.items()}}


def test_a_module_comes_back_as_it_was():
    module = read_mlir(MLIR)
    assert listing(unpacked(packed(module))) == listing(module)


def test_regions_that_ops_share_stay_one():
    shared = Block((0,), [Op("negate", (0,), (1,))], (1,))
    ops = [Op("map", (2,), (n,), None, (shared,)) for n in (3, 4)]
    main = Block((2,), ops, (4,))
    module = Module("m", {"main": main}, [0] * 5, [tensor_type((), "f32")])
    one, other = unpacked(packed(module)).functions["main"].ops
    assert one.regions[0] is other.regions[0]


def test_groups_that_collectives_share_stay_one():
    table = np.arange(8).reshape(2, 4)
    ops = [
        Op("all_gather", (0,), (n,), {"groups": ReplicaGroups(table=table.copy())}) for n in (1, 2)
    ]
    module = Module("m", {"main": Block((0,), ops, ())}, [0] * 3, [tensor_type((4,), "f32")])
    one, other = unpacked(packed(module)).functions["main"].ops
    assert one.attrs["groups"] is other.attrs["groups"]


def test_what_only_recorded_modules_have_comes_back():
    module = Module(
        "m", {"main": Block((), [Op("x", (), (0,))], ())}, [0], [TOKEN],
        donated={3: 1}, donors=frozenset({2}), meshes={"mesh": (("x", 2),)},
        issues={0: Issue(7, 2, (1, 2), True)}, warnings={"odd": 3}, input_roles=("batch",),
    )  # fmt: skip
    assert listing(unpacked(packed(module))) == listing(module)


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key != "groups"), VALUES))
def test_attributes_come_back_and_integers_of_more_than_64_bits_as_text(attributes):
    def expected(value):
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return str(value)
        if isinstance(value, dict):
            return {key: expected(item) for key, item in value.items()}
        return tuple(map(expected, value)) if isinstance(value, tuple) else value

    writer = ValueWriter()
    text = writer.text(attributes)
    wide = expected(attributes) != attributes
    found = ValueReader(writer.arrays, writer.groups).value(text)
    assert found == (expected(attributes) if wide else attributes)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: {"functions": {"main": 99}},
        lambda m: {"value_type": [2**40, *m.value_type[1:]]},
        lambda m: {"names": m.names[:1]},
        lambda m: {"attributes": []},
        lambda m: {"groups": []},
        lambda m: {"arrays": []},
        lambda m: {"operands": m.operands[:-1]},
        lambda m: {"operands": [(2**40,), *m.operands[1:]]},
        lambda m: {"results": [(-1,), *m.results[1:]]},
        lambda m: {"op_names": m.op_names[:-1]},
        lambda m: {"op_places": [-2, *m.op_places[1:]]},
        lambda m: {"regions": [(m.regions[0][0], (len(m.blocks) - 1,))]},
        lambda m: {"regions": [(2**40, (0,))]},
        lambda m: {"blocks": [((2**40,), *m.blocks[0][1:]), *m.blocks[1:]]},
        lambda m: {"blocks": [(*m.blocks[0][:2], (2**40,)), *m.blocks[1:]]},
        lambda m: {"blocks": m.blocks[:-1]},
        lambda m: {"sources": []},
    ],
)
def test_columns_that_contradict_each_other_are_refused(change):
    fine = msgspec.msgpack.decode(packed(read_mlir(MLIR)), type=PackedModule)
    forged = msgspec.msgpack.encode(msgspec.structs.replace(fine, **change(fine)))
    with pytest.raises(FlintError, match="contradict"):
        unpacked(forged)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=3))
def test_no_byte_that_is_changed_is_worse_than_refused(place, new):
    data = bytearray(packed(read_mlir(MLIR)))
    place %= len(data)
    data[place : place + len(new)] = new
    try:
        unpacked(bytes(data))
    except FlintError as error:
        assert "contradict" in str(error)


def test_places_are_looked_up_when_a_module_is_packed():
    asked = []

    def location(place):
        asked.append(place)
        return SourceInfo(str(place))

    ops = [Op("x", (), (), None, (), place) for place in (5, 6, 5, None)]
    module = Module("m", {"main": Block((), ops, ())}, [], [], location=location)
    made = unpacked(packed(module))
    assert asked == [5, 6]
    assert [op.loc for op in made.functions["main"].ops] == [0, 1, 0, None]
    assert made.location(1) == SourceInfo("6")
    assert replace(module, location=None)
