"""Whole steps: emitted, executed by XLA, compared with PyTorch; and what travels beside values."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.frontends.torch.ranks.replica_groups import full_groups, full_pairs
from flint.frontends.torch.recording.recording import Group, Input, Op, Recording, View, views_in
from flint.graph.graph import EdgeKind, NodeKind, Phase
from flint.graph.work import Role
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.bindings import parse
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.frontends.torch.checking import assert_equal, check
from tests.frontends.torch.exchanges import ALONG
from tests.frontends.torch.exchanges import CASES as EXCHANGES
from tests.frontends.torch.executing import execute
from tests.frontends.torch.real_recording import record
from tests.frontends.torch.tiny_models import (
    Experts,
    Llama,
    ResNet,
    image_batch,
    token_batch,
    trainer,
)
from tests.support.shared import chosen, quick


def adamw(**options):
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, **options)


def sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, **options)


STEPS = {
    # name: (model, batch, optimizer, options of the step)
    "transformer, clip, foreach AdamW": (Llama, token_batch, adamw(foreach=True), {"clip": 1.0}),
    "transformer, AdamW per tensor": (Llama, token_batch, adamw(foreach=False), {}),
    "transformer, fused AdamW": (Llama, token_batch, adamw(fused=True), {"clip": 1.0}),
    "mixture of experts, SGD": (lambda: Llama(mlp=Experts), token_batch, sgd(), {}),
    "ResNet, SGD": (ResNet, image_batch, sgd(foreach=True), {}),
    "ResNet, fused SGD": (ResNet, image_batch, sgd(fused=True), {}),
}


def recorded_step(model, batch, optimizer, options, seed=0):
    """The second step: the first one makes the optimizer's state."""
    torch.manual_seed(seed)
    built = model()
    step = trainer(built, optimizer(built.parameters()), **options)
    step(*batch())
    return record(step, *batch())


@pytest.mark.parametrize("name", STEPS)
def test_an_executed_step_gives_pytorchs_loss_gradients_parameters_and_state(name):
    recorded = recorded_step(*STEPS[name])
    outputs = check(recorded)
    mutated = len(outputs) - len(recorded.results)
    # Parameters, and one or two moments or buffers for each, at least.
    assert mutated >= 2 * (len(recorded.results) - 1)


def worst_update(recorded, made_of):
    """How far the changes that another recording's module makes are from PyTorch's, relatively."""
    outputs, aliases = execute(emitted(made_of.recording).data, recorded.inputs)
    worst = 0.0
    for number, after in recorded.mutated.items():
        before = recorded.inputs[number]
        if number in aliases and not torch.equal(before, after):
            off = (outputs[aliases[number]] - after).norm() / (after - before).norm()
            worst = max(worst, float(off))
    return worst


def test_an_executed_step_in_bf16_changes_parameters_as_pytorch_does_within_its_precision():
    """Compared are the changes, which are small against the parameters.

    Rounding to bfloat16 is off by up to half a unit in the last place, which is 2**-8 to 2**-7 of
    the value: 2**-8 / sqrt(12) to twice that in quadratic mean, 0.0016 about.  The first layer's
    gradient comes through some 40 products and additions that are rounded, forward and backward,
    independently on both sides once they differ: 0.0016 * sqrt(2 * 40) = 0.014.
    """
    options = {"clip": 0.1, "autocast": True}
    recorded = recorded_step(Llama, token_batch, sgd(), options)
    assert worst_update(recorded, recorded) < 0.014
    # The negative control: gradients cut to a norm that is 5 % larger.
    other = recorded_step(Llama, token_batch, sgd(), options | {"clip": 0.105})
    assert worst_update(recorded, other) > 0.014


def test_another_seeds_step_is_not_taken_for_this_one():
    """The negative control."""
    case = STEPS["transformer, clip, foreach AdamW"]
    recorded, other = recorded_step(*case), recorded_step(*case, seed=1)
    outputs, _ = execute(emitted(recorded.recording).data, other.inputs)
    with pytest.raises(AssertionError):
        assert_equal(outputs[-1], recorded.results[-1])


