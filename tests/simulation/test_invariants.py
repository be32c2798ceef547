"""What holds for every simulation: random programs, groups, meshes and systems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flint.cost.fitting import fit
from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.mesh.groups import StridedGroups, everybody, from_table
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation
from flint.workload.programs import Order
from flint.workload.workload import Workload
from tests.converters.chakra.write.cases import communication
from tests.graph.unrolling.random_graphs import programs
from tests.simulation.test_simulate import workload_of
from tests.support.shared import examples

WORLD = 24
GROUPS = [
    everybody(WORLD),
    StridedGroups(WORLD, ((6, 1),)),  # of nodes of 8: 6, 2 and 4 ...
    StridedGroups(WORLD, ((12, 1),)),
    StridedGroups(WORLD, ((4, 6),)),
    StridedGroups(WORLD, ((3, 8),)),
    StridedGroups(WORLD, ((2, 12), (2, 1))),
    from_table(WORLD, np.random.default_rng(3).permutation(WORLD).reshape(4, 6)),
]
RING = permutation(WORLD, np.array([[i, (i + 5) % WORLD] for i in range(WORLD)]))
MESHES = [
    Mesh((24,), ("x",)),
    Mesh((4, 6), ("data", "model")),
    Mesh((4, 6), ("model", "data")),
    Mesh((2, 2, 6), ("a", "b", "c")),
    Mesh((2, 3, 2, 2), ("p", "q", "r", "s")),
]
#: Communications in one order, or each communicator on a separate stream.
ORDERS = [Order.MODELLED, Order.RECORDED]
SYSTEMS = ["dgx-h100", "dgx-h100-superpod", "tpu-v5e-pod", "mi300x-8"]


def of_24(draw: st.DrawFn) -> Communication:
    """A communication of all 24 ranks; of a gather the operand is what it was before."""
    size = draw(st.sampled_from([24 << 10, 24 << 20]))
    kind = draw(
        st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"])
    )
    if kind == "permute":
        return communication("collective_permute", peers=RING, operands=(size,))
    groups = draw(st.sampled_from(GROUPS))
    before = size // groups.size if kind == "all_gather" else size
    after = size // groups.size if kind == "reduce_scatter" else size
    return communication(kind, groups=groups, operands=(before,), results=(after,))


def issued(graph: WorkloadGraph) -> list[tuple[Communication, int]]:
    """What every rank issues, and how often."""
    table = graph.tables.communications
    return [
        (table[int(block.detail[node])], times)
        for block, times in graph.walk()
        for node in np.flatnonzero(block.kind == NodeKind.COMMUNICATION).tolist()
    ]


def into_block(item: Communication, low: int, high: int) -> float:
    """Bytes that must come into the ranks ``low .. high`` (see test_collective_bounds.py)."""
    if item.permutation is not None:
        target = item.permutation.target
        source = np.arange(WORLD)
        crosses = (target >= low) & (target < high) & ~((source >= low) & (source < high))
        return float(item.bytes_in * crosses.sum())
    size = max(item.bytes_in, item.bytes_out)
    table = item.groups.table()
    inside = ((table >= low) & (table < high)).sum(axis=1)
    total = table.shape[1]
    part = np.where(inside > 0, (total - inside) / total, 0)
    return float((size * part * (inside if item.kind == "all_to_all" else 1)).sum())


def simulated(workload: Workload, system: object, **options: object):
    try:
        return workload.simulate(system, granularity="op", **options)
    except FlintError as error:
        assert "nothing to simulate" in str(error)
        assume(False)
        raise


@given(programs(of_24), st.sampled_from(SYSTEMS), st.sampled_from(ORDERS))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_never_below_what_the_busiest_nodes_ports_take_in(graph, name, order):
    """All communication of the step, through the ports of the devices of each node or pod: no
    program is done before, whatever overlaps with what."""
    system, _ = fit(load_system(name), WORLD)
    result = simulated(replace(workload_of(graph, mesh=MESHES[1]), order=order), name)
    inner = 1
    for tier in system.network:
        links = 2 * tier.rings if tier.topology == "Ring" else 1
        for low in range(0, WORLD, inner):
            high = min(low + inner, WORLD)
            needed = sum(times * into_block(item, low, high) for item, times in issued(graph))
            rate = (high - low) * links * tier.bandwidth * tier.efficiency
            assert result.step_seconds >= needed / rate * 0.999999
        inner = tier.size or WORLD
        if inner >= WORLD:
            break


@given(
    programs(of_24), st.sampled_from(SYSTEMS), st.sampled_from(ORDERS), st.sampled_from(MESHES),
    st.sampled_from(MESHES),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_names_and_the_number_of_axes_do_not_matter(graph, name, order, one, other):
    """The same ranks in the same groups: the mesh is what they are called."""
    first = simulated(replace(workload_of(graph, mesh=one), order=order), name)
    second = simulated(replace(workload_of(graph, mesh=other), order=order), name)
    assert first.figures == second.figures
    assert first.behaviours == second.behaviours


@given(programs(of_24), st.sampled_from(SYSTEMS), st.sampled_from(["bandwidth", "latency"]))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_communication_never_takes_longer_on_a_better_network(graph, name, what):
    system = load_system(name)
    tiers = tuple(
        replace(tier, bandwidth=tier.bandwidth * 3)
        if what == "bandwidth"
        else replace(tier, latency=tier.latency / 3)
        for tier in system.network
    )
    workload = workload_of(graph, mesh=MESHES[0])
    before = simulated(workload, system)
    after = simulated(workload, replace(system, network=tiers))
    # A COLL lasts as long on all members; waiting for them is not communication.
    assert after.communication_seconds <= before.communication_seconds * (1 + 1e-9)


@given(programs(of_24), st.sampled_from(SYSTEMS), st.sampled_from(ORDERS))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_compute_exposed_and_idle_add_up_to_the_step(graph, name, order):
    result = simulated(replace(workload_of(graph, mesh=MESHES[2]), order=order), name)
    figures = result.figures
    parts = figures.compute_seconds + figures.exposed_communication_seconds + figures.idle_seconds
    assert parts == pytest.approx(figures.step_seconds, abs=1e-11)
    assert figures.exposed_communication_seconds <= figures.communication_seconds + 1e-12
    assert figures.compute_seconds <= figures.step_seconds + 1e-12
    rows = result.programs[0].classes
    assert sum(row.seconds for row in rows if row.communicates) == pytest.approx(
        figures.communication_seconds, abs=1e-11
    )
