"""What a recording becomes: order, streams, views, inputs, functions."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given

from flint.frontends.torch.emission import emitted
from flint.frontends.torch.recording.recording import Input, Op, View
from flint.graph.graph import EdgeKind, Phase
from flint.graph.work import Role
from flint.stablehlo.read.bindings import parse
from flint.stablehlo.read.reader import read_mlir
from tests.frontends.torch.executing import execute
from tests.frontends.torch.own_recordings import A, B, C, X, graph_of, recording, view

# How ops were issued.


def relu(source, target, **how):
    return Op(name="aten.relu.default", args=(source,), kwargs={}, results=(target,), **how)


def waits(graph):
    return {
        node: {
            (int(graph.order_node[i]), EdgeKind(graph.order_kind[i]))
            for i in range(graph.order_ptr[node], graph.order_ptr[node + 1])
        }
        for node in range(len(graph))
    }


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


def test_views_take_no_time_and_are_not_kernels():
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