@pytest.fixture(scope="module")
def sharded(request):
    """What the child found of the chosen parallelisms -> counts and differences."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    exchanges = ["exchanges"] if chosen(request, "along") else []
    ran = subprocess.run(
        [
            sys.executable, "-m", "tests.frontends.torch.sharded_steps",
            *chosen(request, "parallelism"), *exchanges,
        ],
        capture_output=True, text=True, env=environment, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout.splitlines()[-1])


# Two layers and the root are three groups: gathered forward, the layers again backward, and reduced
# once each; replication adds an all-reduce per group.
COLLECTIVES = {
    "fsdp": {"all_gather": 5, "reduce_scatter": 3},
    "hsdp": {"all_gather": 5, "reduce_scatter": 3, "all_reduce": 3},
}


@pytest.mark.xdist_group("sharded_steps")
@pytest.mark.parametrize("parallelism", quick(["fsdp", "hsdp", "tensor parallel"], "hsdp"))
def test_a_parallel_step_on_four_devices_gives_the_whole_batchs_parameters(sharded, parallelism):
    found = sharded[parallelism]
    assert found["compared"] == 4 * found["parameters"]
    assert found["worst"] < 2e-5
    assert found["moved"] > 50 * found["worst"]


@pytest.mark.xdist_group("sharded_steps")
@pytest.mark.parametrize("parallelism", quick(COLLECTIVES, "hsdp"))
def test_parallel_steps_have_the_collectives_of_their_wrapping(sharded, parallelism):
    assert sharded[parallelism]["collectives"] == COLLECTIVES[parallelism]


@pytest.mark.xdist_group("sharded_steps")
@pytest.mark.thorough
@pytest.mark.parametrize("along", ALONG)
@pytest.mark.parametrize("name", EXCHANGES)
def test_a_communication_on_four_devices_does_what_torch_distributed_says(sharded, name, along):
    found = sharded["exchanges"][f"{name} along {along}"]
    assert isinstance(found, float), found
    assert found < 1e-6


# How ops were issued.


def view(storage, *shape, dtype="float32", offset=0):
    stride = [1] * len(shape)
    for dim in reversed(range(len(shape) - 1)):
        stride[dim] = stride[dim + 1] * shape[dim + 1]
    return View(storage, offset, tuple(shape), tuple(stride), dtype)


def relu(source, target, **how):
    return Op(name="aten.relu.default", args=(source,), kwargs={}, results=(target,), **how)


def recording(ops, inputs, results, **fields):
    """A recording of float32 storages [4, 4]."""
    storages = 1 + max(
        item.storage for op in ops for item in views_in((op.args, op.results, op.writes))
    )
    return Recording(
        **{
            "rank": 0,
            "world_size": 4,
            "mesh": (("dp", 2), ("tp", 2)),
            "storage_bytes": (64,) * storages,
            "inputs": tuple(inputs),
            "results": tuple(results),
            "ops": tuple(ops),
            **fields,
        }
    )


def graph_of(made):
    return walk(read_mlir(emitted(made).data), None, WalkOptions()).graph


def waits(graph):
    return {
        node: {
            (int(graph.order_node[i]), EdgeKind(graph.order_kind[i]))
            for i in range(graph.order_ptr[node], graph.order_ptr[node + 1])
        }
        for node in range(len(graph))
    }


X, A, B, C = (view(number, 4, 4) for number in range(4))


def test_stream_waits_phase_module_and_line_reach_the_graph():
    how = {"phase": "backward", "module": "layers.0", "file": "train.py", "line": 7}
    ops = [
        relu(X, A),
        relu(X, B, stream=3),
        relu(X, C, after=(1,), **how),
    ]
    graph = graph_of(recording(ops, [Input(X, "batch", "x")], [A, B, C]))
    assert waits(graph) == {
        0: set(),
        1: set(),
        2: {(0, EdgeKind.STREAM), (1, EdgeKind.ORDER)},
    }
    source = graph[2].source
    assert (source.file, source.line, source.layer) == ("train.py", 7, "layers.0")
    assert source.phase == Phase.BACKWARD


def test_what_a_vanished_op_waits_for_is_waited_for_by_the_next_of_its_stream():
    wait = Op(
        name="_c10d_functional.wait_tensor.default", args=(B,), kwargs={}, results=(B,), after=(1,)
    )
    ops = [relu(X, A), relu(X, B, stream=3), wait, relu(X, C)]
    graph = graph_of(recording(ops, [Input(X, "batch", "x")], [A, B, C]))
    assert waits(graph)[2] == {(0, EdgeKind.STREAM), (1, EdgeKind.ORDER)}


def test_who_waits_for_a_vanished_op_waits_for_what_that_one_came_after():
    allocation = Op(name="aten.empty.memory_format", args=(), kwargs={}, results=(B,))
    ops = [relu(X, A), allocation, relu(X, C, stream=3, after=(1,))]
    graph = graph_of(recording(ops, [Input(X, "batch", "x")], [A, C]))
    assert waits(graph)[1] == {(0, EdgeKind.ORDER)}


@st.composite
def issues(draw):
    """Kernels and ops that vanish, on streams, waiting for earlier ones."""
    count = draw(st.integers(1, 12))
    return [
        (
            draw(st.booleans()),
            draw(st.integers(0, 2)),
            tuple(draw(st.sets(st.integers(0, at - 1), max_size=3))) if at else (),
        )
        for at in range(count)
    ]


def reached(edges, count):
    """[later, earlier]: whether there is a path, of edges later -> earlier."""
    paths = np.zeros((count, count), bool)
    for later in range(count):
        for earlier in edges.get(later, ()):
            paths[later, earlier] = True
            paths[later] |= paths[earlier]
    return paths


@given(issues())
def test_any_two_kernels_are_ordered_as_they_were_issued(found):
    """Reachability in the recording, vanished ops included, against the graph's order edges."""
    last, truth, ops = {}, {}, []
    for at, (vanishes, stream, after) in enumerate(found):
        truth[at] = {*after, *([last[stream]] if stream in last else [])}
        last[stream] = at
        if vanishes:
            kwargs = {"name": "aten.empty.memory_format", "args": (), "kwargs": {}}
            ops.append(Op(**kwargs, results=(view(1 + at, 4, 4),), stream=stream, after=after))
        else:
            ops.append(relu(X, view(1 + at, 4, 4), stream=stream, after=after))
    kernels = [at for at, (vanishes, _, _) in enumerate(found) if not vanishes]
    made = recording(ops, [Input(X, "batch", "x")], [], storage_bytes=(64,) * (1 + len(found)))
    graph = graph_of(made)
    edges = {node: {earlier for earlier, _ in items} for node, items in waits(graph).items()}
    ours = reached(edges, len(graph))
    assert len(graph) == len(kernels)
    assert np.array_equal(ours, reached(truth, len(found))[np.ix_(kernels, kernels)])


