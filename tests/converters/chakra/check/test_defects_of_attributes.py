"""Defects of node types, attributes, sizes and costs."""

from __future__ import annotations

import pytest

from flint.converters.chakra.check.checker import check_traces
from flint.converters.chakra.schema import NodeType
from tests.converters.chakra.check.defects import both, errors, run, warnings
from tests.converters.chakra.check.traces import AG, coll, comp, in_memory, node, recv, send


@pytest.mark.parametrize("kind", [NodeType.INVALID, NodeType.METADATA, NodeType.MEM_LOAD, 9])
def test_other_node_types(kind):
    assert errors(both([comp(0), node(1, kind)])) == {"node-type"}


@pytest.mark.parametrize("absent", ["comm_type", "comm_size"])
def test_collective_without_required_attribute(absent):
    assert errors(both([coll(0, **{absent: None})])) == {"required-attr"}


@pytest.mark.parametrize("absent", ["comm_dst", "comm_tag", "comm_size"])
def test_send_without_required_attribute(absent):
    report = check_traces(in_memory([[send(0, 1, **{absent: None})], [recv(0, 0)]]))
    assert errors(report) == {"required-attr"}


@pytest.mark.parametrize("absent", ["comm_src", "comm_tag", "comm_size"])
def test_recv_without_required_attribute(absent):
    report = check_traces(in_memory([[send(0, 1)], [recv(0, 0, **{absent: None})]]))
    assert errors(report) == {"required-attr"}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("comm_size", "uint64_val", 64),
        ("comm_size", "int32_val", 64),
        ("comm_type", "int32_val", 0),
        ("is_cpu_op", "int32_val", 0),
        ("involved_dim", "int32_list", [1]),
    ],
)
def test_attribute_in_the_wrong_field(name, field, value):
    report = both([coll(0, **{name: (field, value)})])
    assert errors(report) == {"attr-field"} and field in report.findings[0].message


@pytest.mark.parametrize("field", ["int32_val", "int64_val"])
def test_group_name_that_is_not_a_string(field):
    assert "attr-field" in errors(both([coll(0, pg_name=(field, 1))]))


def test_attribute_given_twice():
    twice = coll(0)
    twice.attr.add(name="comm_size", int64_val=3)
    assert errors(both([twice])) == {"repeated-attr"}


def test_collective_on_the_host():
    assert errors(both([coll(0, is_cpu_op=True)])) == {"cpu-op"}


def test_compute_on_the_host_is_warned_about():
    assert warnings(both([node(0, NodeType.COMP, is_cpu_op=True)])) == {"host-compute"}


@pytest.mark.parametrize("size", [0, -1])
def test_collective_of_no_size(size):
    assert errors(both([coll(0, size=size)])) == {"comm-size"}


def test_message_of_no_size():
    report = check_traces(in_memory([[send(0, 1, size=0)], [recv(0, 0, size=0)]]))
    assert errors(report) == {"comm-size"}


@pytest.mark.parametrize("kind", [1, 3, 4, 5, 8, 9, 77])
def test_collective_that_is_not_modelled(kind):
    assert errors(both([coll(0, kind=kind)])) == {"collective-kind"}


def test_all_gather_smaller_than_its_chunks(tmp_path):
    nodes = [coll(0, kind=AG, size=3)]
    system = {"preferred-dataset-splits": 4}
    assert errors(check_traces(in_memory([nodes, nodes], system=system))) == {"gather-splits"}
    assert errors(run(tmp_path / "w", [nodes, nodes], system=system)) == {"gather-splits"}
    assert both(nodes).ok


@pytest.mark.parametrize("delay", [0, 0.5])
def test_collectives_without_an_endpoint_delay(delay):
    """ASTRA-sim reads it into an integer of nanoseconds."""
    system = {"endpoint-delay": delay}
    nodes = [coll(0)]
    assert errors(check_traces(in_memory([nodes, nodes], system=system))) == {"endpoint-delay"}
    alone = [comp(0)]
    assert check_traces(in_memory([alone, alone], system=system)).ok
    sound = {"endpoint-delay": 1}
    assert check_traces(in_memory([nodes, nodes], system=sound)).ok


@pytest.mark.parametrize("tag", [-1, 500_000_000])
def test_tag_out_of_range(tag):
    report = check_traces(in_memory([[send(0, 1, tag=tag)], [recv(0, 0, tag=tag)]]))
    assert errors(report) == {"tag-range"}


def test_duration_that_overflows():
    assert errors(both([comp(0, micros=1 << 62)])) == {"duration-range"}


def test_compute_without_cost_is_warned_about():
    assert warnings(both([comp(0, micros=0)])) == {"no-cost"}


def test_zero_num_ops_is_warned_about_and_refused_with_the_roofline():
    nodes = [comp(0, num_ops=0, tensor_size=4)]
    assert warnings(both(nodes)) == {"comp-cost"} and both(nodes).ok
    report = check_traces(in_memory([nodes, nodes], system={"roofline-enabled": 1}))
    assert errors(report) == {"roofline-cost"}


def test_a_collective_without_is_cpu_op_is_a_warning(tmp_path):
    """Today's feeder takes 0 for it, older ones took 1 and threw."""
    silent = coll(0)
    kept = [item for item in silent.attr if item.name != "is_cpu_op"]
    del silent.attr[:]
    silent.attr.extend(kept)
    report = run(tmp_path / "w", [[silent], [silent]], npus=[2])
    assert report.ok and report.counts == {"no-cpu-op": 2}
