"""Random programs for property tests: nested loops, swaps, order edges."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, Loop, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.groups import everybody

TYPE = tensor_type((4,), "f32")
WORK = Work((WorkItem(Unit.VECTOR, "f32", 4),), 16, 16)

MakeCommunication = Callable[[st.DrawFn], Communication]


def all_reduce(draw: st.DrawFn, world: int = 4) -> Communication:
    size = draw(st.sampled_from([16, 32]))
    return Communication("all_reduce", "add", everybody(world), None, (size,), (size,), ("f32",))


@st.composite
def programs(
    draw: st.DrawFn, make_communication: MakeCommunication = all_reduce, depth: int = 2
) -> WorkloadGraph:
    tables = TableBuilder()
    graph = _graph(draw, tables, depth, draw(st.integers(1, 3)), make_communication)
    return with_tables(graph, tables.finish())


def _graph(
    draw: st.DrawFn,
    tables: TableBuilder,
    depth: int,
    inputs: int,
    make_communication: MakeCommunication,
    outputs: int | None = None,
) -> WorkloadGraph:
    builder = GraphBuilder(tables)
    values = [builder.input(tables.type(TYPE)) for _ in range(inputs)]
    what = st.sampled_from(["compute", "compute", "communication", "loop"])
    for _ in range(draw(st.integers(0, 5))):
        operands = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        order = []
        if len(builder):
            earlier = st.integers(0, len(builder) - 1)
            edge = st.sampled_from([EdgeKind.ORDER, EdgeKind.STREAM])
            order = draw(st.lists(st.tuples(earlier, edge), max_size=2))
        chosen = draw(what) if depth else draw(st.sampled_from(["compute", "communication"]))
        if chosen == "compute":
            made = builder.compute("add", Role.ELEMENTWISE, operands, (TYPE,), WORK, order)
        elif chosen == "communication":
            item = make_communication(draw)
            made = builder.communication(item, operands, (TYPE,), order=order)
        else:
            carried = draw(st.integers(0, len(operands)))
            body = _graph(draw, tables, depth - 1, len(operands), make_communication, carried)
            trips = draw(st.sampled_from([0, 1, 2, 3, 5]))
            ahead = draw(st.sampled_from([0, 0, 1, 2, None]))
            made = builder.loop(Loop(body, carried, trips, ahead), operands, order=order)
        # Value numbers of a builder under construction are final for results.
        values.extend(made)
    count = draw(st.integers(1, 2)) if outputs is None else outputs
    return builder.finish(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)))
