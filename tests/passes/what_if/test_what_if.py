"""What-if passes: what they keep, what they change, what it costs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.cli import main
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import EdgeKind, Loop, NodeKind
from flint.graph.unrolling import unroll
from flint.graph.work import Role
from flint.passes.what_if import parse_pass, transform
from tests.converters.chakra.write.cases import any_communication
from tests.graph.unrolling.random_graphs import programs
from tests.passes.building import SHARD, WEIGHT, Graph, training_step
from tests.passes.totals import work
from tests.passes.what_if.layers import (
    BIG,
    EVERY,
    MULTIPLY,
    PIECE,
    needs,
    payload,
    recorded,
    sharded_layers,
    sizes,
    slowed,
)
from tests.support.shared import examples


@pytest.mark.parametrize("text", EVERY)
def test_payload_work_and_dependences_stay(text):
    graph = training_step(5)
    after = transform(graph, [text])  # verified: edges point forward
    # 5 layers, each gathers and reduces once: shards of 256 bytes, weights of 2048.
    assert payload(graph) == payload(after)
    assert payload(after)["all_gather in"] == 5 * 256
    assert payload(after)["reduce_scatter in"] == 5 * 2048
    assert work(after) == work(graph)
    assert needs(graph) <= needs(after)


def test_buckets_fill_up_to_their_size():
    graph = transform(training_step(5), ["bucket:kind=all_gather,bytes=4096"])
    gathers = [size for kind, size in sizes(graph) if kind == "all_gather"]
    assert gathers == [512, 512, 256]  # two weights of 2048 bytes fill a bucket


def test_what_depends_on_a_bucket_is_not_in_it():
    g = Graph()
    first = g.all_reduce(g.input())
    second = g.all_reduce(g.elementwise(first))
    other = g.all_reduce(g.input())
    graph = transform(g.finish(second, other), ["bucket:kind=all_reduce,bytes=1GiB"])
    assert [size for _, size in sizes(graph)] == [8192, 2 * 8192]


def test_buckets_never_wait_for_each_other():
    """a1 -> b2 and b1 -> a2 forbid that both pairs become buckets."""
    g = Graph()
    a1, b1 = g.input(), g.input(SHARD)
    a1, b1 = g.reduce_scatter(g.input(WEIGHT)), g.communicate("reduce_scatter", a1, WEIGHT, SHARD)
    b2 = g.communicate("reduce_scatter", g.elementwise(a1, of=WEIGHT), WEIGHT, SHARD)
    a2 = g.reduce_scatter(g.elementwise(b1, of=WEIGHT))
    graph = transform(g.finish(a2, b2), ["bucket:bytes=1GiB"])
    assert sorted(size for _, size in sizes(graph)) == [4096, 4096]


def test_chunks_sum_up_and_stand_one_after_another():
    graph = transform(training_step(1), ["split:kind=all_gather,chunks=3"])
    assert sizes(graph)[:3] == [("all_gather", 85), ("all_gather", 85), ("all_gather", 86)]
    assert [sorted(graph.predecessors(i)) for i in range(3)] == [[], [0], [1]]


def test_deferred_reductions_stand_later():
    g = Graph()
    x = g.input(WEIGHT)
    g.reduce_scatter(x)
    g.reduce_scatter(g.elementwise(x, of=WEIGHT, name="one"))
    outputs = [g.elementwise(x, of=WEIGHT, name="two")]
    graph = transform(g.finish(*outputs), ["defer:by=1"])
    assert [node.op for node in graph] == ["one", "reduce_scatter", "two", "reduce_scatter"]


def test_hoisted_gathers_take_the_place_and_the_order_edges_of_an_earlier_one():
    g = Graph()
    shards = [g.input(SHARD) for _ in range(3)]
    x = g.input()
    for number, shard in enumerate(shards):
        edge = ((g.last, EdgeKind.ORDER),) if number else ()
        weight = g.communicate("all_gather", shard, SHARD, WEIGHT, edge)
        x = g.elementwise(g.dot(x, weight), name=f"layer{number}")
    graph = transform(g.finish(x), ["hoist:by=1"])
    assert [node.op for node in graph if node.op != "dot_general"] == [
        "all_gather", "all_gather", "layer0", "all_gather", "layer1", "layer2"
    ]  # fmt: skip
    order = list(zip(graph.order_node.tolist(), graph.order_kind.tolist(), strict=True))
    assert [(graph[node].op, kind) for node, kind in order] == [("layer0", EdgeKind.ORDER)]


def test_gathers_of_activations_are_left_alone():
    g = Graph()
    x = g.input()
    gathered = g.all_gather(g.dot(x, g.input(WEIGHT), SHARD))
    graph = g.finish(g.all_gather(g.dot(gathered, x, SHARD)))
    after = transform(graph, ["hoist:by=9"])
    assert [node.op for node in after] == [node.op for node in graph]


def test_scaling_multiplies_compute_only():
    graph = training_step(3)
    after = transform(graph, ["scale:factor=0.5"])
    assert int(after.work_flops.sum()) * 2 == int(graph.work_flops.sum())
    assert int(after.bytes_written[after.kind == NodeKind.COMPUTE].sum()) * 2 == int(
        graph.bytes_written[graph.kind == NodeKind.COMPUTE].sum()
    )
    assert payload(after) == payload(graph)


def test_bodies_are_transformed_too():
    tables = TableBuilder()
    body = Graph(tables)
    x, shard = body.input(), body.input(SHARD)
    body_graph = body.builder.finish((body.elementwise(body.dot(x, body.all_gather(shard))),))
    outer = GraphBuilder(tables)
    operands = [outer.input(int(i)) for i in body_graph.input_type]
    graph = outer.finish(outer.loop(Loop(body_graph, 1, 6), operands))
    after = transform(graph, ["split:kind=all_gather,chunks=2"])
    assert payload(after) == payload(graph) and payload(after)["all_gather in"] == 6 * 256
    assert len(after.loops[0].body) == len(body_graph) + 1


def test_hoisting_hides_gathers_and_costs_memory():
    workload = sharded_layers(6)
    plain, hoisted = workload.simulate(), workload.simulate(passes=["hoist:by=1"])
    # One gather of six is still before all compute; the others are behind a longer layer.
    assert plain.exposed_communication_seconds == pytest.approx(plain.communication_seconds)
    assert hoisted.exposed_communication_seconds == pytest.approx(plain.communication_seconds / 6)
    assert hoisted.step_seconds < plain.step_seconds
    # Beside the other five, kernels have the multiprocessors that NCCL leaves them.
    beside = plain.communication_seconds * 5 / 6
    left = load_system("dgx-h100").accelerator.kernel.beside_communication
    assert hoisted.compute_seconds == pytest.approx(plain.compute_seconds + beside * (1 - left))
    # Two weights at once instead of one.
    assert hoisted.peak_memory_bytes == plain.peak_memory_bytes + BIG.bytes
    assert "after pass hoist:by=1" in hoisted.notes


def test_unknown_passes_and_options_are_one_line():
    for text, words in (
        ("prefetch", "pass 'prefetch': choose from bucket, hoist"),
        ("hoist:far=2", "option 'far': choose from by"),
        ("hoist:by=0", "by='0': give a whole number"),
        ("hoist:by", "by=''"),
        ("bucket:bytes=many", "give a size such as"),
        ("split:kind=send", "give a collective"),
        ("scale:factor=nan", "give a number"),
        ("hoist:by=1,by=2", "option 'by' is given twice"),
    ):
        with pytest.raises(UsageError) as caught:
            parse_pass(text)
        assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_graph_that_contradicts_itself_is_refused():
    graph = training_step(1)
    with pytest.raises(FlintError):
        transform(replace(graph, bytes_read=graph.bytes_read - 10**9), ["hoist"])


def test_nothing_is_gained_where_the_network_is_always_busy():
    """Gathers that nothing holds back follow one another: the slow network never stands still."""
    workload = sharded_layers(6, held=False)
    slow = slowed(1e-3)
    plain = workload.simulate(slow)
    hoisted = workload.simulate(slow, passes=["hoist:by=2"])
    assert plain.communication_seconds > 50 * plain.compute_seconds
    assert hoisted.step_seconds == plain.step_seconds
    assert hoisted.peak_memory_bytes > plain.peak_memory_bytes


def test_the_gain_vanishes_as_the_network_gets_slower():
    """At most the compute is hidden, which is little compared to the gathers of a slow network."""
    workload = sharded_layers(6)
    gains = []
    for factor in (1.0, 1e-1, 1e-2, 1e-3):
        system = slowed(factor)
        before = workload.simulate(system).step_seconds
        gains.append(1 - workload.simulate(system, passes=["hoist:by=6"]).step_seconds / before)
    assert gains[0] > 0.05 and gains[-1] < 0.02
    assert gains[1] > gains[2] > gains[3]


def test_the_command_takes_passes(tmp_path, capsys):
    sharded_layers(3).save_programs(tmp_path / "w")

    def status(*options: str) -> object:
        with pytest.raises(SystemExit) as stopped:
            main(["simulate", str(tmp_path / "w"), "--pass", "hoist:by=2", *options])
        return stopped.value.code

    assert status("--pass", "split:chunks=2", "--json") == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    applied = [note for note in notes if note.startswith("after pass")]
    assert applied == ["after pass hoist:by=2", "after pass split:kind=all_gather,chunks=2"]
    assert status("--pass", "later") == 2
    assert "pass 'later': choose from" in capsys.readouterr().err


@given(programs(any_communication), st.lists(st.sampled_from(EVERY), min_size=1, max_size=3))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_keeps_its_payload_and_work_and_still_unrolls(graph, passes):
    after = transform(graph, passes)
    assert +payload(after) == +payload(graph)
    assert work(after) == work(graph)
    unroll(after)  # raises where an edge points backwards


def test_buckets_give_up_waiting_on_streams_and_for_events():
    graph = recorded(6)
    after = transform(graph, [f"bucket:bytes={3 * BIG.bytes}"])
    assert [node.op for node in after] == [*["dot_general"] * 3, "reduce_scatter"] * 2
    # The second half's products come behind the first bucket: those that waited for it still do.
    assert 3 in after.predecessors(4) and 3 in after.predecessors(7)
    assert payload(after) == payload(graph) and needs(graph) <= needs(after)


def test_deferred_reductions_delay_no_other_op():
    graph = recorded(4)
    after = transform(graph, ["defer:by=2"])
    assert [node.op for node in after] == [
        "dot_general", "dot_general", "dot_general", "reduce_scatter",
        "dot_general", "reduce_scatter", "reduce_scatter", "reduce_scatter",
    ]  # fmt: skip
    assert payload(after) == payload(graph) and needs(graph) <= needs(after)


def test_a_stream_continues_where_a_reduction_was_removed_from_it():
    """One stream: product, reduction, product, all in line.  The reduction goes to the end, and the
    second product still comes after the first, whatever it is made from."""
    g = Graph()
    first = g.op("dot_general", Role.CONTRACTION, (g.input(BIG),), BIG, MULTIPLY)
    g.communicate("reduce_scatter", first, BIG, PIECE, ((0, EdgeKind.STREAM),))
    second = g.op(
        "dot_general", Role.CONTRACTION, (g.input(BIG),), BIG, MULTIPLY, ((1, EdgeKind.STREAM),)
    )
    graph = g.finish(first, second)
    after = transform(graph, ["defer:by=1"])
    assert [node.op for node in after] == ["dot_general", "dot_general", "reduce_scatter"]
    assert list(after.predecessors(1)) == [0]


def test_a_pass_that_changes_nothing_reports_it():
    workload = sharded_layers(3)
    notes = workload.simulate(passes=["bucket:kind=all_reduce", "hoist:by=1"]).notes
    assert "pass bucket:kind=all_reduce,bytes=26214400 changed nothing" in notes
    assert "after pass hoist:by=1" in notes
