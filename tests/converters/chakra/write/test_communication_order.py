"""A chain for each communicator instead of one for all communications of a rank."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

import flint
from flint.cli import application
from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.schema import NodeType
from flint.errors import UsageError
from flint.execution.chains import CommunicationOrder, chains
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Loop, WorkloadGraph, with_tables
from flint.mesh.groups import along_axes, everybody, from_table
from tests.converters.chakra.consumer import execute
from tests.converters.chakra.write.cases import (
    GROUPS,
    MESH,
    PERMUTATIONS,
    any_communication,
    attributes,
    communication,
    nodes,
    write_all,
)
from tests.graph.unrolling.random_graphs import TYPE, WORK, programs
from tests.support.shared import examples

PER_COMMUNICATOR = CommunicationOrder.COMMUNICATOR
OVER_DATA = communication("all_gather", groups=along_axes(MESH, ("data",)))
OVER_MODEL = communication("all_reduce", groups=along_axes(MESH, ("model",)))


PLAIN = """
module @m attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.add %a, %a : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""


def independent(*items) -> WorkloadGraph:
    """Communications that no data ties together."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    inputs = [builder.input(tables.type(TYPE)) for _ in items]
    made = []
    for value, item in zip(inputs, items, strict=True):
        made += builder.communication(item, (value,), (TYPE,))
    return with_tables(builder.finish(made), tables.finish())


def written(graph: WorkloadGraph, folder: Path, order: str, rank: int = 0) -> list[list[int]]:
    """The dependencies of each of a rank's nodes."""
    write_all(folder, graph, communication_order=order)
    return [list(node.data_deps) for node in nodes(folder, rank)]


def test_communicators_are_chained_each_on_its_own(tmp_path):
    graph = independent(OVER_DATA, OVER_MODEL, OVER_DATA, OVER_MODEL)
    (tmp_path / "rank").mkdir()
    (tmp_path / "communicator").mkdir()
    assert written(graph, tmp_path / "rank", "rank") == [[], [1], [2], [3]]
    assert written(graph, tmp_path / "communicator", "communicator") == [[], [], [1], [2]]


def test_messages_are_one_chain_of_their_own(tmp_path):
    """A ring's SEND and RECV, the gather, another ring: 1 and 4 are SENDs, 2 and 5 RECVs.

    The second RECV waits for the SEND before its own, as in one chain.
    """
    ring = communication("collective_permute", peers=PERMUTATIONS[0])
    found = written(independent(ring, OVER_DATA, ring), tmp_path, "communicator")
    kinds = [NodeType(node.type).name for node in nodes(tmp_path, 0)]
    first, second = (
        [number for number, kind in enumerate(kinds, 1) if kind == which]
        for which in ("SEND", "RECV")
    )
    gather = kinds.index("COLL") + 1
    assert found[gather - 1] == []
    assert found[first[1] - 1] == [first[0]]
    assert found[second[0] - 1] == []
    assert found[second[1] - 1] == [first[0]]


def test_the_manifest_says_which(tmp_path):
    for order in CommunicationOrder:
        (tmp_path / order).mkdir()
        manifest = write_all(tmp_path / order, independent(OVER_DATA), communication_order=order)
        assert json.loads(json.dumps(manifest.to_json()))["order"] == f"one chain per {order}"


def test_an_order_that_there_is_not(tmp_path):
    with pytest.raises(UsageError, match="'group'; choose from rank, communicator"):
        write_all(tmp_path, independent(OVER_DATA), communication_order="group")
    assert list(tmp_path.iterdir()) == []


def test_an_iteration_is_held_back_in_each_chain(tmp_path):
    """Two gathers and a product of each per iteration, three iterations, without overlap.

    Nodes of iteration i: gathers 4i + 1 and 4i + 2 and their products.  Both of the next iteration
    wait for both products of the one before, which are what ends it.
    """
    tables = TableBuilder()
    body = GraphBuilder(tables)
    one, other = (body.input(tables.type(TYPE)) for _ in range(2))
    gathered = [
        *body.communication(OVER_DATA, (one,), (TYPE,)),
        *body.communication(OVER_MODEL, (other,), (TYPE,)),
    ]
    for value in gathered:
        body.compute("add", 2, (value,), (TYPE,), WORK)
    builder = GraphBuilder(tables)
    inputs = [builder.input(tables.type(TYPE)) for _ in range(2)]
    builder.loop(Loop(body.finish(()), 0, 3, 0), inputs)
    graph = with_tables(builder.finish(inputs), tables.finish())
    found = written(graph, tmp_path, "communicator")
    assert [NodeType(node.type).name for node in nodes(tmp_path, 0)] == [
        "COLL", "COLL", "COMP", "COMP"
    ] * 3  # fmt: skip
    for number in range(1, 3):
        ends = {4 * number - 1, 4 * number}
        assert ends <= set(found[4 * number])
        assert ends <= set(found[4 * number + 1])


