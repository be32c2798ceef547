"""Compute nodes that wait for nothing: one after another, at no cost in time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.schema import NodeType
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import WorkloadGraph
from tests.converters.chakra.consumer import execute
from tests.converters.chakra.write.cases import (
    GROUPS,
    any_communication,
    communication,
    nodes,
    write_all,
)
from tests.graph.unrolling.random_graphs import TYPE, WORK, programs
from tests.support.shared import examples


def converted_parameters(count: int) -> WorkloadGraph:
    """Per layer a parameter is converted, then reduced over everybody, then used."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(TYPE))
    weights = [builder.input(tables.type(TYPE)) for _ in range(count)]
    for weight in weights:
        (made,) = builder.compute("convert", 2, (weight,), (TYPE,), WORK)  # type: ignore[arg-type]
        item = communication("all_reduce", groups=GROUPS[0])
        (made,) = builder.communication(item, (made,), (TYPE,))
        (value,) = builder.compute("dot", 5, (value, made), (TYPE,), WORK)  # type: ignore[arg-type]
    return builder.finish((value,))


def test_of_nodes_that_wait_for_nothing_each_waits_for_the_one_before(tmp_path):
    write_all(tmp_path, converted_parameters(3))
    converts = [node for node in nodes(tmp_path, 0) if node.name == "convert"]
    assert [list(node.data_deps) for node in converts] == [[], [converts[0].id], [converts[1].id]]
    assert check(tmp_path).ok


def test_they_stay_as_they_are_where_that_is_asked_for(tmp_path):
    manifest = write_all(tmp_path, converted_parameters(3), unordered_starts=True)
    converts = [node for node in nodes(tmp_path, 0) if node.name == "convert"]
    assert not any(node.data_deps for node in converts) and manifest.ordered_starts == 0


def test_the_manifest_counts_them(tmp_path):
    assert write_all(tmp_path, converted_parameters(5)).ordered_starts == 4


def ends(folder: Path, graph: WorkloadGraph, seed: int, **options: object) -> list[int]:
    """When each rank is done, with durations that depend on the node only."""
    folder.mkdir()
    write_all(folder, graph, **options)

    def durations(rank: int, ids: np.ndarray) -> np.ndarray:
        table = np.random.default_rng(seed).integers(0, 50, int(ids.max()) + 1)
        return table[ids.astype(np.int64)]

    result = execute(load_trace_set(folder), durations=durations)
    assert result.complete
    found: list[int] = result.time.tolist()
    return found


@given(programs(any_communication), st.integers(0, 1 << 16))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_rank_is_done_earlier_or_later(tmp_path_factory, graph, seed):
    place = tmp_path_factory.mktemp("starts")
    loose = ends(place / "loose", graph, seed, unordered_starts=True)
    assert ends(place / "ordered", graph, seed) == loose


@pytest.mark.parametrize("seed", range(5))
def test_a_start_still_runs_while_earlier_nodes_wait(tmp_path, seed):
    """The second convert is taken while the first product waits for its reduction."""
    graph = converted_parameters(6)
    loose = ends(tmp_path / "loose", graph, seed, unordered_starts=True)
    assert ends(tmp_path / "ordered", graph, seed) == loose


def test_at_most_one_compute_node_of_a_rank_waits_for_nothing(tmp_path):
    write_all(tmp_path, converted_parameters(40))
    free = [n for n in nodes(tmp_path, 0) if n.type == NodeType.COMP and not n.data_deps]
    assert len(free) == 1
