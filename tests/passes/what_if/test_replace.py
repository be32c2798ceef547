"""Replacing an algorithm: the same values on every rank, steps and times by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.cost.hardware import Tier
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.unrolling import unroll
from flint.graph.work import Role
from flint.mesh.groups import Groups, along_axes, everybody, from_table
from flint.mesh.mesh import Mesh
from flint.passes.what_if import transform
from tests.converters.chakra.write.cases import any_communication
from tests.graph.unrolling.random_graphs import programs
from tests.passes.building import Graph
from tests.passes.totals import work
from tests.passes.what_if.layers import needs
from tests.simulation.test_simulate import BIG, product, workload_of
from tests.support.shared import examples

H100 = load_system("dgx-h100")
TWO_STEP = "replace:kind=all-reduce,by=reduce-scatter+all-gather"


def one(kind: str, groups: Groups, elements: int, results: int) -> WorkloadGraph:
    """A program of one collective of f32."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    before, after = tensor_type((elements,), "f32"), tensor_type((results,), "f32")
    value = builder.input(tables.type(before))
    item = Communication(kind, "add", groups, None, (before.bytes,), (after.bytes,), ("f32",))
    made = builder.communication(item, (value,), (after,))
    return with_tables(builder.finish(made), tables.finish())


def execute(graph: WorkloadGraph, buffers: list[np.ndarray]) -> list[np.ndarray]:
    """What every rank ends with: the textbook meaning of each collective, on real arrays."""
    values = {0: buffers}
    for node in graph:
        item = graph.tables.communications[int(graph.detail[node.index])]
        low, high = graph.operand_ptr[node.index : node.index + 2]
        (value,) = graph.operand[low:high].tolist()
        held, made = values[value], [np.zeros(0)] * len(buffers)
        assert item.bytes_in == 4 * len(held[0])
        for row in item.groups.table():
            ranks = [int(rank) for rank in row if rank >= 0]
            mine = [held[rank] for rank in ranks]
            part = item.bytes_out // 4
            for at, rank in enumerate(ranks):
                if item.kind == "all_reduce":
                    made[rank] = np.sum(mine, axis=0)
                elif item.kind == "all_gather":
                    made[rank] = np.concatenate(mine)[:part]
                elif item.kind == "reduce_scatter":
                    padded = np.pad(np.sum(mine, axis=0), (0, part * len(ranks) - len(mine[0])))
                    made[rank] = padded[at * part : (at + 1) * part]
                else:
                    size = len(mine[0]) // len(ranks)
                    made[rank] = np.concatenate(
                        [other[at * size : (at + 1) * size] for other in mine]
                    )
        (result,) = [graph.inputs + int(graph.result_ptr[node.index])]
        values[result] = made
        assert all(item.bytes_out == 4 * len(held) for held in made)
    return values[int(graph.outputs[0])]


@given(st.sampled_from([(2, 4), (4, 3), (3, 5), (6, 2)]), st.integers(1, 40), st.integers(0, 9))
def test_two_steps_give_what_an_all_reduce_gives(shape, elements, seed):
    """Also where the ranks do not divide the elements, or are more than they."""
    mesh = Mesh(shape, ("data", "model"))
    random = np.random.default_rng(seed)
    buffers = [random.integers(0, 99, elements) for _ in range(mesh.size)]
    for axes in (("data",), ("model",), ("data", "model")):
        graph = one("all_reduce", along_axes(mesh, axes), elements, elements)
        after = transform(graph, [TWO_STEP])
        assert [node.op for node in after] == ["reduce_scatter", "all_gather"]
        for mine, theirs in zip(execute(after, buffers), execute(graph, buffers), strict=True):
            assert np.array_equal(mine, theirs)