def closure(deps: list[list[int]]) -> list[set[int]]:
    found: list[set[int]] = []
    for above in deps:
        found.append(set(above).union(*(found[node - 1] for node in above)))
    return found


@given(programs(any_communication))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_chain_for_each_asks_for_nothing_that_one_chain_does_not(graph):
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / order for order in CommunicationOrder]
        for folder, order in zip(folders, CommunicationOrder, strict=True):
            folder.mkdir()
            write_all(folder, graph, communication_order=order)
        for rank in range(MESH.size):
            one, finer = (
                closure([list(node.data_deps) for node in nodes(folder, rank)])
                for folder in folders
            )
            assert len(one) == len(finer)
            assert all(few <= many for few, many in zip(finer, one, strict=True))


@given(programs(any_communication))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_communicator_of_a_rank_is_in_order_and_all_ranks_finish(graph):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all(folder, graph, communication_order=PER_COMMUNICATOR)
        for rank in range(MESH.size):
            found = nodes(folder, rank)
            above = closure([list(node.data_deps) for node in found])
            last: dict[object, int] = {}
            for node in found:
                if node.type == NodeType.COLL:
                    named = attributes(node)
                    group = named.get("pg_name") or str(named.get("involved_dim"))
                    assert group not in last or last[group] in above[node.id - 1]
                    last[group] = node.id
        errors = {item.rule for item in check(folder).findings if item.severity == "error"}
        assert errors <= {"slot-order"}  # with one slot for all it could hang
        traces = load_trace_set(folder)
        for seed in range(3):
            done = execute(traces, seed=seed, communication_order="communicator")
            assert done.complete


def test_a_folder_is_simulated_in_the_order_of_its_traces(tmp_path):
    """Compiled programs have one order unless the folder, or the command, states another one."""
    (tmp_path / "step.mlir").write_text(PLAIN)
    found = {}
    for order in CommunicationOrder:
        folder = tmp_path / order
        flint.convert(tmp_path / "step.mlir").save(folder, communication_order=order)
        for options in ((), ("--communication-order", "rank")):
            done = CliRunner().invoke(application(), ["simulate", str(folder), "--json", *options])
            assert done.exit_code == 0, done.output
            found[order, options[1:]] = json.loads(done.stdout)["communication_order"]
    assert found == {
        ("rank", ()): "rank",
        ("rank", ("rank",)): "rank",
        ("communicator", ()): "communicator",
        ("communicator", ("rank",)): "rank",
    }


def test_check_says_which_consumers_could_hang(tmp_path):
    """Both wait for a kernel of their own, so that ranks may come to them in different order."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(TYPE))
    made = [builder.compute("add", 2, (value,), (TYPE,), WORK)[0] for _ in range(2)]
    (gathered,) = builder.communication(OVER_DATA, made[:1], (TYPE,))
    (reduced,) = builder.communication(OVER_MODEL, made[1:], (TYPE,))
    (last,) = builder.compute("add", 2, (gathered, reduced), (TYPE,), WORK)
    graph = with_tables(builder.finish((last,)), tables.finish())
    verdicts = {}
    for order in CommunicationOrder:
        (tmp_path / order).mkdir()
        write_all(tmp_path / order, graph, communication_order=order)
        done = CliRunner().invoke(application(), ["check", str(tmp_path / order)])
        verdicts[order] = done.output.splitlines()[-1].rpartition(": ")[2]
    assert verdicts == {
        "rank": "consumers can run it",
        "communicator": "consumers with one communication slot could hang",
    }


def test_groups_that_are_the_same_ranks_somewhere_are_one_communicator():
    """{0, 1} is in both; members in another order are the same ranks; others stay apart."""
    table = from_table(6, np.array([[1, 0, -1], [2, 4, 5]]))
    items = [
        OVER_MODEL,
        OVER_DATA,
        communication("all_reduce", groups=table),
        communication("all_reduce", groups=everybody(6)),
        communication("all_reduce", groups=from_table(6, np.array([[5, 4, 2, -1]]))),
        communication("collective_permute", peers=PERMUTATIONS[0]),
    ]
    found = chains(items, PER_COMMUNICATOR)
    assert found is not None
    assert found.tolist() == [0, 1, 0, 2, 0, 3]
    assert chains(items, CommunicationOrder.RANK) is None


@pytest.mark.parametrize("one", GROUPS)
@pytest.mark.parametrize("other", GROUPS)
def test_who_shares_a_chain_is_as_listed_rank_by_rank(one, other):
    def listed(groups) -> set[frozenset[int]]:
        rows = (frozenset(groups.members(rank).tolist()) for rank in range(6))
        return {row for row in rows if len(row) > 1}

    items = [communication("all_reduce", groups=groups) for groups in (one, other)]
    found = chains(items, PER_COMMUNICATOR)
    assert found is not None
    together = one == other or bool(listed(one) & listed(other))
    assert (found[0] == found[1]) == together
