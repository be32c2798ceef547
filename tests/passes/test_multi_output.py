"""Kernels of several results: what is joined, what it saves, and what stays apart."""

from __future__ import annotations

from flint.graph.tensor_types import tensor_type
from flint.graph.verification import verify
from flint.passes.multi_output import Joiner
from flint.passes.xla.fuse import fuse_as_xla
from tests.passes.building import ACTIVATION, SCALAR, SHARD, WEIGHT, Graph


def fused(graph):
    found = fuse_as_xla(graph)
    verify(found)
    return [(node.op, node.work.read, node.work.written) for node in found]


def test_results_of_the_same_inputs_are_one_kernel() -> None:
    """A momentum and a parameter of a gradient: each is read once, both are written."""
    g = Graph()
    gradient, momentum, parameter = g.input(), g.input(), g.input()
    moved = g.elementwise(momentum, gradient, name="momentum")
    graph = g.finish(moved, g.elementwise(parameter, moved, name="parameter"))
    size = ACTIVATION.bytes
    assert fused(graph) == [("momentum", 3 * size, 2 * size)]


def test_a_reduction_joins_what_writes_the_tensor_that_it_sums_up() -> None:
    g = Graph()
    made = g.elementwise(g.input(), g.input())
    graph = g.finish(made, g.reduce(made))
    size = ACTIVATION.bytes
    assert fused(graph) == [("add", 2 * size, size + SCALAR.bytes)]


def test_nothing_is_joined_around_a_product() -> None:
    g = Graph()
    x, weight = g.input(), g.input(WEIGHT)
    first = g.elementwise(x, g.input(), name="first")
    made = g.dot(first, weight)
    turned = g.move(made, ACTIVATION, ACTIVATION)
    second = g.elementwise(x, turned, name="second")
    found = fused(g.finish(first, second, turned))
    assert [op for op, *_ in found] == ["first", "dot_general", "second"]


def test_kernels_that_wait_for_other_communications_stay_apart() -> None:
    g = Graph()
    x = g.input()
    gathered = g.all_reduce(g.input())
    graph = g.finish(g.elementwise(x, name="soon"), g.elementwise(x, gathered, name="late"))
    assert sorted(op for op, *_ in fused(graph)) == ["all_reduce", "late", "soon"]


def test_tensors_of_other_sizes_stay_apart() -> None:
    """What works on a lone broadcast works on what is broadcast, in its kernel: of a negation and a
    broadcast exponential, XLA (jaxlib 0.10.2) makes ``wrapped_negate``, 256 bytes each way, and
    ``loop_broadcast_fusion``, which reads 256 and writes 2048."""
    g = Graph()
    scale = g.input(SHARD)
    wide = tensor_type((*SHARD.shape[:-1], 8 * SHARD.shape[-1]), SHARD.dtype)
    spread = g.move(scale, SHARD, wide, "broadcast_in_dim")
    graph = g.finish(
        g.elementwise(scale, of=SHARD, name="small"), g.elementwise(spread, of=wide, name="large")
    )
    assert fused(graph) == [("small", 256, 256), ("broadcast_in_dim", 256, 2048)]


def test_a_path_through_a_joined_kernel_may_lead_back() -> None:
    """first -> between -> later, which is one kernel with earlier -> end."""
    g = Graph()
    first = g.elementwise(g.input(), name="first")
    end = g.elementwise(g.elementwise(g.input(), name="earlier"), name="end")
    later = g.elementwise(g.elementwise(first, name="between"), name="later")
    graph = g.finish(end, later)
    place = {node.op: number for number, node in enumerate(graph)}
    joiner = Joiner(graph, [False] * graph.inputs, False)
    assert not joiner._between(place["first"], place["end"], False)
    joiner.into[place["later"]] = place["earlier"]
    joiner.members[place["earlier"]] += joiner.members.pop(place["later"])
    joiner._around(place["earlier"])
    assert joiner._between(place["first"], place["end"], False)
