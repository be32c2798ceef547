"""Chakra traces of other tools: what is absent stays unknown; nothing is taken for a default."""

from __future__ import annotations

import json

import pytest

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.read.observe import observe as observe_chakra_ops
from flint.errors import FlintError
from flint.observed.classes import OpClass
from flint.observed.columns import UNKNOWN_RANK
from flint.observed.reading import read_trace
from flint.validation.validating import validate
from tests.validation.hand_made import workload


def written(path, *nodes):
    """An ET file, framed as protobuf's length-delimited streams are."""
    data = b""
    for message in (pb.GlobalMetadata(version="0.0.4"), *nodes):
        record = message.SerializeToString()
        size = len(record)
        while size >= 128:
            data += bytes([size & 127 | 128])
            size >>= 7
        data += bytes([size]) + record
    path.write_bytes(data)
    return path


def node(number, name, kind, *, micros=0, inside=(), after=(), **attributes):
    """A node; attributes as int64, flags as bool."""
    found = pb.Node(
        id=number, name=name, type=kind, duration_micros=micros, ctrl_deps=inside, data_deps=after
    )
    for key, value in attributes.items():
        item = found.attr.add(name=key)
        if isinstance(value, str):
            item.string_val = value
        elif key in ("comm_src", "comm_dst"):
            item.int32_val = value
        elif isinstance(value, bool):
            item.bool_val = value
        else:
            item.int64_val = value
    return found


def kinds(path):
    trace = observe_chakra_ops(path)
    return [trace.facts[number].kind for number in trace.op.tolist()], trace


def test_kinds_sizes_and_times_are_taken_as_they_are(tmp_path):
    path = written(
        tmp_path / "t.3.et",
        node(1, "METADATA", pb.METADATA_NODE),
        node(2, "COMP_NODE", pb.COMP_NODE, micros=5),
        node(3, "COMM_COLL_NODE_ALL_REDUCE", pb.COMM_COLL_NODE, comm_type=0, comm_size=1024),
        node(4, "x", pb.COMM_COLL_NODE, comm_type=7, comm_size=64, micros=9),
        node(5, "s", pb.COMM_SEND_NODE, comm_size=16),
        node(6, "MEM_LOAD_NODE", pb.MEM_LOAD_NODE),
    )
    found, trace = kinds(path)
    assert found == [
        OpClass.FREE, OpClass.OTHER, OpClass.ALL_REDUCE, OpClass.REDUCE_SCATTER, OpClass.SEND,
        OpClass.FREE,
    ]  # fmt: skip
    assert [trace.facts[n].parts for n in trace.op.tolist()[2:5]] == [(1024,), (64,), (16,)]
    assert trace.duration.tolist() == [0, 5000, 0, 9000, 0, 0]
    assert (trace.ranks, trace.world) == ((3,), None)


@pytest.mark.parametrize("size", [ord("{"), ord("["), ord(" ")])
def test_a_first_record_as_long_as_a_braces_code_is_not_json(size, tmp_path):
    data = pb.GlobalMetadata(version="0" * (size - 2)).SerializeToString()
    assert len(data) == size
    path = written(tmp_path / "t.0.et", node(1, "s", pb.COMM_SEND_NODE, comm_size=16))
    rest = path.read_bytes()
    path.write_bytes(bytes([size]) + data + rest[1 + rest[0] :])
    assert read_trace(path).form == "chakra"


