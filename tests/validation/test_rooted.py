"""Gathers to a rank and scatters from one, which captures write as messages."""

from __future__ import annotations

import json

import pytest

from flint.converters.profilers.pytorch_et.links import _RESULT_FIRST
from flint.converters.profilers.pytorch_et.observe import observe as observe_pytorch_et
from flint.converters.profilers.torch_collectives import comms_facts, root_in_group
from flint.converters.profilers.torch_ops import op_facts
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import rules_for
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.gather_scatter import THROUGH_ROOT
from flint.validation.rewrites.table import match

PART = ((4, 8), "f32")  # 128 bytes


def message(kind, peer, size=128, line="step.py:1"):
    operands = (((size // 4,), "f32"),)
    return OpFacts(kind, str(kind), operands, (size,), "f32", source=line, peer=peer)


def send(peer, **told):
    return message(OpClass.SEND, peer, **told)


def receive(peer, **told):
    return message(OpClass.RECV, peer, **told)


def gather(listed=0, tensor=PART):
    return op_facts("c10d::gather_", [[tensor] * listed, [tensor]])


def scatter(listed=0, tensor=PART):
    return op_facts("c10d::scatter_", [[tensor], [tensor] * listed])


def matched(captured, executed):
    rules = rules_for(executed, recorded=True, backend="cpu")
    return match(Matching(captured, executed, rules))


@pytest.mark.parametrize(
    ("captured", "executed"),
    [
        ([send(2)], [gather()]),
        ([receive(0), receive(1), receive(3)], [gather(4)]),
        ([receive(0), receive(1), receive(3)], [gather()]),  # Kineto does not show lists of lists
        ([receive(1)], [scatter()]),
        ([send(0), send(2), send(3)], [scatter(4)]),
        # One after the other: of another line, or a rank again.
        ([send(2), send(0, line="step.py:2"), send(2, line="step.py:2")], [gather(), scatter(3)]),
        ([receive(1), receive(2), receive(1), receive(2)], [gather(), gather()]),
        # Beside a message of its own.
        ([send(3, size=64), send(2)], [message(OpClass.SEND, 3, 64), gather()]),
    ],
)
def test_each_message_is_one_of_a_call(captured, executed):
    found = matched(captured, executed)
    assert not found.unmatched_captured
    assert not found.unmatched_executed
    assert [i for i, _, _ in found.pairs] == list(range(len(captured)))
    calls = [facts for facts in executed if facts.kind == OpClass.OTHER_COLLECTIVE]
    assert found.explained[THROUGH_ROOT] == len(calls)


@pytest.mark.parametrize(
    ("captured", "executed"),
    [
        ([send(2, size=64)], [gather()]),  # other bytes
        ([send(2)], [gather(tensor=((4, 8), "i32"))]),  # another type
        ([receive(0), receive(1)], [gather(4)]),  # one too few
        ([send(2)], [gather(4)]),  # at the root
        ([receive(2)], [scatter(4)]),
        ([send(2), send(1)], [gather()]),  # one too many
        ([send(2)], [op_facts("c10d::gather_", [[], [PART]], (0, 1))]),  # outside of the group
    ],
)
def test_what_is_of_another_size_number_or_group_is_a_difference(captured, executed):
    found = matched(captured, executed)
    assert found.unmatched_captured or found.unmatched_executed


def test_a_message_of_nccls_scatter_is_as_large_as_its_result():
    """ProcessGroupNCCL::scatter tells outputTensor.numel() * size as what goes in."""
    told = {"dtype": "Float", "In msg nelems": 128, "Out msg nelems": 32, "Group size": 4}
    facts = comms_facts(told | {"Collective name": "scatter"}, {})
    assert facts is not None
    assert facts.parts == (128,)
    told = told | {"In msg nelems": 32, "Out msg nelems": 128, "Collective name": "gather"}
    assert comms_facts(told, {}).parts == (128,)


def test_an_execution_trace_tells_who_the_root_is(tmp_path):
    """Its root has a list of a tensor for each member (c10d::gather_(Tensor[][], Tensor[] ..))."""
    inner = "GenericList[" + ",".join(["Tensor(float)"] * 4) + "]"
    inputs = {
        "values": [[[]], [[]]],
        "shapes": [[[[4, 8]] * 4], [[4, 8]]],
        "types": [f"GenericList[{inner}]", "GenericList[Tensor(float)]"],
    }
    node = {"id": 2, "ctrl_deps": 1, "name": "c10d::gather_", "inputs": inputs, "attrs": []}
    path = tmp_path / "et_rank2.json"
    path.write_text(json.dumps({"schema": "1.1.1", "nodes": [node]}))
    (facts,) = observe_pytorch_et(path).facts
    assert (facts.operands, facts.parts, facts.members) == ((PART,), (128,), 4)


def test_where_results_go_is_what_torchs_schemas_call_an_output():
    torch = pytest.importorskip("torch")
    collectives = (
        "gather_", "scatter_", "allgather_", "_allgather_base_", "reduce_scatter_",
        "_reduce_scatter_base_", "alltoall_", "alltoall_base_", "broadcast_", "reduce_",
        "allreduce_", "allgather_into_tensor_coalesced_", "allgather_coalesced_",
    )  # fmt: skip
    for name in collectives:
        first = getattr(torch.ops.c10d, name).default._schema.arguments[0].name
        assert bool(_RESULT_FIRST.match(name)) == first.startswith("output"), name


@pytest.mark.parametrize(
    ("name", "values", "root"),
    [
        # Kineto and the observer of PyTorch 2.13, of dist.broadcast(w, 2, group of 0 and 2).
        ("c10d::broadcast_", ["", "", "1", "0", "False", "-1"], 1),
        ("c10d::broadcast_", [[[8, 9, 0, 144, 4, "cpu"]], "<Object>", 1, 0, False, -1], 1),
        ("_c10d_functional::broadcast", ["", "1", "5"], 1),
        ("c10d::broadcast_", [], -1),  # without shapes
        ("c10d::allreduce_", ["", "", "1"], -1),
    ],
)
def test_profiles_tell_the_root_of_a_broadcast(name, values, root):
    assert root_in_group(name, values) == root


def test_a_broadcast_from_another_root_is_another_one():
    def broadcast(root):
        operands = (((32,), "f32"),)
        return OpFacts(
            OpClass.BROADCAST, "c10d::broadcast_", operands, (128,), "f32", group=(0, 2), root=root
        )

    def missing(captured, executed):
        found = matched([broadcast(captured)], [broadcast(executed)])
        return len(found.unmatched_captured), len(found.unmatched_executed)

    assert missing(1, 1) == missing(1, -1) == missing(-1, 1) == (0, 0)
    assert missing(0, 1) == (1, 1)
