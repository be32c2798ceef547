"""What-if passes: what they keep, what they change, what it costs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.cli import main
from flint.cost.hardware import System
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import EdgeKind, Loop, NodeKind, WorkloadGraph
from flint.graph.tensor_types import tensor_type
from flint.graph.unrolling import unroll
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.passes.what_if import parse_pass, transform
from flint.workload.programs import Program, ProgramInput, with_communicators
from flint.workload.workload import Workload
from tests.converters.chakra.write.cases import any_communication
from tests.graph.unrolling.random_graphs import programs
from tests.passes.building import INDEX, SHARD, WEIGHT, Graph, training_step
from tests.passes.totals import work
from tests.support.shared import examples

EVERY = [
    "bucket:kind=all_gather,bytes=5kB",
    "bucket:kind=reduce_scatter,bytes=1MiB",
    "bucket:kind=all-reduce",
    "hoist:by=1",
    "hoist:by=100",
    "defer:by=1",
    "defer:by=100",
    "split:kind=all_gather,chunks=3",
    "split:kind=reduce_scatter,chunks=7",
]


def payload(graph: WorkloadGraph) -> Counter[str]:
    """Operand and result bytes by kind, loops multiplied."""
    total: Counter[str] = Counter()
    for block, times in graph.walk():
        for node in block:
            if node.kind == NodeKind.COMMUNICATION:
                item = graph.tables.communications[int(block.detail[node.index])]
                total[item.kind + " in"] += times * item.bytes_in
                total[item.kind + " out"] += times * item.bytes_out
    return total


def sizes(graph: WorkloadGraph) -> list[tuple[str, int]]:
    """Communications in issue order: kind and operand bytes."""
    table = graph.tables.communications
    chosen = graph.detail[graph.kind == NodeKind.COMMUNICATION].tolist()
    return [(table[i].kind, table[i].bytes_in) for i in chosen]


def needs(graph: WorkloadGraph) -> set[tuple[str, str]]:
    """Pairs of names of compute ops of which one follows from the other by data."""
    before: list[set[str]] = []
    found = set()
    for node in graph:
        mine: set[str] = set()
        low, high = graph.operand_ptr[node.index : node.index + 2]
        for value in graph.operand[low:high]:
            maker = int(graph.producer[value])
            if maker >= 0:
                mine |= before[maker]
                if graph.kind[maker] == NodeKind.COMPUTE:
                    mine.add(graph[maker].op)
        before.append(mine)
        if node.kind == NodeKind.COMPUTE:
            found |= {(other, node.op) for other in mine}
    return found


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


BIG = tensor_type((4096, 4096), "bf16")
PIECE = tensor_type((512, 4096), "bf16")
STACK = tensor_type((12, 512, 4096), "bf16")
MULTIPLY = Work(
    (WorkItem(Unit.MATMUL, "bf16", 2 * 4096**3, (1, 4096, 4096, 4096)),), 1 << 26, 1 << 25
)


def slowed(factor: float) -> System:
    """DGX H100 with so much of its bandwidth."""
    system = load_system("dgx-h100")
    tiers = tuple(replace(tier, bandwidth=tier.bandwidth * factor) for tier in system.network)
    return replace(system, network=tiers)


def sharded_layers(layers: int, held: bool = True) -> Workload:
    """Every layer gathers its weight, held back until the layer before it is done or not, and
    multiplies by it four times."""
    g = Graph()
    x = g.input(BIG)
    for number in range(layers):
        edge = ((g.last, EdgeKind.ORDER),) if number and held else ()
        weight = g.communicate("all_gather", g.input(PIECE), PIECE, BIG, edge)
        for _ in range(4):
            x = g.op("dot_general", Role.CONTRACTION, (x, weight), BIG, MULTIPLY)
    graph = g.finish(x)
    inputs = tuple(ProgramInput(graph.type_of(i), "parameter") for i in range(graph.inputs))
    program = Program("main", graph, all_ranks(8), inputs)
    return Workload(Mesh((8,), ("data",)), with_communicators((program,)))


def test_hoisting_hides_gathers_and_costs_memory():
    workload = sharded_layers(6)
    plain, hoisted = workload.simulate(), workload.simulate(passes=["hoist:by=1"])
    # One gather of six is still before all compute; the others are behind a longer layer.
    assert plain.exposed_communication_seconds == pytest.approx(plain.communication_seconds)
    assert hoisted.exposed_communication_seconds == pytest.approx(plain.communication_seconds / 6)
    assert hoisted.step_seconds < plain.step_seconds
    assert hoisted.compute_seconds == plain.compute_seconds
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
        ("hoist:by=1,by=2", "option 'by': given twice"),
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
    """At most the compute is hidden, which is nothing beside the gathers of a slow network."""
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


def looped(tables, once, layers):
    """A workload of 8 ranks that runs a body with 2 carried values so many times."""
    outer = GraphBuilder(tables)
    operands = [outer.input(int(i)) for i in once.input_type]
    graph = outer.finish(outer.loop(Loop(once, 2, layers), operands))
    inputs = tuple(ProgramInput(graph.type_of(i), "parameter") for i in range(graph.inputs))
    program = Program("main", graph, all_ranks(8), inputs)
    return Workload(Mesh((8,), ("data",)), with_communicators((program,)))


def looped_layers(layers: int) -> Workload:
    """A loop that slices and gathers its iteration's weight, multiplies by it four times and
    reduces a gradient: the next gather comes after the reduction in the order of communications."""
    tables = TableBuilder()
    body = Graph(tables)
    counter, x, stacked = body.input(INDEX), body.input(BIG), body.input(STACK)
    cut = Work((), PIECE.bytes, PIECE.bytes)
    following = body.op("add", Role.ELEMENTWISE, (counter,), INDEX)
    index = body.op("remainder", Role.ELEMENTWISE, (counter,), INDEX)
    own = body.op("negate", Role.ELEMENTWISE, (x, index), BIG)
    piece = body.op("dynamic_slice", Role.MOVEMENT, (stacked, index), PIECE, cut)
    weight = body.communicate("all_gather", piece, PIECE, BIG)
    own = body.op("dot_general", Role.CONTRACTION, (own, weight), BIG, MULTIPLY)
    for _ in range(3):
        own = body.op("dot_general", Role.CONTRACTION, (own, weight), BIG, MULTIPLY)
    body.communicate("reduce_scatter", own, BIG, PIECE)
    once = body.builder.finish((following, own))
    return looped(tables, once, layers)


@pytest.mark.parametrize("by", [1, 2, 3, 11, 12, 50])
def test_loops_gather_ahead_without_another_byte_or_flop(by):
    graph = looped_layers(12).graph
    after = transform(graph, [f"hoist:by={by}"])
    ahead = min(by, 11)
    assert payload(after) == payload(graph)
    assert payload(after)["all_gather in"] == 12 * PIECE.bytes
    assert work(after) == work(graph)
    assert [loop.trip_count for loop in after.loops] == [12 - ahead, ahead]
    before = [node.op for node in after if node.kind != NodeKind.LOOP]
    assert before.count("dynamic_slice") == before.count("all_gather") == ahead
    first, second = (loop.body for loop in after.loops)
    assert [kind for kind, _ in sizes(first)] == ["all_gather", "reduce_scatter"]
    assert [kind for kind, _ in sizes(second)] == ["reduce_scatter"]
    # Other products of this iteration's weight read what is carried and not the gather.
    unrolled = unroll(after)
    ops = [unrolled.graphs[0].tables.ops[i] for i in unrolled.column("op")[unrolled.template]]
    gathers = [i for i, op in enumerate(ops) if op == "all_gather"]
    readers = [
        {int(c) for c in unrolled.consumer[(unrolled.deps == i) & (unrolled.dep_kind == 0)]}
        for i in gathers
    ]
    products = [i for i, op in enumerate(ops) if op == "dot_general"]
    assert readers == [set(products[4 * i : 4 * i + 4]) for i in range(12)]


def test_a_loop_that_gathers_ahead_is_shorter_and_takes_a_weight_more():
    workload = looped_layers(12)
    plain, ahead = workload.simulate(), workload.simulate(passes=["hoist:by=1"])
    assert ahead.step_seconds < plain.step_seconds
    assert ahead.exposed_communication_seconds < plain.exposed_communication_seconds
    assert ahead.communication_seconds == pytest.approx(plain.communication_seconds)
    assert ahead.peak_memory_bytes > plain.peak_memory_bytes
    slow = slowed(1e-3)
    before, after = workload.simulate(slow), workload.simulate(slow, passes=["hoist:by=1"])
    assert 1 - after.step_seconds / before.step_seconds < 0.02


def tensor_parallel_layers(layers: int) -> Workload:
    """A loop in which each of two products gathers its weight, and an all-reduce stands between
    them, which the second product needs."""
    tables = TableBuilder()
    body = Graph(tables)
    counter, x, stacked = body.input(INDEX), body.input(BIG), body.input(STACK)
    cut = Work((), PIECE.bytes, PIECE.bytes)
    for number in range(2):
        piece = body.op("dynamic_slice", Role.MOVEMENT, (stacked, counter), PIECE, cut)
        weight = body.communicate("all_gather", piece, PIECE, BIG)
        x = body.op("dot_general", Role.CONTRACTION, (x, weight), BIG, MULTIPLY)
        if not number:
            x = body.communicate("all_reduce", x, BIG, BIG)
    following = body.op("add", Role.ELEMENTWISE, (counter,), INDEX)
    once = body.builder.finish((following, x))
    return looped(tables, once, layers)


def test_gathers_ahead_keep_their_place_among_other_communication():
    """What an iteration waits for does not stand behind all gathers of a later one."""
    workload = tensor_parallel_layers(12)
    first, second = (loop.body for loop in transform(workload.graph, ["hoist:by=2"]).loops)
    assert [kind for kind, _ in sizes(first)] == ["all_gather", "all_reduce", "all_gather"]
    assert [kind for kind, _ in sizes(second)] == ["all_reduce"]
    for factor in (1.0, 0.3, 0.1):
        system = slowed(factor)
        plain = workload.simulate(system).step_seconds
        assert workload.simulate(system, passes=["hoist:by=1"]).step_seconds < plain


def test_each_iteration_further_ahead_puts_its_gathers_before_everything_else():
    """A gather takes less than a product, so one iteration ahead hides all of them.  The first
    all-reduce waits until the gathers of k iterations are through, as communications have one
    order: each more makes the step longer by two gathers."""
    workload = tensor_parallel_layers(12)
    results = [workload.simulate(passes=[f"hoist:by={k}"]) for k in (2, 3, 4, 9)]
    rows = {row.name: row for row in results[0].programs[0].classes}
    gather = rows["all_gather over data"]
    one = gather.seconds / gather.count
    assert gather.count == 24 and one < rows["matmul"].seconds / rows["matmul"].count
    steps = [result.step_seconds for result in results]
    assert steps[1] - steps[0] == pytest.approx(2 * one)
    assert steps[2] - steps[1] == pytest.approx(2 * one)
    assert steps[3] - steps[2] == pytest.approx(10 * one)


@given(programs(any_communication), st.lists(st.sampled_from(EVERY), min_size=1, max_size=3))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_keeps_its_payload_and_work_and_still_unrolls(graph, passes):
    after = transform(graph, passes)
    assert +payload(after) == +payload(graph)
    assert work(after) == work(graph)
    unroll(after)  # raises where an edge points backwards


def recorded(layers: int) -> WorkloadGraph:
    """A backward pass on two streams: each layer's gradient is made on the compute stream and
    reduced on the other one, and the compute stream waits for the reduction before last."""
    g = Graph()
    x, compute, reductions = g.input(BIG), -1, []
    for number in range(layers):
        edges = [(compute, EdgeKind.STREAM)] if number else []
        if len(reductions) > 1:
            edges.append((reductions[-2], EdgeKind.ORDER))
        x = g.op("dot_general", Role.CONTRACTION, (x,), BIG, MULTIPLY, order=edges)
        compute = g.last
        before = [(reductions[-1], EdgeKind.STREAM)] if reductions else []
        g.communicate("reduce_scatter", x, BIG, PIECE, tuple(before))
        reductions.append(g.last)
    return g.finish(x)


def test_buckets_give_up_waiting_on_streams_and_for_events():
    graph = recorded(6)
    after = transform(graph, [f"bucket:bytes={3 * BIG.bytes}"])
    assert [node.op for node in after] == [*["dot_general"] * 3, "reduce_scatter"] * 2
    # The second half's products come behind the first bucket: those that waited for it still do.
    assert 3 in after.predecessors(4) and 3 in after.predecessors(7)
    assert payload(after) == payload(graph) and needs(graph) <= needs(after)


def test_deferred_reductions_hold_nobody_up():
    graph = recorded(4)
    after = transform(graph, ["defer:by=2"])
    assert [node.op for node in after] == [
        "dot_general", "dot_general", "dot_general", "reduce_scatter",
        "dot_general", "reduce_scatter", "reduce_scatter", "reduce_scatter",
    ]  # fmt: skip
    assert payload(after) == payload(graph) and needs(graph) <= needs(after)


def test_a_stream_goes_on_where_a_reduction_was_taken_out_of_it():
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


def test_a_pass_that_changes_nothing_says_so():
    workload = sharded_layers(3)
    notes = workload.simulate(passes=["bucket:kind=all_reduce", "hoist:by=1"]).notes
    assert "pass bucket:kind=all_reduce,bytes=26214400 changed nothing" in notes
    assert "after pass hoist:by=1" in notes