def test_a_kind_that_is_absent_is_not_an_all_reduce(tmp_path):
    path = written(
        tmp_path / "t.0.et",
        node(1, "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", pb.COMM_COLL_NODE, comm_size=8),
        node(2, "collective", pb.COMM_COLL_NODE, comm_size=8),
        node(3, "nccl:all_to_all", pb.COMM_COLL_NODE),
        node(4, "barrier", pb.COMM_COLL_NODE, comm_type=9),
        node(5, "new", pb.COMM_COLL_NODE, comm_type=77, comm_size=8),
    )
    found, trace = kinds(path)
    assert found == [
        OpClass.ALL_GATHER, OpClass.OTHER_COLLECTIVE, OpClass.ALL_TO_ALL, OpClass.FREE,
        OpClass.OTHER_COLLECTIVE,
    ]  # fmt: skip
    assert trace.facts[trace.op[2]].parts is None
    assert trace.notes["collectives without comm_type: their kind is read from their names"] == 2
    assert (
        trace.notes["collectives without comm_type, whose kind the name does not show either"] == 1
    )


def pytorch_step(path):
    """The hand-made step as the converter of the Chakra tools writes it: CPU ops and kernels."""
    cpu, gpu = {"is_cpu_op": True}, {"is_cpu_op": False}
    return written(
        path,
        node(1, "[pytorch|profiler|execution_trace|thread]", pb.METADATA_NODE),
        node(2, "aten::linear", pb.COMP_NODE, micros=90, **cpu),
        node(3, "aten::t", pb.COMP_NODE, micros=3, inside=[2], **cpu),
        node(4, "aten::mm", pb.COMP_NODE, micros=40, inside=[2], **cpu),
        node(5, "void cutlass::Kernel<x>(x)", pb.COMP_NODE, micros=11, after=[4], **gpu),
        node(6, "c10d::_allgather_base_", pb.COMP_NODE, micros=30, **cpu),
        node(7, "record_param_comms", pb.COMP_NODE, micros=20, inside=[6], **cpu),
        node(8, "ncclDevKernel_AllGather_RING_LL(x)", pb.COMM_COLL_NODE, micros=60, after=[7],
             comm_type=2, comm_size=512, **gpu),
        node(9, "aten::mm", pb.COMP_NODE, micros=40, **cpu),
        node(10, "void cutlass::Kernel<y>(y)", pb.COMP_NODE, micros=7, after=[9], **gpu),
        node(11, "void splitk<y>(y)", pb.COMP_NODE, micros=2, after=[9], **gpu),
        node(12, "ncclDevKernel_AllReduce_Sum_f32(x)", pb.COMM_COLL_NODE, micros=50,
             comm_type=0, comm_size=1024, **gpu),
    )  # fmt: skip


def test_a_trace_that_the_chakra_tools_made_of_pytorch_is_compared_op_by_op(tmp_path):
    report = validate(workload(), [pytorch_step(tmp_path / "run.2.et")], system="dgx-h100")
    assert report.ok, report.differences
    assert report.ranks == [2]
    gemms = report.classes[OpClass.GEMM]
    # aten::linear only calls aten::mm; no sizes, so names and order count, which is weak.
    assert (gemms.captured, gemms.executed, gemms.by_name) == (2, 2, 2)
    assert report.classes[OpClass.ALL_REDUCE].matched == 1
    assert "agree in name and order" in report.verdict
    # Of kernels, not of the ops that launched them.
    assert report.times.classes[OpClass.GEMM].matched == pytest.approx((11 + 7 + 2) * 1e-6)
    assert report.times.classes[OpClass.ALL_REDUCE].matched == pytest.approx(50e-6)


def test_another_size_differs(tmp_path):
    path = pytorch_step(tmp_path / "run.2.et")
    path.write_bytes(path.read_bytes().replace(b"\x48\x80\x08", b"\x48\x80\x10"))  # 1024 -> 2048
    report = validate(workload(), [path])
    assert report.verdict.startswith("differs: 2 ops")


def test_a_name_without_a_rank_is_taken_as_rank_0_and_reported(tmp_path):
    report = validate(workload(), [pytorch_step(tmp_path / "trace.et")])
    assert report.ranks == [0]
    assert any(text.startswith(UNKNOWN_RANK) for text in report.notes)


