"""Each defect that consumers are known to trip over is refused, by the rule that names it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from flint.converters.chakra.checker import RULES, CheckReport, Severity, check, check_traces
from flint.converters.chakra.schema import NodeType
from flint.errors import FlintError, UsageError
from tests.chakra.traces import (
    AG,
    METADATA,
    RS,
    coll,
    comp,
    encode,
    frame,
    in_memory,
    node,
    recv,
    send,
    write,
)

GOOD = [comp(0), coll(1, [0]), comp(2, [1])]


def run(folder: Path, ranks, **more) -> CheckReport:
    return check(write(folder, ranks, **more))


def both(nodes) -> CheckReport:
    """Both ranks of a world of two have these nodes."""
    return check_traces(in_memory([nodes, nodes]))


def errors(report: CheckReport) -> set[str]:
    return {item.rule for item in report.findings if item.severity is Severity.ERROR}


def warnings(report: CheckReport) -> set[str]:
    return {item.rule for item in report.findings if item.severity is Severity.WARNING}


def test_sound_traces_pass_without_a_word(tmp_path):
    report = run(tmp_path / "w", [GOOD, GOOD], npus=[2])
    assert report.findings == () and report.ok
    assert (report.ranks, report.size, report.nodes, report.distinct_files) == (2, 2, 6, 1)
    assert set(report.checked) == set(RULES) and not report.not_checked


def test_every_rule_says_what_it_demands():
    assert all(text for _, text in RULES.values())


# ---- files


def test_truncated_file(tmp_path):
    report = run(tmp_path / "w", [GOOD, encode(GOOD)[:-1]])
    (finding,) = report.findings
    assert (finding.rule, finding.rank) == ("framing", 1)
    assert finding.file.endswith("trace.1.et") and "byte" in finding.message


def test_garbage_in_a_node(tmp_path):
    assert errors(run(tmp_path / "w", [GOOD, METADATA + b"\x02\x08\xff"])) == {"framing"}


def test_missing_metadata(tmp_path):
    body = b"".join(frame(item) for item in GOOD)
    assert errors(run(tmp_path / "w", [GOOD, body])) == {"missing-metadata"}


def test_empty_file_has_no_metadata(tmp_path):
    assert errors(run(tmp_path / "w", [GOOD, b""])) == {"missing-metadata"}


def test_gzip_is_read(tmp_path):
    packed = gzip.compress(encode(GOOD))
    assert run(tmp_path / "w", [packed, GOOD]).ok


def test_empty_graph():
    assert errors(check_traces(in_memory([[], [comp(0)]]))) == {"empty-graph"}


def test_missing_file(tmp_path):
    folder = write(tmp_path / "w", [GOOD, GOOD, GOOD])
    (folder / "et" / "trace.1.et").unlink()
    report = check(folder)
    assert errors(report) == {"missing-file"}
    assert report.findings[0].rank == 1
    assert report.not_checked["group-sequence"] == "mend first: missing-file"


def test_fewer_files_than_the_network_has_ranks(tmp_path):
    report = run(tmp_path / "w", [GOOD, GOOD], npus=[2, 2])
    assert errors(report) == {"missing-file"} and report.counts["missing-file"] == 2


def test_more_files_than_the_network_has_ranks(tmp_path):
    with pytest.raises(UsageError, match="npus_count"):
        run(tmp_path / "w", [GOOD, GOOD, GOOD], npus=[2])


def test_one_rank(tmp_path):
    assert errors(run(tmp_path / "w", [[comp(0)]])) == {"world-size"}


def test_no_traces_at_all(tmp_path):
    with pytest.raises(UsageError, match="no execution traces"):
        check(tmp_path)


def test_partial_set_says_what_was_not_checked(tmp_path):
    folder = write(tmp_path / "w", [GOOD, GOOD], npus=[4])
    (folder / "workload.json").write_text(json.dumps({"partial": True}))
    report = check(folder)
    assert report.ok and report.findings == ()
    assert {"missing-file", "group-sequence", "p2p-match", "slot-order"} <= set(report.not_checked)


def test_partial_set_without_a_network_accepts_peers_that_are_not_there(tmp_path):
    nodes = [send(0, 700), coll(1, [0], pg_name="1")]
    folder = write(tmp_path / "w", [nodes, [comp(0)]], groups={"1": [0, 700]})
    (folder / "workload.json").write_text(json.dumps({"partial": True}))
    report = check(folder)
    assert report.findings == () and "p2p-peer" in report.not_checked


def test_prefix_names_one_of_several_sets(tmp_path):
    for name in ("a", "b"):
        for rank in range(2):
            nodes = GOOD if name == "a" else [comp(0, [0])]
            (tmp_path / f"{name}.{rank}.et").write_bytes(encode(nodes))
    with pytest.raises(UsageError, match=r"several prefixes \(a, b\)"):
        check(tmp_path)
    assert check(tmp_path / "a").ok and not check(tmp_path / "b").ok


def test_group_table_and_extents_can_be_given(tmp_path):
    nodes = [coll(0, pg_name="1"), coll(1, [0], involved_dim=[True, False])]
    folder = write(tmp_path / "w", [nodes] * 4)
    table = tmp_path / "groups.json"
    table.write_text(json.dumps({"1": [0, 1, 2, 3]}))
    assert check(folder, comm_groups=table, npus_count=(2, 2)).ok
    assert errors(check(folder, npus_count=(2, 2))) == {"group-unknown"}


def test_too_few_implementations_are_warned_about():
    system = {"all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring", "ring"]}
    report = check_traces(in_memory([GOOD] * 4, npus=[2, 2], system=system))
    assert report.ok and report.counts == {"implementations": 1}


# ---- ids and dependencies


def test_duplicate_id():
    assert errors(both([comp(0), comp(0)])) == {"duplicate-id"}


def test_missing_dependency():
    report = both([comp(0), comp(1, [7])])
    assert errors(report) == {"missing-dep"} and "id 7" in report.findings[0].message


def test_self_dependency():
    report = both([comp(0), comp(1, [1])])
    assert errors(report) == {"self-dep"} and report.findings[0].node == 1


def test_dependency_cycle():
    report = both([comp(0, [2]), comp(1, [0]), comp(2, [1])])
    assert errors(report) == {"cycle"}
    circles = ("0 -> 1 -> 2 -> 0", "1 -> 2 -> 0 -> 1", "2 -> 0 -> 1 -> 2")
    assert any(circle in report.findings[0].message for circle in circles)


def test_cycle_through_ctrl_deps():
    assert "cycle" in errors(both([comp(0, ctrl=[1]), comp(1, [0])]))


def test_forward_references_are_fine():
    assert both([comp(1, [5]), comp(5)]).ok


def test_ctrl_deps_are_warned_about():
    report = both([comp(0), comp(1, ctrl=[0])])
    assert report.ok and warnings(report) == {"ctrl-deps"}


def test_order_by_ctrl_deps_does_not_count():
    """Ranks whose consumer ignores ctrl_deps may start the two in either order."""
    nodes = [comp(0), coll(1, [0]), comp(2), coll(3, [2], ctrl=[1])]
    assert "group-chain" in errors(both(nodes))


# ---- node types and attributes


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
def test_group_name_that_is_no_string(field):
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


# ---- groups


def test_group_key_that_is_no_integer(tmp_path):
    groups = {"0": [0, 1], "tp": [0, 1], "2": "all", "3": [0, 9], "4": [0, 0], "5": []}
    report = run(tmp_path / "w", [GOOD, GOOD], groups=groups)
    assert errors(report) == {"group-table"} and report.counts["group-table"] == 6


def test_group_key_that_is_repeated(tmp_path):
    report = run(tmp_path / "w", [GOOD, GOOD], groups='{"1": [0, 1], "1": [1]}')
    assert errors(report) == {"group-table"}


def test_group_table_that_is_no_json(tmp_path):
    with pytest.raises(FlintError, match="not JSON"):
        run(tmp_path / "w", [GOOD, GOOD], groups='{"1": [0, 1')


@pytest.mark.parametrize("name", ["tp", "-1", "01", "1.0", " 1", "99999999999999999999"])
def test_group_name_that_is_no_integer(name):
    assert errors(both([coll(0, pg_name=name)])) == {"group-key"}


@pytest.mark.parametrize("name", ["", "0"])
def test_group_zero_means_everybody(name):
    assert both([coll(0, pg_name=name)]).ok


def test_undeclared_group():
    assert errors(both([coll(0, pg_name="7")])) == {"group-unknown"}


def test_rank_that_is_no_member():
    one, two = [coll(0, pg_name="1")], [comp(0)]
    traces = in_memory([one, one, one, two], groups={1: [0, 1]})
    report = check_traces(traces)
    assert errors(report) == {"group-member"} and report.findings[0].rank == 2


def test_group_of_one():
    traces = in_memory([[coll(0, pg_name="1")], [comp(0)]], groups={1: [0]})
    assert errors(check_traces(traces)) == {"group-of-one"}


def test_dims_that_make_a_group_of_one():
    nodes = [coll(0, involved_dim=[False, False])]
    assert errors(check_traces(in_memory([nodes] * 4, npus=[2, 2]))) == {"group-of-one"}


def test_involved_dim_of_the_wrong_length():
    nodes = [coll(0, involved_dim=[True])]
    assert errors(check_traces(in_memory([nodes] * 4, npus=[2, 2]))) == {"group-key"}


def test_involved_dim_without_a_network():
    nodes = [coll(0, involved_dim=[True, False])]
    assert errors(check_traces(in_memory([nodes] * 4))) == {"group-key"}


def test_involved_dim_is_resolved_with_dim_0_consecutive():
    """Dim 0 of [2, 2] joins ranks 0 and 1; rank 2 disagreeing with 3 is seen, 0 with 2 is fine."""
    small, large = ([coll(0, size=size, involved_dim=[True, False])] for size in (8, 16))
    assert check_traces(in_memory([small, small, large, large], npus=[2, 2])).ok
    report = check_traces(in_memory([small, large, small, large], npus=[2, 2]))
    assert errors(report) == {"group-sequence"} and report.counts["group-sequence"] == 2


def test_pg_name_over_two_dims_is_warned_about():
    nodes = [coll(0, pg_name="1")]
    report = check_traces(in_memory([nodes] * 4, npus=[2, 2], groups={1: [0, 1, 2, 3]}))
    assert report.ok and warnings(report) == {"network-span"}


def test_message_over_two_dims_is_warned_about():
    ranks = [[send(0, 3)], [comp(0)], [comp(0)], [recv(0, 0)]]
    report = check_traces(in_memory(ranks, npus=[2, 2]))
    assert report.ok and warnings(report) == {"network-span"}
    ranks = [[send(0, 2)], [comp(0)], [recv(0, 0)], [comp(0)]]
    assert check_traces(in_memory(ranks, npus=[2, 2])).findings == ()


def test_more_than_four_dims_are_warned_about():
    report = check_traces(in_memory([[comp(0)]] * 32, npus=[2] * 5))
    assert report.ok and warnings(report) == {"network-dims"}


# ---- partners


def test_member_without_the_collective():
    assert errors(check_traces(in_memory([GOOD, [comp(0)]]))) == {"group-sequence"}


def test_member_with_one_collective_more():
    longer = [*GOOD, coll(3, [2])]
    assert errors(check_traces(in_memory([GOOD, longer]))) == {"group-sequence"}


def test_sizes_that_differ_among_members():
    report = check_traces(in_memory([[coll(0, size=8)], [coll(0, size=16)]]))
    assert errors(report) == {"group-sequence"}
    assert "16 bytes" in report.findings[0].message and "8 bytes" in report.findings[0].message


def test_kinds_that_differ_among_members():
    report = check_traces(in_memory([[coll(0, kind=AG)], [coll(0, kind=RS)]]))
    assert errors(report) == {"group-sequence"}


def test_sequences_that_differ_among_members():
    one = [coll(0, size=8), coll(1, [0], size=16)]
    two = [coll(0, size=16), coll(1, [0], size=8)]
    assert errors(check_traces(in_memory([one, two]))) == {"group-sequence"}


@pytest.mark.parametrize("peer", [-1, 2])
def test_peer_out_of_range(peer):
    assert errors(check_traces(in_memory([[send(0, peer)], [comp(0)]]))) == {"p2p-peer"}
    assert errors(check_traces(in_memory([[recv(0, peer)], [comp(0)]]))) == {"p2p-peer"}


def test_send_to_oneself():
    report = check_traces(in_memory([[send(0, 0), recv(1, 0)], [comp(0)]]))
    assert errors(report) == {"p2p-peer"}


def test_own_side_that_names_another_rank():
    report = check_traces(in_memory([[send(0, 1, comm_src=1)], [recv(0, 0)]]))
    assert errors(report) == {"p2p-peer"}
    report = check_traces(in_memory([[send(0, 1, comm_src=0)], [recv(0, 0, comm_dst=1)]]))
    assert report.ok


def test_recv_that_is_never_sent():
    report = check_traces(in_memory([[comp(0)], [recv(0, 0)]]))
    assert errors(report) == {"p2p-match"} and "never sent" in report.findings[0].message


def test_send_that_is_never_received():
    report = check_traces(in_memory([[send(0, 1)], [comp(0)]]))
    assert errors(report) == {"p2p-match"} and "never received" in report.findings[0].message


@pytest.mark.parametrize("change", [{"tag": 1}, {"size": 9}, {"src": 2}])
def test_message_whose_two_sides_differ(change):
    attrs = {"src": 0, "tag": 0, "size": 8} | change
    ranks = [[send(0, 1)], [recv(0, **attrs)], [comp(0)]]
    assert errors(check_traces(in_memory(ranks))) == {"p2p-match"}


def test_message_of_another_size_is_pointed_at():
    report = check_traces(in_memory([[send(3, 1)], [recv(0, 0, size=9)]]))
    assert "(node 3 there) has 8 bytes" in report.findings[0].message


def test_unordered_messages_of_one_key():
    report = check_traces(in_memory([[send(0, 1), send(1, 1, [0])], [recv(0, 0), recv(1, 0)]]))
    assert errors(report) == {"p2p-order"}
    report = check_traces(in_memory([[send(0, 1), send(1, 1)], [recv(0, 0), recv(1, 0, [0])]]))
    assert errors(report) == {"p2p-order"}


def test_ordered_messages_of_one_key():
    ranks = [
        [send(0, 1), comp(1, [0]), send(2, 1, [1])],
        [recv(0, 0), comp(1, [0]), coll(2, [1], pg_name="1"), recv(3, 0, [2])],
        [coll(0, pg_name="1")],
    ]
    assert check_traces(in_memory(ranks, groups={1: [1, 2]})).ok


# ---- order over all ranks


def test_independent_send_behind_a_collective():
    """Hanging trace (a): rank 0 may start the collective before its slow COMP lets the SEND go."""
    ranks = [
        [comp(1), send(2, 1, [1]), coll(3)],
        [recv(1, 0), coll(2, [1])],
    ]
    report = check_traces(in_memory(ranks))
    assert errors(report) == {"slot-order"}
    assert report.findings[0].rank == 0 and report.findings[0].node == 3


def test_independent_send_mended_by_an_edge():
    ranks = [
        [comp(1), send(2, 1, [1]), coll(3, [2])],
        [recv(1, 0), coll(2, [1])],
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_collectives_that_become_ready_in_different_order():
    """Hanging trace (b): equal ids and sequences, but each COLL follows a COMP of its own."""
    ranks = [
        [comp(0, micros=1), comp(1, [0], micros=99), coll(2, [0]), coll(3, [1], size=128)],
        [comp(0, micros=1), comp(1, micros=99), coll(2, [1]), coll(3, [0], size=128)],
    ]
    assert errors(check_traces(in_memory(ranks))) >= {"group-chain"}


def test_collectives_of_equal_size_that_may_pair_wrongly():
    nodes = [comp(0), comp(1), coll(2, [0]), coll(3, [1])]
    assert "group-chain" in errors(both(nodes))


def test_collectives_mended_by_a_chain():
    ranks = [
        [comp(0, micros=1), comp(1, [0], micros=99), coll(2, [0]), coll(3, [1, 2], size=128)],
        [comp(0, micros=1), comp(1, micros=99), coll(2, [1]), coll(3, [0, 2], size=128)],
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_groups_crossed_on_two_ranks():
    """Both ranks have chains, but of two groups in opposite order."""
    ranks = [
        [coll(0, pg_name="1"), coll(1, [0], pg_name="2")],
        [coll(0, pg_name="2"), coll(1, [0], pg_name="1")],
    ]
    report = check_traces(in_memory(ranks, groups={1: [0, 1], 2: [1, 0]}))
    assert errors(report) == {"cross-rank-cycle"}


def test_ring_of_groups_that_closes():
    """Rows and columns of a 2 x 2 mesh, each rank's order consistent by itself."""
    groups = {1: [0, 1], 2: [1, 3], 3: [3, 2], 4: [2, 0]}
    order = {0: ("1", "4"), 1: ("2", "1"), 3: ("3", "2"), 2: ("4", "3")}
    ranks = [
        [coll(0, pg_name=order[rank][0]), coll(1, [0], pg_name=order[rank][1])] for rank in range(4)
    ]
    assert errors(check_traces(in_memory(ranks, groups=groups))) == {"cross-rank-cycle"}