def test_a_value_passes_a_wait_that_returns_other_memory():
    wait = Op(name="_c10d_functional.wait_tensor.default", args=(A,), kwargs={}, results=(B,))
    ops = [relu(X, A), wait, relu(B, C)]
    graph = graph_of(recording(ops, [Input(X, "batch", "x")], [C]))
    assert len(graph) == 2
    assert graph.predecessors(1) == {0}


def test_views_take_no_time_and_are_no_kernels():
    turned = View(1, 0, (4, 4), (1, 4), "float32")
    ops = [relu(X, A), relu(turned, B)]
    nodes = list(graph_of(recording(ops, [Input(X, "batch", "x")], [B])))
    assert [node.role == Role.ALIAS for node in nodes] == [False, True, False]


def test_an_op_that_leaves_no_trace_is_a_warning():
    equal = Op(name="aten.equal.default", args=(X, X), kwargs={}, results=(True,))
    item = Op(name="aten._local_scalar_dense.default", args=(X,), kwargs={}, results=(1.0,))
    made = recording([equal, item], [Input(X, "batch", "x")], [])
    assert emitted(made).warnings == {
        "aten.equal.default returns and writes no tensor: left out": 1
    }


def test_inputs_have_their_roles_names_and_aliases():
    grow = Op(name="aten.add_.Tensor", args=(X, 1), kwargs={}, results=(X,), writes=(X,))
    made = recording([grow], [Input(X, "parameter", "net.w")], [])
    module = read_mlir(emitted(made).data)
    assert (module.input_roles, module.input_names) == (("parameter",), ("net.w",))
    assert dict(module.donated) == {0: 0}


