"""Records that no parser made: the verifier's messages about each op's operands and results."""

import numpy as np
import pytest

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType, tensor_type
from flint.stablehlo.read.records import Block, Module, Op, ReplicaGroups
from tests.stablehlo.verification.test_verifier import verified


def test_compilers_mix_precisions_and_nothing_else():
    """As libtpu does: the first operand of a product is f32, the second and the result bf16."""
    half, whole, number = (tensor_type((8,), kind) for kind in ("bf16", "f32", "i32"))
    mixed = module(Op("multiply", (0, 1), (2,)), whole, half, half)
    with pytest.raises(FlintError, match="multiply: has the operand 8xf32 for the result 8xbf16"):
        verified(mixed)
    mixed.optimized = True
    verified(mixed)
    mixed.types[0] = number
    with pytest.raises(FlintError, match="multiply: has the operand 8xi32 for the result 8xbf16"):
        verified(mixed)


def module(op, *types, functions=None):
    """A module of one op: the first types are its operands', the last ones its results'."""
    block = Block(op.operands, [op], op.results)
    return Module("m", {"main": block, **(functions or {})}, list(range(len(types))), list(types))


F8, F16, F4, SCALAR = (tensor_type(shape, "f32") for shape in ((8,), (16,), (4,), ()))
PAIR = {"groups": ReplicaGroups(table=np.array([[0, 1]])), "use_global_device_ids": True}


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_a_collective_along_a_dim_needs_one(name):
    with pytest.raises(FlintError, match=f"{name}: has f32, which has no dim"):
        verified(module(Op(name, (0,), (1,), PAIR), SCALAR, SCALAR))


def test_groups_of_replicas_with_a_channel_have_their_partitions_too():
    """StableHLO's cross_replica_and_partition: two replicas of four partitions are eight."""
    of_replicas = {"groups": PAIR["groups"], "channel_id": 1, "use_global_device_ids": False}
    verified(module(Op("all_gather", (0,), (1,), of_replicas), F8, tensor_type((64,), "f32")))


def test_sizes_that_the_program_does_not_fix_are_not_compared():
    bounded = tensor_type((8,), "f32", dynamic=True)
    verified(module(Op("add", (0, 1), (2,)), bounded, F4, F4))


def test_a_constant_has_no_operand():
    with pytest.raises(FlintError, match="constant: has 1 operands, not 0"):
        verified(module(Op("constant", (0,), (1,)), F8, F8))


def test_a_loop_hands_on_what_it_takes():
    i1 = TensorType((), "i1", 1)
    condition, body = Block((2,), [], (4,)), Block((2,), [], (3,))
    loop = Op("while", (0,), (1,), None, (condition, body))
    types = [F8, F8, F8, F8, i1]
    verified(module(loop, *types))
    with pytest.raises(FlintError, match="while: has 8xf32, but yields have 16xf32"):
        verified(module(loop, F8, F8, F8, F16, i1))
    with pytest.raises(FlintError, match="while: has a condition that does not yield a single i1"):
        verified(module(loop, F8, F8, F8, F8, F8))


def test_a_call_passes_what_the_function_takes():
    call = Op("call", (0,), (1,), {"callee": "f"})
    function = Block((2,), [], (2,))
    verified(module(call, F8, F8, F8, functions={"f": function}))
    with pytest.raises(FlintError, match="call: has 8xf32, but arguments have 16xf32"):
        verified(module(call, F8, F8, F16, functions={"f": function}))
    with pytest.raises(FlintError, match="call: calls @f, which is not defined"):
        verified(module(call, F8, F8))


def test_windows_are_counted_by_the_formula():
    """8 elements, padded by 1 in front, windows of 3 every 2: (9 - 3) // 2 + 1 = 4."""
    attrs = {"window_dimensions": (3,), "strides": (2,), "padding": ((1, 0),)}
    verified(module(Op("reduce_window", (0, 1), (2,), attrs), F8, SCALAR, F4))
    with pytest.raises(FlintError, match="reduce_window: has 16 windows along a dim of 8, not 4"):
        verified(module(Op("reduce_window", (0, 1), (2,), attrs), F8, SCALAR, F16))


def test_what_is_inside_a_fusion_is_verified_too():
    inner = Block((2,), [Op("negate", (2,), (3,))], (3,))
    fusion = Op("fusion", (0,), (1,), {"kind": "kLoop"}, (inner,))
    verified(module(fusion, F8, F8, F8, F8))
    with pytest.raises(FlintError, match="negate: has the operand 8xf32 for the result 16xf32"):
        verified(module(fusion, F8, F16, F8, F16))
