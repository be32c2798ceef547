"""Programs as networkx graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import networkx as nx
import pytest
from hypothesis import given

from flint.errors import FlintError
from flint.graph.graph import WorkloadGraph
from flint.graph.nesting import blocks
from flint.graph.unrolling import unroll
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.programs import Program, ProgramInput
from flint.workload.workload import Workload
from tests.strategies import workload_graphs

Saved = Callable[..., Workload]


def workload_of(graph: WorkloadGraph) -> Workload:
    mesh = Mesh((8,))
    inputs = tuple(ProgramInput(graph.tables.types[t]) for t in graph.input_type.tolist())
    return Workload(mesh, (Program("main", graph, all_ranks(8), inputs),))


def kinds(graph: nx.MultiDiGraph[str]) -> Counter[str]:
    return Counter(kind for _, _, kind in graph.edges(data="kind"))


def test_nodes_say_what_they_are(loop: Workload) -> None:
    graph = loop.to_networkx()
    ops = {fields["op"]: fields for _, fields in graph.nodes(data=True)}
    assert ops["dot_general"]["flops"] == 512
    assert ops["dot_general"]["results"] == ("4x8xf32",)
    assert ops["dot_general"]["times"] == 5
    assert ops["all_reduce"]["group"] == "model"
    assert ops["all_reduce"]["operand_bytes"] == 128
    assert ops["while"]["trip_count"] == 5


def test_a_body_is_nested_under_its_loop(loop: Workload) -> None:
    graph = loop.to_networkx()
    [owner] = [name for name, kind in graph.nodes(data="kind") if kind == "loop"]
    inside = [name for name, block in graph.nodes(data="block") if block == owner]
    assert all(name.startswith(f"{owner}/") for name in inside)
    # dot, all-reduce, tanh, one, add; inputs i, x and w; outputs i and x (w does not change).
    assert len(inside) == 5 + 3 + 2


def test_a_carried_value_goes_from_output_to_input(loop: Workload) -> None:
    graph = loop.to_networkx()
    carried = [(u, v) for u, v, kind in graph.edges(data="kind") if kind == "carry"]
    assert carried
    for output, entry in carried:
        assert output.replace("out:", "in:") == entry


def test_a_value_can_be_followed_from_input_to_output(loop: Workload) -> None:
    graph = loop.to_networkx()
    assert nx.has_path(graph, "in:0", "out:0")


@given(workload_graphs())
def test_every_node_and_edge_of_the_columns_is_there(graph: WorkloadGraph) -> None:
    drawn = workload_of(graph).to_networkx()
    found = list(blocks(graph))
    ends = sum(b.graph.inputs + len(b.graph.outputs) for b in found)
    assert len(drawn) == sum(len(b.graph) for b in found) + ends
    by_kind = kinds(drawn)
    values = sum(len(b.graph.operand) + len(b.graph.outputs) for b in found)
    assert by_kind["data"] == values
    order = sum(len(b.graph.order_node) for b in found)
    assert by_kind["order"] + by_kind["stream"] == order
    assert by_kind["enter"] == sum(b.graph.inputs for b in found if b.owner)
    assert by_kind["carry"] == sum(loop.carried for b in found for loop in b.graph.loops)


@given(workload_graphs())
def test_without_carries_there_is_no_cycle(graph: WorkloadGraph) -> None:
    drawn = workload_of(graph).to_networkx()
    keep = [(u, v) for u, v, kind in drawn.edges(data="kind") if kind != "carry"]
    assert nx.is_directed_acyclic_graph(nx.DiGraph(keep))


@given(workload_graphs())
def test_unrolled_it_has_the_instances_and_edges_of_unrolling(graph: WorkloadGraph) -> None:
    drawn = workload_of(graph).to_networkx(unroll=True)
    unrolled = unroll(graph)
    assert len(drawn) == len(unrolled)
    assert drawn.number_of_edges() == len(unrolled.deps)
    assert nx.is_directed_acyclic_graph(drawn)
    for name, fields in drawn.nodes(data=True):
        part, node, iteration = unrolled.locate(int(name))
        assert fields["op"] == part[node].op
        assert fields["node"].rpartition("/")[2] == str(node)
        assert fields["iteration"] == iteration


def test_a_program_can_be_drawn_as_kernels(saved: Saved) -> None:
    workload = saved("llama_tiny_scan_fsdp4_tp2")
    ops, kernels = workload.to_networkx(), workload.to_networkx(granularity="kernel")
    assert len(kernels) < len(ops)
    count = [
        sum(fields["kind"] == "communication" for _, fields in graph.nodes(data=True))
        for graph in (ops, kernels)
    ]
    assert count[0] == count[1]


def test_a_program_that_is_not_there_is_an_error(loop: Workload) -> None:
    with pytest.raises(FlintError, match="no program 'other'; choose from: main"):
        loop.to_networkx(program="other")