def test_a_constant_whose_value_is_known_is_written_and_no_parameter():
    ops = [Op(name="aten.mul.Tensor", args=(X, view(1)), kwargs={}, results=(B,))]
    made = recording(
        ops, [Input(X, "batch", "x"), Input(view(1), "constant", "")], [B],
        # 2.5 in IEEE single precision is 0x40200000.
        storage_bytes=(64, 4, 64), constants={1: bytes.fromhex("00002040")},
    )  # fmt: skip
    x = torch.arange(16.0).reshape(4, 4)
    ((ours,), aliases) = execute(emitted(dataclasses.replace(made, world_size=1)).data, [x])
    assert aliases == {}
    assert torch.equal(ours, 2.5 * x)


def test_equal_calls_share_a_function():
    ops = [relu(X, A), relu(A, B), relu(B, C)]
    text = str(parse(emitted(recording(ops, [Input(X, "batch", "x")], [C])).data))
    assert text.count("func.func private") == 1
    assert text.count("stablehlo.composite") == 3


def test_scalars_of_another_type_make_another_function():
    def add(source, target, number):
        return Op(name="aten.add.Tensor", args=(source, number), kwargs={}, results=(target,))

    ops = [add(X, A, 1), add(A, B, 1.0), add(B, C, True)]
    text = str(parse(emitted(recording(ops, [Input(X, "batch", "x")], [C])).data))
    assert text.count("func.func private") == 3


def test_bytes_per_op_do_not_grow_with_the_number_of_layers():
    sizes = []
    for layers in (2, 4, 8):
        recorded = recorded_step(
            lambda layers=layers: Llama(layers=layers), token_batch, sgd(foreach=False), {}
        )
        sizes.append(len(emitted(recorded.recording).data))
    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0])


# Communication.


def communicated(name, args, results, writes=(), ranks=(0, 1), rank=0, **fields):
    op = Op(name=name, args=args, kwargs={}, results=results, writes=writes, group=0, **fields)
    inputs = [Input(item, "batch", "") for item in views_in(args)]
    made = recording(
        [op], inputs, [], groups=(Group("g", "tp", ranks),), rank=rank,
        storage_bytes=(1024,) * 8,
    )  # fmt: skip
    (node,) = (node for node in graph_of(made) if node.kind == NodeKind.COMMUNICATION)
    return node.communication


def members(communication):
    return sorted(map(tuple, communication.groups.table().tolist()))


@pytest.mark.parametrize(
    ("name", "args", "results", "kind", "bytes_"),
    [
        ("c10d.allreduce_.default", (X,), (X,), "all_reduce", (64, 64)),
        ("c10d._allgather_base_.default", (view(1, 8, 4), X), (), "all_gather", (64, 128)),
        ("c10d._reduce_scatter_base_.default", (view(1, 2, 4), X), (), "reduce_scatter", (64, 32)),
        ("c10d.alltoall_base_.default", (A, X, "group", (), ()), (), "all_to_all", (64, 64)),
        ("c10d.broadcast_.default", (X, "group", 0, 0), (X,), "collective_broadcast", (64, 64)),
        ("_c10d_functional.all_reduce.default", (X, "sum", "0"), (A,), "all_reduce", (64, 64)),
        (
            "_c10d_functional.all_gather_into_tensor.default", (X, 2, "0"), (view(1, 8, 4),),
            "all_gather", (64, 128),
        ),
        (
            "_c10d_functional.reduce_scatter_tensor.default", (X, "sum", 2, "0"),
            (view(1, 2, 4),), "reduce_scatter", (64, 32),
        ),
        (
            "_c10d_functional.all_to_all_single.default", (X, (2, 2), (2, 2), "0"), (A,),
            "all_to_all", (64, 64),
        ),
        (
            "_c10d_functional.all_to_all_single.default", (X, (1, 2), (3, 1), "0"),
            (view(1, 3, 4),), "ragged_all_to_all", (64, 48),
        ),
        (
            "_dtensor.shard_dim_alltoall.default", (X, 0, 1, "0"), (view(1, 8, 2),),
            "all_to_all", (64, 64),
        ),
        ("c10d.barrier.default", (X,), (), "all_reduce", (4, 4)),
    ],
)  # fmt: skip
def test_a_communication_has_the_bytes_and_every_ranks_group(name, args, results, kind, bytes_):
    found = communicated(name, args, results, reduction="sum")
    assert found.kind == kind
    assert (sum(found.operand_bytes), sum(found.result_bytes)) == bytes_
    assert [tuple(row) for row in np.array(found.groups.table()).tolist()] == [(0, 1), (2, 3)]


