"""Several programs on disjoint ranks: sends meet receives, and mistakes are named."""

from __future__ import annotations

import numpy as np
import pytest

from flint.converters.chakra.check.checker import Severity, check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.schema import NodeType
from flint.converters.chakra.write.writer import write
from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Loop, WorkloadGraph
from flint.graph.tensor_types import TOKEN
from flint.graph.work import Role
from flint.mesh.groups import StridedGroups
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation
from tests.converters.chakra.consumer import execute
from tests.converters.chakra.write.cases import attributes, chain, communication, nodes, write_all
from tests.graph.unrolling.random_graphs import TYPE, WORK

MESH = Mesh((2, 4), ("stage", "data"))
DOWN = permutation(8, np.array([[i, i + 4] for i in range(4)]))
UP = permutation(8, np.array([[i + 4, i] for i in range(4)]))
DATA = StridedGroups(8, ((4, 1),))


def _stage(first: bool, microbatches: int, size: int = 16, channel: int = 7) -> WorkloadGraph:
    """A pipeline stage: per microbatch forward, exchange, backward; gradients at the end."""
    tables = TableBuilder()
    body = GraphBuilder(tables)
    value = body.input(tables.type(TYPE))
    token = body.input(tables.type(TOKEN))

    def send(peers, channel):
        item = communication("send", peers=peers, operands=(size,), results=(), channel=channel)
        return body.communication(item, (value, token), (TOKEN,))[0]

    def receive(peers, channel):
        item = communication("recv", peers=peers, operands=(), results=(16,), channel=channel)
        return body.communication(item, (token,), (TYPE, TOKEN))

    if first:
        (value,) = body.compute("dot", Role.CONTRACTION, (value,), (TYPE,), WORK)
        token = send(DOWN, channel)
        value, token = receive(UP, 8)
    else:
        value, token = receive(DOWN, channel)
        (value,) = body.compute("dot", Role.CONTRACTION, (value,), (TYPE,), WORK)
        token = send(UP, 8)
    outer = GraphBuilder(tables)
    start, begin = outer.input(tables.type(TYPE)), outer.input(tables.type(TOKEN))
    loop = Loop(body.finish((value, token)), 2, microbatches)
    value, _ = outer.loop(loop, (start, begin))
    item = communication("all_reduce", groups=DATA)
    (value,) = outer.communication(item, (value,), (TYPE,))
    return outer.finish((value,))


def _write(folder, *graphs, ranks=(range(4), range(4, 8))):
    programs = [(graph, np.array(list(mine))) for graph, mine in zip(graphs, ranks, strict=True)]
    return write(programs, MESH, folder, system=load_system("dgx-h100"))


def test_two_stages_exchange_microbatches_and_finish(tmp_path):
    manifest = _write(tmp_path, _stage(True, 5), _stage(False, 5))
    assert manifest.tags == 10
    report = check(tmp_path)
    assert [str(f) for f in report.findings if f.severity != Severity.WARNING] == []
    traces = load_trace_set(tmp_path)
    assert all(execute(traces, seed=seed).complete for seed in range(5))
    sent = [attributes(n) for n in nodes(tmp_path, 1) if n.type == NodeType.SEND]
    received = [attributes(n) for n in nodes(tmp_path, 5) if n.type == NodeType.RECV]
    assert [s["comm_tag"] for s in sent] == [r["comm_tag"] for r in received]
    assert {(s["comm_src"], s["comm_dst"]) for s in sent} == {(1, 5)}


def test_a_ring_of_send_and_recv_does_not_wait_for_its_own_send(tmp_path):
    around = permutation(8, np.array([[i, (i + 1) % 8] for i in range(8)]))
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(TYPE))
    send = communication("send", peers=around, results=(), channel=3)
    receive = communication("recv", peers=around, operands=(), results=(16,), channel=3)
    (token,) = builder.communication(send, (value,), (TOKEN,))
    value, _ = builder.communication(receive, (token,), (TYPE, TOKEN))
    write_all(tmp_path, builder.finish((value,)), MESH)
    sending, receiving = nodes(tmp_path, 2)
    assert sending.type == NodeType.SEND and list(receiving.data_deps) == []
    assert execute(load_trace_set(tmp_path), seed=1).complete


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (_stage(False, 4), "5 messages are sent, but 4 are expected"),
        (_stage(False, 5, channel=9), "5 messages are sent, but 0 are expected"),
        (chain(), "5 messages are sent, but 0 are expected"),
    ],
)
def test_messages_that_do_not_meet_are_refused(tmp_path, other, message):
    with pytest.raises(FlintError, match=message):
        _write(tmp_path, _stage(True, 5), other)
    assert not (tmp_path / "et").exists()


def test_messages_of_different_size_are_refused(tmp_path):
    with pytest.raises(FlintError, match="has 32 bytes, but 16 are expected"):
        _write(tmp_path, _stage(True, 5, size=32), _stage(False, 5))


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ((range(4), range(5, 8)), "rank 4 of 8 runs no program"),
        ((range(5), range(4, 8)), "rank 4 of 8 runs two programs"),
    ],
)
def test_every_rank_runs_one_program(tmp_path, ranks, message):
    with pytest.raises(FlintError, match=message):
        _write(tmp_path, chain(), chain(), ranks=ranks)


def test_a_group_over_another_world_is_refused(tmp_path):
    item = communication("all_reduce", groups=StridedGroups(4, ((4, 1),)))
    with pytest.raises(FlintError, match="over 4 ranks, but the mesh has 8"):
        write_all(tmp_path, chain(item), MESH)
