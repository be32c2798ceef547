"""What every pass keeps, on random programs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.verification import verify
from flint.graph.work import Unit
from flint.passes import PASSES, apply
from tests.passes import totals
from tests.passes.dependence import execute
from tests.strategies import workload_graphs

#: Passes in the order of their use; a pass is tested on what the ones before it made.
ORDER = ("aliases", "order", "inplace", "fuse", "coarsen")


def before_and_after(graph: WorkloadGraph, name: str) -> tuple[WorkloadGraph, WorkloadGraph]:
    for earlier in ORDER[: ORDER.index("fuse" if name == "fuse-xla" else name)]:
        graph = PASSES[earlier](graph)
    return graph, PASSES[name](graph)


@pytest.mark.parametrize("name", (*ORDER, "fuse-xla"))
@given(graph=workload_graphs())
def test_graph_is_sound(name: str, graph: WorkloadGraph) -> None:
    verify(graph)
    verify(before_and_after(graph, name)[1])


@pytest.mark.parametrize("name", ORDER)
@given(graph=workload_graphs())
def test_work_is_unchanged(name: str, graph: WorkloadGraph) -> None:
    before, after = before_and_after(graph, name)
    assert totals.work(after) == totals.work(before)


@given(graph=workload_graphs())
def test_xla_leaves_out_what_is_computed_twice_and_adds_nothing(graph: WorkloadGraph) -> None:
    """A product with a vector leaves the matrix units: arithmetic of all units counts together."""
    before, after = (Counter[bool](), Counter[bool]())
    for total, g in zip((before, after), before_and_after(graph, "fuse-xla"), strict=True):
        for (unit, *_), flops in totals.work(g).items():
            total[unit == Unit.TRANSCENDENTAL] += flops
    assert all(after[kind] <= before[kind] for kind in after)


@pytest.mark.parametrize("name", (*ORDER, "fuse-xla"))
@given(graph=workload_graphs())
def test_communications_are_unchanged(name: str, graph: WorkloadGraph) -> None:
    before, after = before_and_after(graph, name)
    assert totals.communications(after) == totals.communications(before)


@given(graph=workload_graphs())
def test_removing_aliases_keeps_what_each_value_depends_on(graph: WorkloadGraph) -> None:
    before, after = (execute(g) for g in before_and_after(graph, "aliases"))
    assert after.needs == before.needs
    assert after.outputs == before.outputs


@pytest.mark.parametrize("name", ["order", "fuse"])
@given(graph=workload_graphs())
def test_outputs_and_communications_depend_on_the_same(name: str, graph: WorkloadGraph) -> None:
    before, after = (execute(g) for g in before_and_after(graph, name))
    assert after.needs == before.needs
    assert after.outputs == before.outputs


@given(graph=workload_graphs())
def test_write_after_read_only_adds_dependences(graph: WorkloadGraph) -> None:
    before, after = (execute(g) for g in before_and_after(graph, "inplace"))
    assert after.needs.keys() == before.needs.keys()
    assert all(after.needs[key] >= needed for key, needed in before.needs.items())


@pytest.mark.parametrize("name", ["coarsen", "fuse-xla"])
@given(graph=workload_graphs(depth=0))
def test_regions_keep_what_reaches_communications_and_outputs(
    name: str, graph: WorkloadGraph
) -> None:
    before, after = (execute(g) for g in before_and_after(graph, name))
    assert after.among_communications() == before.among_communications()
    assert after.communications_of_outputs() == before.communications_of_outputs()


@pytest.mark.parametrize("name", ["coarsen", "fuse-xla"])
@given(graph=workload_graphs())
def test_regions_keep_what_reaches_communications_through_loops(
    name: str, graph: WorkloadGraph
) -> None:
    before, after = (execute(g) for g in before_and_after(graph, name))
    assert after.among_communications() == before.among_communications()


@pytest.mark.parametrize("name", ["fuse", "coarsen"])
@given(graph=workload_graphs())
def test_ops_merged_add_up(name: str, graph: WorkloadGraph) -> None:
    before, after = before_and_after(graph, name)
    assert totals.ops(after) == totals.ops(before)


@pytest.mark.parametrize("name", ["fuse", "coarsen"])
@given(graph=workload_graphs())
def test_communications_keep_their_order(name: str, graph: WorkloadGraph) -> None:
    before, after = before_and_after(graph, name)
    is_one = [g.kind == NodeKind.COMMUNICATION for g in (before, after)]
    assert before.detail[is_one[0]].tolist() == after.detail[is_one[1]].tolist()


@pytest.mark.parametrize("granularity", ["op", "kernel", "region"])
@given(graph=workload_graphs())
def test_applying_again_changes_no_count(granularity: str, graph: WorkloadGraph) -> None:
    once = apply(graph, granularity)
    twice = apply(once, granularity)
    assert totals.work(twice) == totals.work(once)
    assert totals.communications(twice) == totals.communications(once)


@given(graph=workload_graphs())
def test_passes_do_not_change_their_argument(graph: WorkloadGraph) -> None:
    columns = {
        name: column.copy() for name, column in vars(graph).items() if hasattr(column, "copy")
    }
    apply(graph, "region")
    assert all((getattr(graph, name) == column).all() for name, column in columns.items())