def test_a_coalesced_all_reduce_is_one_of_several_operands():
    found = communicated(
        "c10d.allreduce_coalesced_.default", ((X, view(1, 2, 4)),), (), reduction="sum"
    )
    assert (found.kind, found.operand_bytes) == ("all_reduce", (64, 32))


@pytest.mark.parametrize("side", ["send", "receive"])
def test_both_sides_of_a_message_write_the_same_pairs(side):
    # From the first row of a 2 x 2 mesh to the second, rank 0 to 2; its neighbour's beside it.
    if side == "send":
        found = communicated("c10d.send.default", (X, "group", 2, 7), (), rank=0, peer=2)
    else:
        found = communicated("c10d.recv_.default", (X, "group", 0, 7), (), rank=2, peer=0)
    assert found.kind == "collective_permute"
    assert found.permutation.target.tolist() == [2, 3, -1, -1]


def test_an_unknown_communication_is_refused():
    op = Op(name="c10d.unknown_.default", args=(X,), kwargs={}, results=(), group=0)
    made = recording([op], [Input(X, "batch", "")], [], groups=(Group("g", "", (0, 1)),))
    with pytest.raises(FlintError, match="cannot be written as a StableHLO collective"):
        emitted(made)


@st.composite
def boxes(draw):
    """A mesh, and a group along some whole axes of it through some rank."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    along = [axis for axis in range(len(shape)) if draw(st.booleans())]
    rank = draw(st.integers(0, int(np.prod(shape)) - 1))
    return shape, along, rank


@given(boxes(), st.booleans())
def test_groups_along_mesh_axes_are_all_groups_along_them(case, flat):
    """Against reshape and transpose of all ranks; also where the mesh is not known as one."""
    shape, along, rank = case
    world = np.arange(np.prod(shape)).reshape(shape)
    rest = [axis for axis in range(len(shape)) if axis not in along]
    size = int(np.prod([shape[axis] for axis in along], initial=1))
    truth = world.transpose(rest + along).reshape(-1, size)
    (own,) = (row for row in truth if rank in row)
    found = full_groups(own.tolist(), (world.size,) if flat else shape)
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, truth.tolist()))


@given(boxes(), st.randoms(use_true_random=False))
def test_the_order_of_a_group_is_kept(case, random):
    shape, along, rank = case
    world = np.arange(np.prod(shape)).reshape(shape)
    rest = [axis for axis in range(len(shape)) if axis not in along]
    rows = world.transpose(rest + along).reshape(-1, int(np.prod([shape[a] for a in along])))
    (own,) = (row.tolist() for row in rows if rank in row)
    random.shuffle(own)
    assert own in full_groups(own, shape).tolist()


def test_ranks_beside_a_group_that_does_not_tile_are_alone():
    # First and last stage of three, two ranks each.
    table = full_groups((0, 4), (3, 2))
    assert table.tolist() == [[0, 4], [1, 5], [2, -1], [3, -1]]


def test_pairs_are_shifted_along_the_axes_that_a_message_does_not_cross():
    assert full_pairs(1, 3, (3, 2)).tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("ranks", [(0, 9), (0, 0), ()])
def test_a_group_outside_the_world_is_refused(ranks):
    with pytest.raises(FlintError, match="process group"):
        full_groups(ranks, (2, 2))


def test_what_is_assumed_of_an_uneven_exchange_is_a_warning():
    op = Op(
        name="_c10d_functional.all_to_all_single.default", args=(X, (1, 2), (3, 1), "0"),
        kwargs={}, results=(view(1, 3, 4),), group=0,
    )  # fmt: skip
    made = recording(
        [op], [Input(X, "batch", "")], [], groups=(Group("g", "", (0, 1)),),
        storage_bytes=(64, 48),
    )  # fmt: skip
    assert sum(emitted(made).warnings.values()) == 1
