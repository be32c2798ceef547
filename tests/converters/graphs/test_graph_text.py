"""GraphML and DOT files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings

from flint.converters.graphs.graph_text import write_dot, write_graphml
from flint.errors import FlintError, UsageError
from flint.graph.graph import WorkloadGraph, with_tables
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.programs import Program, ProgramInput
from flint.workload.workload import Workload
from tests.strategies import workload_graphs

Saved = Callable[..., Workload]


def renamed(workload: Workload, old: str, new: str) -> Workload:
    """The workload with an op's name replaced: names come from the input and may be anything."""
    [program] = workload.programs
    tables = program.graph.tables
    ops = tuple(new if op == old else op for op in tables.ops)
    graph = with_tables(program.graph, replace(tables, ops=ops))
    return replace(workload, programs=(replace(program, graph=graph),))


@pytest.mark.parametrize("unroll", [False, True])
def test_graphml_read_back_is_the_same_graph(saved: Saved, tmp_path: Path, unroll: bool) -> None:
    workload = saved("llama_tiny_scan_fsdp4_tp2")
    path = tmp_path / "step.graphml"
    write_graphml(workload, path, unroll=unroll)
    read = nx.read_graphml(path, force_multigraph=True)
    made = workload.to_networkx(unroll=unroll)
    assert set(read) == set(made)
    ends = [Counter((u, v) for u, v, _ in graph.edges(keys=True)) for graph in (read, made)]
    assert ends[0] == ends[1]
    for name, fields in made.nodes(data=True):
        got = {key: value for key, value in read.nodes[name].items() if key != "results"}
        assert got == {key: value for key, value in fields.items() if key != "results"}
        assert read.nodes[name].get("results", "") == ";".join(fields.get("results", ()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=workload_graphs())
def test_any_program_gives_valid_graphml(graph: WorkloadGraph, tmp_path: Path) -> None:
    inputs = tuple(ProgramInput(graph.tables.types[t]) for t in graph.input_type.tolist())
    workload = Workload(Mesh((8,)), (Program("main", graph, all_ranks(8), inputs),))
    path = tmp_path / "graph.graphml"
    write_graphml(workload, path)
    made = workload.to_networkx()
    read = nx.read_graphml(path, force_multigraph=True)
    assert (len(read), read.number_of_edges()) == (len(made), made.number_of_edges())
    ids = [edge.get("id") for edge in ElementTree.parse(path).iter() if edge.tag.endswith("}edge")]
    assert len(set(ids)) == len(ids)


def test_names_of_any_characters_survive_graphml(loop: Workload, tmp_path: Path) -> None:
    path = tmp_path / "odd.graphml"
    write_graphml(renamed(loop, "tanh", 'a<b & "c"\x00\x1b[31m'), path)
    ops = {op for _, op in nx.read_graphml(path).nodes(data="op")}
    assert 'a<b & "c"\ufffd\ufffd[31m' in ops


def test_dot_draws_a_loop_as_a_cluster_that_closes(loop: Workload, tmp_path: Path) -> None:
    path = tmp_path / "step.dot"
    write_dot(loop, path)
    text = path.read_text()
    assert text.startswith('digraph "main" {')
    assert re.search(r'subgraph "cluster_\d+" \{\n  label="body of loop \d+, 5 times"', text)
    without_strings = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    assert without_strings.count("{") == without_strings.count("}") == 2


def test_dot_has_every_node_and_edge_once(saved: Saved, tmp_path: Path) -> None:
    workload = saved("llama_tiny_scan_fsdp4_tp2")
    path = tmp_path / "step.dot"
    write_dot(workload, path)
    made = workload.to_networkx()
    lines = path.read_text().splitlines()
    assert sum(bool(re.match(r'  "[^"]*" -> "[^"]*"', line)) for line in lines) == len(made.edges)
    assert sum(bool(re.match(r'  "[^"]*" \[label=', line)) for line in lines) == len(made)


def test_dot_escapes_quotes_and_backslashes(loop: Workload, tmp_path: Path) -> None:
    path = tmp_path / "odd.dot"
    write_dot(renamed(loop, "tanh", 'x"];evil\\'), path)
    assert 'x\\"];evil\\\\' in path.read_text()


def test_nothing_is_left_when_a_file_cannot_be_written(loop: Workload, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        write_dot(loop, tmp_path / "missing" / "a.dot")
    with pytest.raises(UsageError, match="is a folder"):
        write_graphml(loop, tmp_path)
    with pytest.raises(FlintError, match="cannot be written"):
        write_dot(loop, tmp_path / ("n" * 300))
    assert list(tmp_path.iterdir()) == []