@pytest.mark.parametrize(("world", "inner"), [(8, 2), (8, 4), (12, 3), (24, 8)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_hierarchical_ones_give_the_same_values(world, inner, shuffled):
    """An all-reduce to the element; the others in another order of the parts: as sets."""
    random = np.random.default_rng(world)
    rows = random.permutation(world)[None] if shuffled else np.arange(world)[None]
    groups = from_table(world, rows)
    for kind, elements, results in (
        ("all_reduce", 30, 30),  # 30 elements in 8 parts: not even
        ("all_gather", 5, 5 * world),
        ("reduce_scatter", 3 * world, 3),
        ("all_to_all", 2 * world, 2 * world),
    ):
        graph = one(kind, groups, elements, results)
        after = transform(graph, [f"replace:kind={kind},by=hierarchical,inner={inner}"])
        assert len(after) == (3 if kind == "all_reduce" else 2)
        buffers = [random.integers(0, 1 << 40, elements) for _ in range(world)]
        mine, theirs = execute(after, buffers), execute(graph, buffers)
        if kind == "all_reduce":
            assert all(map(np.array_equal, mine, theirs))
        elif kind == "all_gather":
            assert all(map(np.array_equal, map(np.sort, mine), map(np.sort, theirs)))
        elif kind == "reduce_scatter":  # who has which part is another
            assert np.array_equal(np.sort(np.concatenate(mine)), np.sort(np.concatenate(theirs)))


def test_parts_of_one_rank_are_refused():
    """They would be a reduce-scatter of everything to everybody."""
    graph = one("all_reduce", everybody(4), 8, 8)
    with pytest.raises(UsageError, match="inner=1: a part has at least 2 ranks"):
        transform(graph, ["replace:by=hierarchical,inner=1"])
    assert len(transform(graph, ["replace:inner=1"])) == 2  # not asked for there


def test_times_by_hand():
    """4 nodes of 4, 100 GB/s and 1 us inside, 10 GB/s and 10 us across, rings; 1.6 GB over all 16.

    Two steps: each hierarchical by itself, 3/4 of 1.6 GB inside (12 ms, 3 us), then 3/4 of the
    400 MB that are left (30 ms, 30 us).
    Hierarchical: the same inside, and an all-reduce of 400 MB across: twice 30 ms and 30 us.
    """
    tiers = (Tier("node", 4, "Switch", 100e9, 1e-6), Tier("net", 0, "Switch", 10e9, 10e-6))
    accelerator = replace(H100.accelerator, launch_overhead=0.0)
    system = replace(H100, accelerator=accelerator, network=tiers)
    graph = one("all_reduce", everybody(16), 400_000_000, 400_000_000)
    workload = workload_of(graph, mesh=Mesh((16,), ("data",)))
    step = (12e-3 + 3e-6) + (30e-3 + 30e-6)
    for text in (TWO_STEP, "replace:by=hierarchical,inner=4"):
        result = workload.simulate(system, passes=[text], algorithm="hierarchical")
        assert result.step_seconds == pytest.approx(2 * step)
        rows = {row.name: row.bytes for row in result.programs[0].classes}
        if text == TWO_STEP:
            assert rows == {
                "reduce_scatter over data": 1.6e9, "all_gather over data": 1e8
            }  # fmt: skip
        else:
            assert sorted(rows.values()) == [4e8, 4e8, 1.6e9]


def test_what_waits_for_an_all_reduce_waits_for_its_last_step():
    g = Graph()
    x = g.elementwise(g.input(), name="first")
    y = g.all_reduce(x, order=((0, EdgeKind.STREAM),))
    g.op("other", Role.ELEMENTWISE, (x,), order=((1, EdgeKind.STREAM),))
    graph = g.finish(g.elementwise(y, name="last"))
    after = transform(graph, [TWO_STEP])
    assert [node.op for node in after] == ["first", "reduce_scatter", "all_gather", "other", "last"]
    assert [sorted(after.predecessors(i)) for i in range(5)] == [[], [0], [1], [0, 2], [2]]


def test_what_cannot_be_replaced_stays_and_reports_it():
    mesh = Mesh((8,), ("data",))
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = product(builder, builder.input(tables.type(BIG)))
    item = Communication(
        "all_reduce", "add", everybody(8), None, (BIG.bytes,), (BIG.bytes,), ("bf16",)
    )
    made = builder.communication(item, (value,), (BIG,))
    workload = workload_of(with_tables(builder.finish(made), tables.finish()), mesh=mesh)
    for inner in (3, 8, 16):  # no divisor, the whole group, more than it
        text = f"replace:kind=all_reduce,by=hierarchical,inner={inner}"
        assert f"pass {text} changed nothing" in workload.simulate(passes=[text]).notes
    with pytest.raises(UsageError, match="choose from kind=all_reduce,by=reduce-scatter"):
        workload.simulate(passes=["replace:kind=all_gather,by=reduce-scatter+all-gather"])
    with pytest.raises(UsageError, match=r"by='star': give reduce-scatter\+all-gather or hier"):
        workload.simulate(passes=["replace:by=star"])


TEXTS = [
    TWO_STEP,
    *(
        f"replace:kind={kind},by=hierarchical,inner=2"
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    ),
]


@given(programs(any_communication), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_program_keeps_its_work_and_its_dependences(graph, passes):
    after = transform(graph, passes)
    assert work(after) == work(graph)
    assert needs(graph) <= needs(after)
    others = {"collective_permute", "collective_broadcast", "ragged_all_to_all", "send", "recv"}
    kept = [
        [
            (item.kind, item.bytes_in)
            for block, _ in some.walk()
            for node in block
            if node.kind == NodeKind.COMMUNICATION
            for item in [some.tables.communications[int(block.detail[node.index])]]
            if item.kind in others
        ]
        for some in (graph, after)
    ]
    assert kept[0] == kept[1]
    unroll(after)  # raises where an edge points backwards
