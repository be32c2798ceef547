"""Whole simulations: steps by hand, invariants, the command line, bad input.

Longer than 300 lines because each step has its times derived by hand next to it.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.cli import main
from flint.cost.collectives import collective_seconds
from flint.cost.kernels import kernel_seconds
from flint.cost.placement import place
from flint.cost.prices import Prices
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.cost.uncertainty import spread_of
from flint.errors import FlintError, UsageError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import Loop, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.groups import StridedGroups, along_axes, everybody
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation
from flint.mesh.ranks import all_ranks, from_mask
from flint.simulation.actors import build_actors
from flint.simulation.durations import Costs
from flint.simulation.machine import run
from flint.workload.programs import Level, Program, ProgramInput, with_communicators
from flint.workload.workload import Workload
from tests.converters.chakra.write.cases import any_communication, communication
from tests.graph.unrolling.random_graphs import programs as random_programs
from tests.support.shared import examples

H100 = load_system("dgx-h100")
#: The same with kernels as fast during communication as alone.
ALONE = without(H100, ("contention",))
BIG = tensor_type((4096, 4096), "bf16")
_ITEM = WorkItem(Unit.MATMUL, "bf16", 2 * 4096**3, (1, 4096, 4096, 4096))
PRODUCT = Work((_ITEM,), 1 << 26, 1 << 25)


def product(builder: GraphBuilder, value: int) -> int:
    (made,) = builder.compute("dot_general", Role.CONTRACTION, (value,), (BIG,), PRODUCT)
    return made


def workload_of(*graphs: WorkloadGraph, mesh: Mesh, owner: np.ndarray | None = None) -> Workload:
    owner = np.zeros(mesh.size, np.int64) if owner is None else owner
    found = [
        Program(
            f"main_{number}" if len(graphs) > 1 else "main",
            graph,
            from_mask(owner == number) if len(graphs) > 1 else all_ranks(mesh.size),
            tuple(ProgramInput(graph.type_of(i), "parameter") for i in range(graph.inputs)),
        )
        for number, graph in enumerate(graphs)
    ]
    return Workload(mesh, with_communicators(tuple(found)))


def overlapped(mesh: Mesh, axis: str, products: int = 1) -> Workload:
    """An all-gather in parallel with ``products`` products that do not need it, then one that
    does.
    """
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value, weight = builder.input(tables.type(BIG)), builder.input(tables.type(BIG))
    shard = (BIG.bytes // 8,)
    item = Communication(
        "all_gather", None, along_axes(mesh, (axis,)), None, shard, (BIG.bytes,), ("bf16",)
    )
    (gathered,) = builder.communication(item, (weight,), (BIG,))
    for _ in range(products):
        value = product(builder, value)
    (last,) = builder.compute("dot_general", Role.CONTRACTION, (value, gathered), (BIG,), PRODUCT)
    return workload_of(with_tables(builder.finish((last,)), tables.finish()), mesh=mesh)


def test_a_step_by_hand():
    """The gather takes longer than the first product: the second begins when the gather is over."""
    workload = overlapped(Mesh((8, 8), ("data", "model")), "data")
    result = workload.simulate(ALONE)
    kernel = kernel_seconds(workload.graph, H100)[1]
    item = workload.graph.tables.communications[0]
    [profile] = place(item.groups, H100).profiles
    gather = collective_seconds(item, profile) + H100.accelerator.launch_overhead
    assert gather > kernel
    close = {"abs": 2e-12}  # times are whole picoseconds
    assert result.step_seconds == pytest.approx(gather + kernel, **close)
    assert result.compute_seconds == pytest.approx(2 * kernel, **close)
    assert result.communication_seconds == pytest.approx(gather, **close)
    assert result.exposed_communication_seconds == pytest.approx(gather - kernel, **close)
    assert result.figures.idle_seconds == 0
    assert result.flops == 64 * 2 * 2 * 4096**3
    ideal = 2 * 2 * 4096**3 / 989.4e12
    assert result.mfu == pytest.approx(ideal / result.step_seconds)
    rows = {row.name: row for row in result.programs[0].classes}
    assert set(rows) == {"matmul", "all_gather over data"}
    assert rows["matmul"].count == 2 and rows["all_gather over data"].bytes == BIG.bytes // 8


def test_communication_behind_enough_compute_is_not_exposed():
    result = overlapped(Mesh((8, 8), ("data", "model")), "model", 4).simulate("dgx-h100")
    assert result.exposed_communication_seconds == 0
    assert result.step_seconds == pytest.approx(result.compute_seconds)


def pipeline(microbatches: int) -> Workload:
    """Two stages of four ranks: the first computes and sends, the second receives and computes."""
    mesh = Mesh((2, 4), ("stage", "data"))
    down = permutation(8, np.array([[i, i + 4] for i in range(4)]))
    token = tensor_type((), "token")
    graphs = []
    for first in (True, False):
        tables = TableBuilder()
        body = GraphBuilder(tables)
        value = body.input(tables.type(BIG))
        size = (BIG.bytes,)
        if first:
            made = product(body, value)
            item = communication("send", peers=down, operands=size, results=(), channel=1)
            body.communication(item, (made,), (token,))
        else:
            item = communication("recv", peers=down, operands=(), results=size, channel=1)
            made, _ = body.communication(item, (), (BIG, token))
            made = product(body, made)
        outer = GraphBuilder(tables)
        start = outer.input(tables.type(BIG))
        results = outer.loop(Loop(body.finish((value,)), 1, microbatches), (start,))
        graphs.append(with_tables(outer.finish(results), tables.finish()))
    return workload_of(*graphs, mesh=mesh, owner=np.arange(8) // 4)


def test_pipeline_stages_overlap():
    """Stage 0 sends microbatch i while computing i + 1; stage 1 follows one product and send later.

    A send on NVLink (33.6 MB at 351 GB/s) takes less than a product, and a loop's next iteration
    sends only when the last one is over.
    """
    result = pipeline(6).simulate(ALONE)
    first, second = result.programs
    kernel = first.figures.compute_seconds / 6
    send = first.figures.communication_seconds / 6
    assert send < kernel
    assert second.figures.step_seconds == pytest.approx(kernel + send + 6 * kernel)
    assert second.figures.idle_seconds == pytest.approx(kernel + send)
    assert result.step_seconds == second.figures.step_seconds
    assert result.behaviours == 2


@given(random_programs(any_communication), st.integers(1, 20))
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
def test_never_below_critical_path_or_total_work_and_never_slower_with_bandwidth(graph, factor):
    """The critical path is the longest sum of durations along dependencies, worked out here."""
    workload = workload_of(graph, mesh=Mesh((3, 2), ("data", "model")))
    try:
        result = workload.simulate("dgx-h100", granularity="op")
    except FlintError as error:
        assert "nothing to simulate" in str(error)
        return
    graphs = [(workload.graph, np.arange(6))]
    costs = Costs(Prices(H100))
    actors = build_actors(graphs, 6, costs.ticks, costs=costs.columns)
    happened = run(actors.columns, actors.members)
    for actor, begin, end in zip(actors.columns, happened.start, happened.end, strict=True):
        longest = np.zeros(len(actor), np.int64)
        for node in range(len(actor)):
            before = actor.deps[actor.ptr[node] : actor.ptr[node + 1]]
            longest[node] = max(longest[before].max(initial=0), 0) + actor.ticks[node]
        assert end.max(initial=0) >= longest.max(initial=0)
        assert (begin >= 0).all()
        for kinds in ((4,), (5, 7)):
            assert end.max(initial=0) >= actor.ticks[np.isin(actor.types, kinds)].sum()
    faster = replace(
        H100, network=tuple(replace(t, bandwidth=t.bandwidth * factor) for t in H100.network)
    )
    quick = workload.simulate(faster, granularity="op")
    assert quick.communication_seconds <= result.communication_seconds * 1.000001


def test_more_bandwidth_is_never_slower_for_a_chain():
    for axis in ("data", "model"):
        workload = overlapped(Mesh((8, 8), ("data", "model")), axis)
        steps = []
        for factor in (0.1, 0.5, 1, 2, 10, 1000):
            tiers = tuple(replace(t, bandwidth=t.bandwidth * factor) for t in H100.network)
            steps.append(workload.simulate(replace(H100, network=tiers)).step_seconds)
        assert steps == sorted(steps, reverse=True)


def test_a_relabelled_mesh_takes_the_same_time():
    """Other axis names, and an axis split in two, change names and nothing else."""
    results = []
    for mesh, axes in (
        (Mesh((8, 8), ("data", "model")), ("data",)),
        (Mesh((8, 8), ("x", "y")), ("x",)),
        (Mesh((2, 4, 8), ("a", "b", "c")), ("a", "b")),
    ):
        tables = TableBuilder()
        builder = GraphBuilder(tables)
        value = product(builder, builder.input(tables.type(BIG)))
        size = (BIG.bytes,)
        item = Communication(
            "all_reduce", "add", along_axes(mesh, axes), None, size, size, ("bf16",)
        )
        (value,) = builder.communication(item, (value,), (BIG,))
        graph = with_tables(builder.finish((value,)), tables.finish())
        results.append(workload_of(graph, mesh=mesh).simulate("dgx-h100").figures)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("world", [64, 16384])
def test_the_number_of_behaviours_does_not_grow_with_ranks(world):
    mesh = Mesh((world // 8, 8), ("data", "model"))
    result = overlapped(mesh, "data").simulate("dgx-h100")
    assert (result.behaviours, result.ranks) == (1, world)


def test_groups_across_and_within_nodes_are_distinguished():
    """Pairs (0, 1) ... within a node, except that the world of 12 takes 6 per node: all within.

    Groups of 4 in nodes of 6: {0..3} within, {4..7} across, {8..11} within.
    """
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(BIG))
    size = (BIG.bytes,)
    item = Communication(
        "all_reduce", "add", StridedGroups(12, ((4, 1),)), None, size, size, ("bf16",)
    )
    (value,) = builder.communication(item, (value,), (BIG,))
    value = product(builder, value)
    graph = with_tables(builder.finish((value,)), tables.finish())
    result = workload_of(graph, mesh=Mesh((12,), ("data",))).simulate("dgx-h100")
    assert result.behaviours == 2
    assert result.notes == ("6 of 8 devices are used per NVLink 4 and NVSwitch",)
    assert result.figures.idle_seconds > 0  # those within a node are done earlier


def test_the_command_line(tmp_path, capsys):
    overlapped(Mesh((8, 8), ("data", "model")), "data").save_programs(tmp_path / "out")
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--system", "dgx-h100", "--json"])
    assert stopped.value.code == 0
    document = json.loads(capsys.readouterr().out)
    wanted = {
        "step_seconds", "compute_seconds", "communication_seconds",
        "exposed_communication_seconds", "peak_memory_bytes", "flops", "mfu",
    }  # fmt: skip
    assert wanted <= document.keys() and wanted <= document["programs"][0].keys()
    with pytest.raises(SystemExit):
        main(["simulate", str(tmp_path / "out")])
    shown = capsys.readouterr().out
    assert "one step on 64 ranks of dgx-h100" in shown and "all-gather over data" in shown
    with pytest.raises(SystemExit):
        main(["systems"])
    assert "gb200-nvl72" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["systems", "dgx-h100"])
    assert "NVIDIA H100 datasheet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--system", "dgx-h1000"], "unknown system 'dgx-h1000'"),
        (["--engine", "quick"], "unknown engine 'quick'; choose from: astra-sim, embedded"),
        (["--algorithm", "star"], "unknown algorithm 'star'"),
        (["--granularity", "atom"], "granularity 'atom'"),
        (["--microbatches", "24"], "--microbatches '24': expected CAPTURED:SIMULATED"),
        (["--microbatches", "24:512", "--html", "x.html"], "leave out --microbatches"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, options, message):
    overlapped(Mesh((8, 8), ("data", "model")), "data").save_programs(tmp_path / "out")
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), *options])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_mesh_that_does_not_map_on_the_nodes_is_refused():
    with pytest.raises(UsageError, match="146 ranks do not map to gb200"):
        # 146 = 2 x 73 leaves all but two of each domain idle.
        overlapped(Mesh((73, 2), ("data", "model")), "model").simulate("gb200-nvl72")


def test_a_logical_program_is_refused():
    workload = replace(overlapped(Mesh((8, 8), ("a", "b")), "a"), level=Level.LOGICAL)
    with pytest.raises(UsageError, match="not partitioned"):
        workload.simulate()


def test_a_graph_without_costs_is_refused():
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(BIG))
    (value,) = builder.compute("mystery", Role.OPAQUE, (value,), (BIG,), Work((), 0, 0))
    graph = with_tables(builder.finish((value,)), tables.finish())
    with pytest.raises(FlintError, match="program main: none of its nodes has work"):
        workload_of(graph, mesh=Mesh((2,), ("x",))).simulate()


def test_everybody_is_one_group_over_all_levels():
    assert place(everybody(64), H100).profiles[0][-1].members == 8


def test_a_ring_across_nodes_is_as_slow_as_its_slowest_link():
    """16 ranks pass a buffer on around a ring, then compute: in nodes of 8, ranks 7 and 15 send on
    InfiniBand.  Their receivers 8 and 0 begin computing last.
    """
    ring = permutation(16, np.array([[i, (i + 1) % 16] for i in range(16)]))
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(BIG))
    item = communication("collective_permute", peers=ring, operands=(BIG.bytes,))
    (value,) = builder.communication(item, (value,), (BIG,))
    value = product(builder, value)
    graph = with_tables(builder.finish((value,)), tables.finish())
    workload = workload_of(graph, mesh=Mesh((16,), ("x",)))
    result = workload.simulate("dgx-h100")
    near, far = H100.network
    kernel = kernel_seconds(workload.graph, H100)[1]
    slow = BIG.bytes / (far.bandwidth * far.efficiency) + far.latency + 0.9e-6
    quick = BIG.bytes / (near.bandwidth * near.efficiency) + near.latency + 0.9e-6
    assert result.step_seconds == pytest.approx(slow + kernel)
    assert result.communication_seconds == pytest.approx((14 * quick + 2 * slow) / 16)
    # Rank r behaves as rank r + 8 does; within a node all differ in how far the border is.
    assert result.behaviours == 8


def test_a_named_algorithm_is_used():
    workload = overlapped(Mesh((8, 8), ("data", "model")), "data")
    cheapest, ring = (workload.simulate("dgx-h100", algorithm=a) for a in (None, "ring"))
    # 7 steps around the ring, 3 of halving and doubling; InfiniBand at 45 GB/s, messages of 14 us,
    # of 4 us at 92% of it or of 2.7 us at half of it.
    share = 7 / 8 * BIG.bytes / 45e9
    ways = ((14e-6, 1.0), (4e-6, 0.92), (2.7e-6, 0.5))
    seven, three = (min(n * step + share / part for step, part in ways) for n in (7, 3))
    more = ring.communication_seconds - cheapest.communication_seconds
    assert more == pytest.approx(seven - three)


def test_a_named_algorithm_is_checked_and_said_where_it_does_not_run():
    """NVSwitch of the description has no halving-doubling, its InfiniBand has; 8 ranks use NVLink
    only.  A step without any collective does not hide a wrong name."""
    both = overlapped(Mesh((64,), ("data",)), "data")
    text = "halving-doubling does not run on NVLink 4 and NVSwitch; the fastest algorithm that does"
    notes = both.simulate("dgx-h100", algorithm="halving-doubling").notes
    assert [note for note in notes if "does not run" in note] == [f"{text} is used there"]
    assert not any("not run" in n for n in both.simulate("dgx-h100", algorithm="ring").notes)
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    made = product(builder, builder.input(tables.type(BIG)))
    alone = with_tables(builder.finish((made,)), tables.finish())
    with pytest.raises(UsageError, match="unknown algorithm 'star'"):
        workload_of(alone, mesh=Mesh((2,), ("x",))).simulate(algorithm="star")


def test_too_many_nodes_are_refused(monkeypatch):
    from flint.simulation import actors

    monkeypatch.setattr(actors, "MAX_NODES", 2)
    with pytest.raises(FlintError, match="3 nodes in total; the limit is 2"):
        overlapped(Mesh((8, 8), ("data", "model")), "data").simulate("dgx-h100")


def test_memory_does_not_depend_on_the_granularity_of_time():
    workload = overlapped(Mesh((8, 8), ("data", "model")), "data", 3)
    peaks = {workload.simulate(granularity=g).peak_memory_bytes for g in ("op", "kernel", "region")}
    # Two parameters; the gathered weight, a product and the next one.
    assert peaks == {5 * BIG.bytes}


def test_times_have_a_range_from_blind_runs_and_the_share_of_exposed_communication():
    """dgx-h100's network is assumed: 0.4 of what is exposed."""
    workload = overlapped(Mesh((8, 8), ("data", "model")), "data")
    result = workload.simulate("dgx-h100")
    exposed = result.exposed_communication_seconds / result.step_seconds
    share = math.hypot(spread_of(load_system("dgx-h100")).share, 0.4 * exposed)
    assert result.spread is not None and result.spread.share == pytest.approx(share)
    document = result.to_json()
    low, high = document["range"]["times"]["step_seconds"]
    assert low == pytest.approx(result.step_seconds / (1 + share))
    assert high == pytest.approx(result.step_seconds * (1 + share))
    [program] = document["programs"]
    assert program["range"]["times"]["compute_seconds"][0] < program["compute_seconds"]
    assert document["range"]["basis"] == "measured" and document["range"]["network"] == "assumed"