def test_unordered_rows_and_columns_may_hang():
    """Each rank leaves row and column collective unordered: four holds can close a circle."""
    nodes = [coll(0, involved_dim=[True, False]), coll(1, involved_dim=[False, True])]
    assert errors(check_traces(in_memory([nodes] * 4, npus=[2, 2]))) == {"slot-order"}


def test_unordered_collectives_of_a_tree_are_fine():
    """Rank 0 has two partners that know nothing of each other: either order works."""
    ranks = [
        [coll(0, pg_name="1"), coll(1, pg_name="2")],
        [coll(0, pg_name="1")],
        [coll(0, pg_name="2")],
    ]
    assert check_traces(in_memory(ranks, groups={1: [0, 1], 2: [0, 2]})).findings == ()


def test_unordered_send_to_a_bystander_is_fine():
    ranks = [[coll(0), send(1, 2)], [coll(0)], [coll(0), recv(1, 0)]]
    assert check_traces(in_memory(ranks)).findings == ()


def test_pair_ordered_through_another_rank_is_fine():
    """SEND -> rank 1 -> RECV -> COLL orders SEND before COLL, though not by rank 0's edges."""
    ranks = [
        [send(0, 1), recv(1, 1, tag=1), coll(2, [1])],
        [recv(0, 0), send(1, 0, [0], tag=1), coll(2, [1])],
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_messages_that_wait_for_each_other():
    ranks = [[recv(0, 1), send(1, 1, [0])], [recv(0, 0), send(1, 0, [0])]]
    report = check_traces(in_memory(ranks))
    assert errors(report) == {"cross-rank-cycle"} and "RECV 0 of rank" in report.findings[0].message


def test_collective_before_the_send_that_the_peer_needs():
    ranks = [[coll(0), send(1, 1, [0])], [recv(0, 0), coll(1, [0])]]
    assert errors(check_traces(in_memory(ranks))) == {"cross-rank-cycle"}


def test_ring_of_messages_passes():
    ranks = [
        [
            send(0, (rank + 1) % 4, tag=0),
            recv(1, (rank - 1) % 4, tag=0),
            comp(2, [1]),
            send(3, (rank + 1) % 4, [0, 2], tag=1),
            recv(4, (rank - 1) % 4, [2], tag=1),
            coll(5, [3, 4]),
        ]
        for rank in range(4)
    ]
    assert check_traces(in_memory(ranks)).findings == ()


def test_pipeline_passes():
    """Stages whose communications lie at different depths: no common level exists."""
    stages = 4
    ranks = []
    for stage in range(stages):
        nodes, last = [], None
        for step in range(6):
            number = 10 * step
            if stage:
                nodes.append(recv(number, stage - 1, tag=step))
            deps = ([number] if stage else []) + ([last] if last is not None else [])
            nodes.append(comp(number + 1, deps))
            last = number + 1
            if stage < stages - 1:
                nodes.append(send(number + 2, stage + 1, [number + 1], tag=step))
                last = number + 2
        nodes.append(coll(100, [last]))
        ranks.append(nodes)
    assert check_traces(in_memory(ranks)).findings == ()


def test_findings_are_bounded_and_counted():
    nodes = [comp(number, [number]) for number in range(1000)]
    report = both(nodes)
    assert report.counts == {"self-dep": 2000} and len(report.findings) == 20
    assert report.errors == 2000 and report.warnings == 0


@pytest.mark.parametrize("bound", ["MAX_PAIRS", "MAX_VERTICES", "MAX_BITS"])
def test_unordered_pairs_are_refused_where_the_analysis_would_be_too_large(monkeypatch, bound):
    monkeypatch.setattr(f"flint.converters.chakra.checker_slot.{bound}", 1)
    ranks = [
        [coll(0, pg_name="1"), coll(1, pg_name="2")],
        [coll(0, pg_name="1")],
        [coll(0, pg_name="2")],
    ]
    report = check_traces(in_memory(ranks, groups={1: [0, 1], 2: [0, 2]}))
    assert errors(report) == {"slot-order"} and "too many" in report.findings[0].message
