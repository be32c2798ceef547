"""Workload -> execution traces -> workload -> execution traces: the same nodes, edges and times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flint
from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.schema import NodeType
from flint.converters.chakra.write.writer import write
from flint.cost.systems import load_system
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.programs import Level, Order, Program, ProgramInput, with_communicators
from flint.workload.workload import Workload
from tests.converters.chakra.check.traces import AG, RS, coll, comp, encode, read_nodes
from tests.converters.chakra.write.cases import (
    GROUPS,
    MESH,
    any_communication,
    attributes,
    chain,
    communication,
)

SYSTEM = load_system("dgx-h100")
#: Names of ranks' groups and of messages are a writer's own.
_OWN = ("pg_name", "comm_tag")


def said(item: pb.Node) -> tuple[object, ...]:
    """What a node says besides its own names; communications are not measured."""
    facts = {name: value for name, value in attributes(item).items() if name not in _OWN}
    computes = item.type == NodeType.COMP
    named = (item.name, item.duration_micros) if computes else ()
    return (item.type, *named, *sorted(map(repr, facts.items())))


def with_ancestors(nodes: list[pb.Node]) -> Counter[object]:
    """What each node says, and what all that it waits for say."""
    before: dict[int, frozenset[int]] = {}
    facts = {item.id: said(item) for item in nodes}
    for item in sorted(nodes, key=lambda item: item.id):
        deps = set(item.data_deps)
        before[item.id] = frozenset(deps.union(*(before[dep] for dep in deps)))
    return Counter(
        (facts[number], tuple(sorted(map(repr, (facts[other] for other in waited)))))
        for number, waited in before.items()
    )


def traced(workload: Workload, folder: Path) -> None:
    """Traces and tables, as another tool leaves them."""
    folder.mkdir()
    programs = [(item.graph, item.ranks.array()) for item in workload.programs]
    write(programs, workload.mesh, folder, system=SYSTEM)


@st.composite
def steps(draw: st.DrawFn) -> Workload:
    count = draw(st.integers(1, 5))
    graph = chain(*(any_communication(draw) for _ in range(count)))
    inputs = tuple(ProgramInput(graph.type_of(number)) for number in range(graph.inputs))
    programs = with_communicators((Program("main", graph, all_ranks(MESH.size), inputs),))
    return Workload(MESH, programs, Level.PARTITIONED, Order.MODELLED, {}, {}, {})


@given(steps())
@settings(max_examples=4, deadline=None)
def test_traces_of_converted_traces_are_the_same(workload: Workload) -> None:
    check_both_ways(workload)


@pytest.mark.thorough
@given(steps())
@settings(max_examples=100, deadline=None)
def test_many_traces_of_converted_traces_are_the_same(workload: Workload) -> None:
    check_both_ways(workload)


def check_both_ways(workload: Workload) -> None:
    with TemporaryDirectory() as place:
        first, second = Path(place, "first"), Path(place, "second")
        traced(workload, first)
        converted = flint.convert_traces([first])
        traced(converted, second)
        for rank in range(MESH.size):
            one, other = (
                with_ancestors(read_nodes(folder / f"et/trace.{rank}.et"))
                for folder in (first, second)
            )
            assert one == other
        table = workload.programs[0].graph.tables.communications
        if any(item.kind == "collective_broadcast" for item in table):
            return  # simulated as one, and written as a tree of messages
        # Traces hold whole microseconds: each of the two kernels' is off by one at most.
        ours, read = (
            item.simulate(SYSTEM, granularity="op").step_seconds for item in (workload, converted)
        )
        assert read == pytest.approx(ours, abs=2.1e-6)


def test_groups_are_those_that_were_written(tmp_path):
    """Along an axis, and listed: the same members for every rank."""
    graph = chain(*(communication("all_reduce", groups=groups) for groups in GROUPS[:5]))
    inputs = tuple(ProgramInput(graph.type_of(number)) for number in range(graph.inputs))
    programs = with_communicators((Program("main", graph, all_ranks(6), inputs),))
    workload = Workload(
        Mesh((3, 2), ("data", "model")), programs, Level.PARTITIONED, Order.MODELLED, {}, {}, {}
    )
    traced(workload, tmp_path / "first")
    converted = flint.convert_traces([tmp_path / "first"])
    for rank in range(6):
        members = Counter()
        for program in converted.programs:
            if program.ranks.contains(np.array([rank]))[0]:
                for item in program.graph.tables.communications:
                    members[tuple(item.groups.members(rank).tolist())] += 1
        wanted = Counter(
            found
            for groups in GROUPS[:5]
            if len(found := tuple(r for r in groups.members(rank).tolist() if r >= 0)) > 1
        )
        assert members == wanted


def test_nodes_written_by_hand_are_written_again(tmp_path):
    """Types, times, sizes and edges of eight ranks' nodes, among them two side by side; a writer's
    own are the ids, and ``involved_dim`` [True] where nothing stands for all ranks."""
    nodes = [comp(0, micros=5), coll(1, [0], size=1 << 20), comp(2, [1], micros=7)]
    nodes += [coll(3, [1], AG, 64), coll(4, [2, 3], RS, 64), coll(5, [4], 6, 64)]
    (tmp_path / "first").mkdir()
    for rank in range(8):
        (tmp_path / f"first/step.{rank}.et").write_bytes(encode(nodes))
    traced(flint.convert_traces([tmp_path / "first"]), tmp_path / "second")
    for rank in range(8):
        again = read_nodes(tmp_path / f"second/et/trace.{rank}.et")
        assert all(attributes(item).get("involved_dim", [True]) == [True] for item in again)
        assert edges(again) == edges(nodes)


def edges(nodes: list[pb.Node]) -> list[object]:
    """What each node is, and the places of those that it waits for."""
    place = {item.id: at for at, item in enumerate(nodes)}
    found: list[object] = []
    for item in nodes:
        facts = attributes(item)
        computes = item.type == NodeType.COMP
        size = item.duration_micros if computes else (facts["comm_type"], facts["comm_size"])
        found.append((item.type, size, sorted(place[dep] for dep in item.data_deps)))
    return found
