"""What is written, node by node: against a naive emission of random programs, and by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.check.checker import Severity, check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.schema import FIELD_OF, NodeType
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import WorkloadGraph
from flint.graph.work import NO_WORK, Role
from tests.converters.chakra.check.traces import records_of
from tests.converters.chakra.consumer import execute
from tests.converters.chakra.write.cases import (
    GROUPS,
    MESH,
    PERMUTATIONS,
    any_communication,
    attributes,
    chain,
    communication,
    nodes,
    write_all,
)
from tests.converters.chakra.write.naive_emission import expected_nodes
from tests.graph.unrolling.random_graphs import TYPE, WORK, programs
from tests.support.shared import examples


@given(programs(any_communication))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
def test_traces_equal_a_naive_emission_and_run(graph):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_all(folder, graph)
        for rank in range(MESH.size):
            expected = expected_nodes(graph, rank)
            found = nodes(folder, rank)
            if not expected:
                assert [node.name for node in found] == ["nothing"]
                continue
            assert [NodeType(node.type).name for node in found] == [e.type for e in expected]
            assert [node.id for node in found] == list(range(1, len(expected) + 1))
            for node, wanted in zip(found, expected, strict=True):
                assert list(node.data_deps) == sorted(i + 1 for i in wanted.deps)
                assert node.name == wanted.name
                assert wanted.attributes.items() <= attributes(node).items()
        report = check(folder)
        assert [str(f) for f in report.findings if f.severity != Severity.WARNING] == []
        traces = load_trace_set(folder)
        assert all(execute(traces, seed=seed).complete for seed in range(2))


@given(programs(any_communication))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
def test_parsing_and_serialising_gives_the_same_bytes(graph):
    with tempfile.TemporaryDirectory() as name:
        write_all(Path(name), graph, annotate=True)
        for rank in range(MESH.size):
            records = records_of(Path(name) / f"et/trace.{rank}.et")
            assert pb.GlobalMetadata.FromString(records[0]).SerializeToString() == records[0]
            for record in records[1:]:
                node = pb.Node.FromString(record)
                assert node.SerializeToString(deterministic=True) == record
                for attribute in node.attr:
                    field = FIELD_OF.get(attribute.name)
                    if field is not None:
                        assert attribute.WhichOneof("value") == field.proto_name


@pytest.mark.parametrize(
    ("kind", "operands", "results", "comm_type", "comm_size"),
    [
        # The schema's numbers and the consumers' convention of bytes per rank: 6 ranks, f32.
        ("all_reduce", (400,), (400,), 0, 400),  # the full buffer
        ("all_gather", (400,), (2400,), 2, 400),  # the input shard
        ("reduce_scatter", (2400,), (400,), 7, 2400),  # the full input
        ("all_to_all", (600,), (600,), 6, 600),  # the send buffer
        ("ragged_all_to_all", (600,), (900,), 6, 600),
        ("all_reduce", (400, 8, 16), (400, 8, 16), 0, 424),  # variadic: summed
    ],
)
def test_sizes_follow_the_consumers_conventions(
    tmp_path, kind, operands, results, comm_type, comm_size
):
    item = communication(kind, groups=GROUPS[0], operands=operands, results=results)
    write_all(tmp_path, chain(item))
    found = attributes(nodes(tmp_path, 0)[1])
    assert (found["comm_type"], found["comm_size"]) == (comm_type, comm_size)


def test_whole_network_dims_are_masks_and_other_groups_ids(tmp_path):
    write_all(tmp_path, chain(*(communication("all_reduce", groups=g) for g in GROUPS[:4])))
    # Mesh (data 3, model 2) is the network [2, 3]: dim 0 is model, dim 1 is data.
    found = [attributes(node) for node in nodes(tmp_path, 3)[1:-1]]
    assert [item.get("involved_dim") for item in found] == [[1, 1], [0, 1], [1, 0], None]
    assert [item.get("pg_name") for item in found] == [None, None, None, "2"]
    table = (tmp_path / "astra-sim/comm_groups.json").read_text().split()
    assert table == ["{", '"1":', "[4,1,0],", '"2":', "[5,3]", "}"]


def test_a_permute_sends_after_its_producer_and_receives_beside_it(tmp_path):
    write_all(tmp_path, chain(communication("collective_permute", peers=PERMUTATIONS[0])))
    dot, send, receive, add = nodes(tmp_path, 1)
    assert (list(send.data_deps), list(receive.data_deps)) == ([dot.id], [])
    assert list(add.data_deps) == [receive.id]
    assert attributes(send)["comm_dst"] == 3 and attributes(receive)["comm_src"] == 5
    assert attributes(send)["comm_tag"] == attributes(receive)["comm_tag"]


def test_a_pair_with_itself_is_a_copy_that_reads_and_writes(tmp_path):
    write_all(tmp_path, chain(communication("collective_permute", peers=PERMUTATIONS[2])))
    copy = nodes(tmp_path, 0)[1]
    assert copy.type == NodeType.COMP and attributes(copy)["tensor_size"] == 32


def test_removed_collectives_are_counted_with_the_reason(tmp_path):
    alone = communication("all_reduce", groups=GROUPS[5])
    empty = communication("all_reduce", groups=GROUPS[0], operands=(0,))
    manifest = write_all(tmp_path, chain(alone, empty, alone))
    assert manifest.structures[0].removed == {"group of one": 2, "no bytes": 1}
    dot, add = nodes(tmp_path, 0)
    assert list(add.data_deps) == [dot.id]


def test_every_message_has_its_own_tag(tmp_path):
    items = [communication("collective_permute", peers=p) for p in PERMUTATIONS[:2]]
    manifest = write_all(tmp_path, chain(*items, *items))
    tags = [attributes(n)["comm_tag"] for n in nodes(tmp_path, 0) if n.type == NodeType.SEND]
    assert len(set(tags)) == len(tags) == 4 == manifest.tags


def test_annotations_are_texts_on_every_node(tmp_path):
    write_all(tmp_path, chain(communication("all_reduce", groups=GROUPS[0])), annotate=True)
    found = attributes(nodes(tmp_path, 0)[0])
    assert (found["op"], found["shapes"], found["dtype"]) == ("dot", "4xf32", "f32")


def test_a_world_of_one_rank_communicates_nothing(tmp_path):
    from flint.mesh.groups import everybody
    from flint.mesh.mesh import Mesh

    write_all(tmp_path, chain(communication("all_reduce", groups=everybody(1))), Mesh((1,)))
    assert [node.type for node in nodes(tmp_path, 0)] == [NodeType.COMP, NodeType.COMP]


def test_nodes_parquet_lists_every_node_once_per_structure(tmp_path):
    import pyarrow.parquet as pq

    item = communication("collective_permute", peers=PERMUTATIONS[1])
    manifest = write_all(tmp_path, chain(item))
    table = pq.read_table(tmp_path / "et/nodes.parquet").to_pylist()
    for summary in manifest.structures:
        mine = [row for row in table if row["structure"] == summary.structure]
        rank = int(np.flatnonzero(_mask(summary.ranks, 6))[0])
        expected = [(n.id, NodeType(n.type).name, n.name) for n in nodes(tmp_path, rank)]
        assert [(row["node"], row["kind"], row["op"]) for row in mine] == expected


def _mask(ranks, world):
    place = np.arange(world) % ranks["period"]
    return sum((place >= low) & (place < high) for low, high in ranks["runs"])


def held_back(made: int, used: int, barriers: int = 1) -> WorkloadGraph:
    """``made`` kernels, barriers one behind another over what they make, ``used`` kernels."""
    builder = GraphBuilder(TableBuilder())
    value = builder.input(builder.tables.type(TYPE))
    values = [builder.compute("dot", Role.OPAQUE, (value,), (TYPE,), WORK)[0] for _ in range(made)]
    for _ in range(barriers):
        types = (TYPE,) * made
        values = [*builder.compute("optimization_barrier", Role.ALIAS, values, types, NO_WORK)]
    results = [
        builder.compute("add", Role.OPAQUE, (values[i % made],), (TYPE,), WORK)[0]
        for i in range(used)
    ]
    return builder.finish(results)


def test_a_barrier_is_one_node_that_costs_nothing_between_all_before_and_all_behind(tmp_path):
    manifest = write_all(tmp_path, held_back(made=5, used=7))
    found = nodes(tmp_path, 0)
    assert [node.name for node in found] == ["dot"] * 5 + ["optimization_barrier"] + ["add"] * 7
    barrier = found[5]
    assert list(barrier.data_deps) == [1, 2, 3, 4, 5]
    assert barrier.duration_micros == 0
    assert [list(node.data_deps) for node in found[6:]] == [[barrier.id]] * 7
    assert manifest.structures[0].removed == {}
    assert check(tmp_path).findings == ()


@pytest.mark.parametrize(("made", "used", "barriers"), [(5, 1, 1), (2, 2, 1), (5, 1, 3), (2, 2, 3)])
def test_a_barrier_has_no_node_where_as_few_edges_say_the_same(tmp_path, made, used, barriers):
    manifest = write_all(tmp_path, held_back(made, used, barriers))
    found = nodes(tmp_path, 0)
    assert [node.name for node in found] == ["dot"] * made + ["add"] * used
    assert all(list(node.data_deps) == list(range(1, made + 1)) for node in found[made:])
    assert sum(manifest.structures[0].removed.values()) == barriers


def test_of_barriers_one_behind_another_one_node_is_left(tmp_path):
    """Not 6 x 6 edges: the last one stands for what the others wait for, too."""
    write_all(tmp_path, held_back(made=6, used=6, barriers=4))
    found = nodes(tmp_path, 0)
    assert [node.name for node in found] == ["dot"] * 6 + ["optimization_barrier"] + ["add"] * 6
    assert list(found[6].data_deps) == [1, 2, 3, 4, 5, 6]
    assert [list(node.data_deps) for node in found[7:]] == [[7]] * 6
