"""Traces with a host's ops and a device's kernels: launches and waits, by hand."""

from __future__ import annotations

import json

import pytest

import flint
from flint.converters.chakra.schema import NodeType
from flint.cost.systems import load_system
from tests.converters.chakra.check.traces import coll, comp, encode, node

SYSTEM = load_system("dgx-h100")


def host(number, deps=(), **more):
    return node(number, NodeType.COMP, deps, is_cpu_op=True, **more)


#: The host needs 10 us for each of two launches, and waits for the second kernel (30 to 35 us)
#: before the third launch: 2 us later, at 37, a kernel of 4 us begins.
STEP = [
    host(1, micros=10),
    comp(2, [1], ctrl=[1], micros=20),
    host(3, [1], micros=10),
    comp(4, [3], ctrl=[3], micros=5),
    host(5, [3, 4], micros=2),
    comp(6, [5], ctrl=[5], micros=4),
]


def converted(tmp_path, nodes, ranks=1, **options):
    for rank in range(ranks):
        (tmp_path / f"step.{rank}.et").write_bytes(encode(nodes))
    return flint.convert_traces([tmp_path], **options)


@pytest.mark.parametrize(("source", "micros"), [("measured", 41), ("none", 29)])
def test_kernels_begin_when_they_are_launched(tmp_path, source, micros):
    """Without the host, the kernels follow each other: 20 + 5 + 4 us."""
    result = converted(tmp_path, STEP).simulate(SYSTEM, host=source)
    assert result.step_seconds == pytest.approx(micros * 1e-6)
    assert result.compute_seconds == pytest.approx(29e-6)


def test_the_hosts_last_op_belongs_to_the_step(tmp_path):
    nodes = [*STEP, host(7, [5], micros=50)]
    assert converted(tmp_path, nodes).simulate(SYSTEM).step_seconds == pytest.approx(87e-6)


def test_communications_are_measured(tmp_path):
    """The kernels run beside the collective, and one kernel waits for it: 10 + 30 + 4 us."""
    nodes = [
        host(1, micros=10),
        coll(2, [1], size=1 << 20, micros=30),
        comp(3, [1], micros=7),
        comp(4, [1, 2], micros=4),
    ]
    workload = converted(tmp_path, nodes, ranks=2)
    assert workload.simulate(SYSTEM).step_seconds == pytest.approx(44e-6)
    modelled = workload.simulate(SYSTEM, communication="modelled")
    assert modelled.communication_seconds != pytest.approx(30e-6)


def test_a_trace_of_a_host_alone(tmp_path):
    """Its ops are what runs; all of them are in the step."""
    nodes = [host(1, micros=10), host(2, [1], micros=5)]
    assert converted(tmp_path, nodes).simulate(SYSTEM).step_seconds == pytest.approx(15e-6)


def test_nodes_that_never_run_are_named(tmp_path):
    nodes = [host(1, [2], micros=10), comp(2, [1])]
    with pytest.raises(flint.FlintError, match=r"in a circle, among them id [12]"):
        converted(tmp_path, nodes)


def test_groups_that_pytorch_recorded(tmp_path):
    """As Chakra's converter writes them, and ASTRA-sim reads them (Workload.cc): without its first
    and last two characters, the text is JSON; a group without ranks has all."""
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 4, "group_count": 2},
        {"pg_name": "1", "pg_desc": "undefined", "ranks": [0, 2], "group_size": 2},
    ]
    record = node(0, NodeType.METADATA, micros=0)
    record.name = "## process_group:init ##"
    record.inputs.values = str([json.dumps(groups)])
    assert json.loads(record.inputs.values[2:-2]) == groups
    nodes = [record, host(1), coll(2, [1], pg_name="0"), coll(3, [2], pg_name="1")]
    workload = converted(tmp_path, nodes)
    assert workload.mesh.size == 4
    table = workload.programs[0].graph.tables.communications
    assert [item.groups.members(0).tolist() for item in table] == [[0, 1, 2, 3], [0, 2]]


def test_one_ranks_communications_ask_for_the_number_of_ranks(tmp_path):
    nodes = [host(1, micros=10), coll(2, [1], size=1 << 20, micros=30)]
    assert any("--mesh says" in text for text in converted(tmp_path, nodes).warnings)
    workload = converted(tmp_path, nodes, mesh=(8,))
    assert workload.mesh.size == 8 and len(workload.programs) == 2
    assert workload.simulate(SYSTEM).step_seconds == pytest.approx(40e-6)