def with_groups(folder, table, name="comm_group.json", first="1", second="2"):
    """The step's collectives, with process groups listed in a table next to the trace."""
    (folder / name).write_text(json.dumps(table))
    return written(
        folder / "run.2.et",
        node(1, "a", pb.COMM_COLL_NODE, comm_type=2, comm_size=512, pg_name=first),
        node(2, "b", pb.COMM_COLL_NODE, comm_type=0, comm_size=1024, pg_name=second),
    )


#: Rank 2 on the mesh of two by two: its rows, and its columns.
TABLE = {"0": [0, 1, 2, 3], "1": [2, 3], "2": [0, 2]}


@pytest.mark.parametrize("name", ["comm_group.json", "comm_groups.json"])
def test_groups_are_those_of_the_table_next_to_the_trace(name, tmp_path):
    path = with_groups(tmp_path, TABLE, name)
    assert [facts.group for facts in observe_chakra_ops(path).facts] == [(2, 3), (0, 2)]
    for given in (path, tmp_path):  # the table in a folder is not a trace
        report = validate(workload(), [given])
        assert report.ok, report.differences
        assert "among which ranks" not in report.verdict
    assert "2 are not compared: the traces do not name them" in report.verdict


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({"first": "0"}, "not captured a 512 bytes among [0, 1, 2, 3]"),
        ({"first": "2"}, "not captured a 512 bytes among [0, 2]"),
        ({"table": TABLE | {"1": [2, 1]}}, "not captured a 512 bytes among [1, 2]"),
    ],
)
def test_another_group_differs(groups, text, tmp_path):
    report = validate(workload(), [with_groups(tmp_path, **({"table": TABLE} | groups))])
    assert not report.ok
    assert text in [f"{item.what} {item.op}" for item in report.differences]


@pytest.mark.parametrize("entry", [[2, 2], [-1], "all", [1 << 40], None, {}])
def test_a_group_that_is_none_is_left_out_and_reported(entry, tmp_path):
    trace = observe_chakra_ops(with_groups(tmp_path, TABLE | {"1": entry}))
    assert trace.facts[0].group is None
    assert trace.notes["groups in comm_group.json that are not lists of ranks: left out"] == 1
    assert trace.notes["collectives of a group that is not in the table of groups"] == 1


def test_a_table_that_is_not_json_is_one_line(tmp_path):
    path = with_groups(tmp_path, TABLE)
    (tmp_path / "comm_group.json").write_text('{"1": [2,')
    with pytest.raises(FlintError, match=r"comm_group\.json: not JSON"):
        observe_chakra_ops(path)


def test_messages_tell_the_other_rank(tmp_path):
    path = written(
        tmp_path / "t.0.et",
        node(1, "s", pb.COMM_SEND_NODE, comm_size=16, comm_dst=3),
        node(2, "r", pb.COMM_RECV_NODE, comm_size=16, comm_src=1),
        node(3, "r", pb.COMM_RECV_NODE, comm_size=16),
    )
    trace = observe_chakra_ops(path)
    assert [trace.facts[number].peer for number in trace.op.tolist()] == [3, 1, -1]


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"", "empty"), (b"\x00", "GlobalMetadata|no nodes"), (b"\xff" * 50, "length|varint|bytes")],
)
def test_what_is_not_an_et_is_one_line(data, said, tmp_path):
    path = tmp_path / "trace.0.et"
    path.write_bytes(data)
    with pytest.raises(FlintError, match=said):
        observe_chakra_ops(path)


def test_impossible_numbers_do_not_crash(tmp_path):
    path = written(
        tmp_path / "t.0.et",
        node(1, "a", pb.COMP_NODE, micros=2**64 - 1),
        node(2, "b", pb.COMM_COLL_NODE, comm_type=0, comm_size=-5),
        node(3, "c", 6, inside=[2**63]),
    )
    found, trace = kinds(path)
    assert found == [OpClass.OTHER, OpClass.ALL_REDUCE, OpClass.RECV]
    assert trace.duration.tolist()[0] == 0
    assert trace.facts[trace.op[1]].parts is None
