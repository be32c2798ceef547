"""Communicators with a stream each: what overlaps shares the links; ticks by hand.

Longer than 300 lines because each schedule has its ticks derived by hand next to it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.converters.pictures.layers import layer_seconds
from flint.converters.pictures.report import report
from flint.converters.pictures.timeline import write_timeline
from flint.cost.collectives import collective_seconds
from flint.cost.kernels import kernel_seconds
from flint.cost.placement import place
from flint.errors import UsageError
from flint.execution.chains import CommunicationOrder, chains
from flint.execution.node_types import NodeType
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import with_tables
from flint.graph.partners import partners
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.passes import apply
from flint.passes.what_if import parse_passes, transform
from flint.simulation.actor_columns import CAPACITY, Actor, Beside
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.machine import Run, _Machine, run
from flint.simulation.preparing import order_of
from flint.simulation.recording import record
from flint.simulation.spans import overlap, parts, union
from flint.workload.programs import Level, Order
from flint.workload.workload import Workload
from tests.simulation.besides import beside
from tests.simulation.test_simulate import H100, PRODUCT, product, workload_of

COMP, COLL, SEND = NodeType.COMP, NodeType.COLL, NodeType.SEND
Node = tuple[NodeType, int, tuple[int, ...], int]


def actor(*nodes: Node, meetings: tuple[int, ...] = ()) -> Actor:
    """Nodes as (type, ticks, producers, slot); each COLL is a separate meeting by default."""
    types, ticks, deps, slots = zip(*nodes, strict=True)
    return Actor(
        np.array(types, np.int8),
        np.cumsum([0, *map(len, deps)]),
        np.array([other for some in deps for other in some], np.int64),
        np.array(ticks, np.int64),
        np.array(meetings or range(len(nodes)), np.int64),
        np.array(slots, np.int64),
    )


def alone(*nodes: Node) -> Run:
    return run([actor(*nodes)], [1] * len(nodes))


def test_two_communicators_share_the_links_equally() -> None:
    """Both take 10 of their ticks by tick 20; the 20 that are left of the second run alone."""
    assert alone((COLL, 10, (), 0), (COLL, 30, (), 1)).end[0].tolist() == [20, 40]


def test_three_share_in_three() -> None:
    assert alone(*((COLL, 10, (), slot) for slot in range(3))).end[0].tolist() == [30, 30, 30]


def using(loads: Sequence[Sequence[float]], *nodes: Node) -> Actor:
    """Nodes that take these parts of the links of each tier, a row for each."""
    rows = (np.array(loads) * CAPACITY).astype(np.int64)
    return replace(actor(*nodes), beside=Beside(np.ones(len(nodes)), np.arange(len(nodes)), rows))


def test_links_of_which_each_takes_half_are_shared_by_three() -> None:
    """All of the 10, 20 and 40 ticks at 2/3 until 15, then two of them at full speed."""
    three = [(COLL, ticks, (), slot) for slot, ticks in enumerate((10, 20, 40))]
    assert run([using([[1 / 2]] * 3, *three)], [1] * 3).end[0].tolist() == [15, 25, 45]
    assert run([using([[1 / 3]] * 3, *three)], [1] * 3).end[0].tolist() == [10, 20, 40]


def test_links_of_other_tiers_are_not_shared() -> None:
    """Within a node and between nodes, as an exchange of tensor parallelism beside a gather."""
    two = using([[1, 0], [0, 1]], (COLL, 10, (), 0), (COLL, 30, (), 1))
    assert run([two], [1, 1]).end[0].tolist() == [10, 30]


def test_what_uses_several_tiers_is_as_slow_as_on_the_busiest() -> None:
    """The second takes half of the first's links: 3/2 of their capacity together, until the 10
    ticks of the first are over at 15; then 20 of its 30 are left.  The third shares the other tier
    with it, 1 + 1/4 of the capacity, and takes 5/4 of its 8 ticks.
    """
    loads = [[1, 0], [1 / 2, 1 / 4], [0, 1]]
    three = using(loads, (COLL, 10, (), 0), (COLL, 30, (), 1), (COLL, 8, (), 2))
    assert run([three], [1] * 3).end[0].tolist() == [15, 35, 10]


def test_one_communicator_stays_in_its_order() -> None:
    """The second begins when the first is over, though both are ready."""
    happened = alone((COLL, 10, (), 0), (COLL, 10, (), 0))
    assert happened.start[0].tolist() == [0, 10]
    assert happened.end[0].tolist() == [10, 20]


def test_what_a_kernel_needs_does_not_wait_behind_a_long_gather_of_others() -> None:
    """A gather of 100 ticks and an exchange of 10, which the second kernel of 50 needs.

    Alone the gather is at 5 when the exchange begins at 5; they share until the exchange is over at
    25, when the gather is at 15; its other 85 run beside the kernel.  In one order the exchange
    would be over at 110 and the kernel at 160.
    """
    nodes: list[Node] = [
        (COLL, 100, (), 0), (COMP, 5, (), 0), (COLL, 10, (1,), 1), (COMP, 50, (2,), 0),
    ]  # fmt: skip
    assert alone(*nodes).end[0].tolist() == [110, 5, 25, 75]
    in_one = [(kind, ticks, deps, 0) for kind, ticks, deps, _ in nodes]
    assert alone(*in_one).end[0].tolist() == [100, 5, 110, 160]


def test_a_collective_is_as_slow_as_on_its_busiest_member() -> None:
    """It meets a send of 10 on one of the two ranks: both are at half speed until tick 20."""
    busy = actor((COLL, 30, (), 0), (SEND, 10, (), 1), meetings=(0, 7))
    idle = actor((COLL, 30, (), 0), meetings=(0,))
    happened = run([busy, idle], [2])
    assert [end.tolist() for end in happened.end] == [[40, 20], [40]]


def test_kernels_are_slowed_down_as_long_as_anything_communicates() -> None:
    """Exchanges run until tick 20; the kernel does 10 by then and the other 30 alone."""
    alone = actor((COLL, 10, (), 0), (COLL, 10, (), 1), (COMP, 40, (), 0))
    happened = run([replace(alone, beside=beside([0.5] * 3))], [1, 1, 1])
    assert happened.end[0].tolist() == [20, 20, 50]


NODES = st.lists(
    st.tuples(
        st.sampled_from([COMP, COLL]), st.integers(0, 40), st.sets(st.integers(0, 11)),
        st.integers(0, 2),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(NODES)
def test_no_work_of_the_links_is_lost(drawn: list[tuple[NodeType, int, set[int], int]]) -> None:
    """Not over before kernels or links could be, nor later than one thing after another."""
    nodes = [
        (kind, ticks, tuple(sorted(dep for dep in deps if dep < number)), slot)
        for number, (kind, ticks, deps, slot) in enumerate(drawn)
    ]
    happened = alone(*nodes)
    assert not happened.stuck
    end, start = happened.end[0], happened.start[0]
    for number, (_, ticks, deps, _) in enumerate(nodes):
        assert end[number] - start[number] >= ticks
        assert all(start[number] >= end[dep] for dep in deps)
    for kind in (COMP, COLL):
        assert happened.ticks >= sum(ticks for which, ticks, _, _ in nodes if which == kind)
    # Each of the changes of speed rounds up by at most a tick.
    assert happened.ticks <= sum(ticks for _, ticks, _, _ in nodes) + len(nodes) ** 2
    talks = [number for number, node in enumerate(nodes) if node[0] == COLL]
    busy = parts(start[talks], end[talks]).sum()
    assert 0 <= busy - sum(nodes[number][1] for number in talks) <= len(nodes) ** 2


@given(NODES)
def test_in_one_slot_all_is_as_without_slots(
    drawn: list[tuple[NodeType, int, set[int], int]],
) -> None:
    nodes = [
        (kind, ticks, tuple(sorted(dep for dep in deps if dep < number)), 0)
        for number, (kind, ticks, deps, _) in enumerate(drawn)
    ]
    one = actor(*nodes)
    plain = replace(one, slot=None)
    members = [1] * len(nodes)
    assert run([one], members).end[0].tolist() == run([plain], members).end[0].tolist()


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=8)


@given(SPANS, SPANS)
def test_parts_and_union_are_those_counted_tick_by_tick(
    spans: list[tuple[int, int]], covers: list[tuple[int, int]]
) -> None:
    def columns(some: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        start = np.array([low for low, _ in some], np.int64)
        return start, start + np.array([length for _, length in some], np.int64)

    def at(tick: int, some: list[tuple[int, int]]) -> list[int]:
        return [i for i, (low, length) in enumerate(some) if low <= tick < low + length]

    counted, bare = np.zeros(len(spans)), np.zeros(len(spans))
    for tick in range(20):
        for span in at(tick, spans):
            counted[span] += 1 / len(at(tick, spans))
            bare[span] += 0 if at(tick, covers) else 1 / len(at(tick, spans))
    assert parts(*columns(spans)) == pytest.approx(counted)
    assert parts(*columns(spans), columns(covers)) == pytest.approx(bare)
    assert overlap(*columns(spans)) == any(len(at(tick, spans)) > 1 for tick in range(20))
    begins, ends = union(*columns(spans))
    ticks = {tick for low, high in zip(begins, ends, strict=True) for tick in range(low, high)}
    assert ticks == {tick for tick in range(20) if at(tick, spans)}
    assert (begins[1:] > ends[:-1]).all()


BIG = tensor_type((4096, 4096), "bf16")
MESH = Mesh((4, 2), ("dp", "tp"))


def step(order: Order) -> Workload:
    """A gather over dp, an exchange over tp, a product of what was exchanged, one of both."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value, weight = builder.input(tables.type(BIG)), builder.input(tables.type(BIG))
    gather, exchange = (
        Communication(kind, None, along_axes(MESH, (axis,)), None, (size,), (BIG.bytes,), ("bf16",))
        for kind, axis, size in (
            ("all_gather", "dp", BIG.bytes // 4), ("all_reduce", "tp", BIG.bytes),
        )
    )  # fmt: skip
    (gathered,) = builder.communication(gather, (weight,), (BIG,))
    (exchanged,) = builder.communication(exchange, (value,), (BIG,))
    multiplied = product(builder, exchanged)
    (last,) = builder.compute(
        "dot_general", Role.CONTRACTION, (multiplied, gathered), (BIG,), PRODUCT
    )
    graph = with_tables(builder.finish((last,)), tables.finish())
    return replace(workload_of(graph, mesh=MESH), order=order)


def test_a_recorded_steps_communicators_do_not_wait_for_each_other() -> None:
    """Both use NVLink, the gather for 3/4 of the whole buffer per rank, the all-reduce for twice
    1/2 of it.  While both run, each takes longer by what they send together in the time, which is
    more than the links can; the longer one then goes on alone.
    """
    workload = step(Order.RECORDED)
    kernel = kernel_seconds(workload.graph, H100)[2]
    both, load = [], 0.0
    for item, part in zip(workload.graph.tables.communications, (3 / 4, 1.0), strict=True):
        [profile] = place(item.groups, H100).profiles
        seconds = collective_seconds(item, profile)
        load += BIG.bytes * part / H100.network[0].rate / seconds
        both.append(seconds + H100.accelerator.launch_overhead)
    assert load > 1
    gather, exchange = both
    together = min(gather, exchange) * load
    apart = together + abs(gather - exchange)
    free, gathered = (together, apart) if gather > exchange else (apart, together)
    result = workload.simulate("dgx-h100")
    close = {"rel": 3e-6}  # a part of the capacity is a whole number
    expected = max(free + kernel, gathered) + kernel
    assert result.step_seconds == pytest.approx(expected, **close)
    assert result.communication_seconds == pytest.approx(apart, **close)
    rows = {row.name: row.seconds for row in result.programs[0].classes if row.communicates}
    assert sum(rows.values()) == pytest.approx(apart, **close)
    in_one = workload.simulate("dgx-h100", communication_order="rank")
    assert in_one.step_seconds == pytest.approx(gather + exchange + 2 * kernel, **close)
    assert result.communication_order == "communicator"
    assert in_one.communication_order == "rank"


def test_what_is_asked_for_holds_for_every_program() -> None:
    recorded, modelled = step(Order.RECORDED), step(Order.MODELLED)
    for order in CommunicationOrder:
        one, other = (
            workload.simulate("dgx-h100", communication_order=order)
            for workload in (recorded, modelled)
        )
        assert one.step_seconds == other.step_seconds
        assert other.to_json()["communication_order"] == order
        assert record(modelled, "dgx-h100", communication_order=order).step == pytest.approx(
            other.step_seconds * TICKS_PER_SECOND
        )
    with pytest.raises(UsageError, match="unknown communication order 'none'"):
        modelled.simulate("dgx-h100", communication_order="none")


def test_programs_that_are_not_pytorchs_keep_one_order() -> None:
    assert order_of(step(Order.RECORDED), None) == CommunicationOrder.COMMUNICATOR
    compiled = replace(step(Order.RECORDED), level=Level.OPTIMIZED)  # by torch.compile
    assert order_of(compiled, None) == CommunicationOrder.COMMUNICATOR
    for workload in (step(Order.MODELLED), step(Order.COMPILED)):
        assert order_of(workload, None) == CommunicationOrder.RANK


def test_each_communicator_is_a_stream_of_the_timeline(tmp_path: Path) -> None:
    recording = record(step(Order.RECORDED), "dgx-h100")
    write_timeline(recording, tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    drawn = {names[e["tid"]]: e["name"] for e in events if e["ph"] == "X"}
    assert drawn["communication over dp"] == "all_gather (dp)"
    assert drawn["communication over tp"] == "all_reduce (tp)"


def test_what_a_pass_puts_in_place_of_a_collective_stays_apart_from_other_groups() -> None:
    workload = step(Order.RECORDED)
    chosen = parse_passes(["replace:kind=all_reduce,by=reduce_scatter+all_gather"])
    graph = transform(apply(workload.graph, "kernel"), chosen)
    number = chains(graph.tables.communications, order_of(workload, None))
    assert number is not None
    found = {}
    for slot, item in zip(number.tolist(), graph.tables.communications, strict=True):
        found.setdefault(partners(item, MESH), set()).add(slot)
    assert not found["dp"] & found["tp"]


def test_the_report_says_that_communicators_overlap() -> None:
    workload = step(Order.RECORDED)
    for order, overlaps in (("communicator", True), ("rank", False)):
        result = workload.simulate("dgx-h100", communication_order=order)
        page = report(result, record(workload, "dgx-h100", communication_order=order))
        assert ("communicators overlap" in page) == overlaps


def test_layers_have_the_time_that_the_figures_have() -> None:
    workload = step(Order.RECORDED)
    result = workload.simulate("dgx-h100")
    layers = layer_seconds(record(workload, "dgx-h100").ranks[0])
    told = sum(layers.values())
    assert told[0] == pytest.approx(result.compute_seconds)
    assert told[1] == pytest.approx(result.communication_seconds)


def test_one_communication_at_a_time_is_scheduled_once_per_member() -> None:
    """Two actors of two chained collectives: an event for each member of each, and no more."""
    nodes: list[Node] = [(COLL, 10, (), 0), (COLL, 10, (0,), 1)]
    pair = [actor(*nodes, meetings=(0, 1)), actor(*nodes, meetings=(0, 1))]
    machine = _Machine(pair, [2, 2])
    machine.run()
    assert machine.sequence == 4
