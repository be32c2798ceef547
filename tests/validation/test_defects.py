"""One defect in a trace that agrees: the comparison fails and names it, or states what it cannot
see.

Each trace is of the step in ``hand_made``; what is changed is one thing that a run could do
otherwise than its capture.

Longer than 300 lines because it is one table of defects, a row each, in three forms of traces.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flint.converters.chakra import et_def_pb2 as pb
from flint.observed.classes import OpClass
from flint.observed.selection import MOVED
from flint.validation.validating import validate
from tests.converters.chakra.read.test_observe import node, written
from tests.validation.hand_made import Events, traces, workload

BEGIN = 10**7


@pytest.fixture(scope="module")
def step():
    return workload()


def ops(document, name):
    """Ops of a name, in order."""
    found = [e for e in document["traceEvents"] if e["name"] == name and e["cat"] == "cpu_op"]
    return [event["args"] for event in found]


def says(name, number, **changes):
    """A change of what the n-th op of a name says; "_" stands for a space, None takes away."""

    def change(document):
        args = ops(document, name)[number]
        for key, value in changes.items():
            args[key.replace("_", " ")] = value
            if value is None:
                del args[key.replace("_", " ")]

    return change


def without(name, number, category):
    """Without the n-th event of a name and category."""

    def change(document):
        events = document["traceEvents"]
        found = [e for e in events if e["name"].startswith(name) and e["cat"] == category]
        events.remove(found[number])

    return change


def with_op(name, *, runtime=True, op=True, **args):
    """With one more op and its kernel; without the op the kernel is nobody's."""

    def change(document):
        events = Events(0)
        events.number = 100
        nccl = name == "record_param_comms"
        args_ = {key.replace("_", " "): value for key, value in args.items()}
        events.op(name, BEGIN + 500, BEGIN + 502, took=1, nccl=nccl, args=args_)
        for event in events.events:
            kept = {"cpu_op": op, "cuda_runtime": runtime}.get(event["cat"], True)
            if not op:
                event["args"].pop("External id")
            document["traceEvents"] += [event] if kept else []

    return change


def exchanged(document):
    """The two collectives in the other order."""
    first, second = ops(document, "record_param_comms")
    for key in ("Collective name", "In msg nelems", "Process Group Ranks"):
        first[key], second[key] = second[key], first[key]


def early(document):
    """The first collective's kernel before the product that it gathers."""
    kernel = next(e for e in document["traceEvents"] if e["name"].startswith("nccl"))
    kernel["ts"] = BEGIN + 5


def another_size_beside_an_untold_one(document):
    """One product without sizes, and another one with wrong ones."""
    first, second = ops(document, "aten::mm")
    del first["Input Dims"]
    second["Input Dims"] = [[1000, 16], [16, 8]]


RECORD = "record_param_comms"
#: What is changed -> a part of the difference that names it.
CUDA = {
    "no kernel of a product": (without("gemm", 0, "kernel"), "not executed aten.mm"),
    "no kernel of a collective": (
        without("nccl", 0, "kernel"), "without a kernel _allgather_base 512 bytes f32 among [0, 1]"
    ),
    "no product": (without("aten::mm", 0, "cpu_op"), "not executed aten.mm"),
    "no collective": (without(RECORD, 0, "cpu_op"), "not executed all_gather 512"),
    "another group": (says(RECORD, 0, Process_Group_Ranks="[0, 3]"), "f32 among [0, 3]"),
    "a larger group": (
        says(RECORD, 0, Group_size=4, Process_Group_Ranks="[0, 1, 2, 3]"), "[0, 1, 2, 3]"
    ),
    "a larger group, its ranks cut off": (
        says(RECORD, 0, Group_size=4, Process_Group_Ranks="[0, ..., 3]"), "among 4 ranks"
    ),
    "more bytes": (says(RECORD, 0, In_msg_nelems=129), "_allgather_base 516 bytes"),
    "another type": (says(RECORD, 0, dtype="BFloat16"), "256 bytes bf16"),
    "another type, as many bytes": (
        says(RECORD, 0, dtype="BFloat16", In_msg_nelems=256), "512 bytes bf16"
    ),
    "integers": (says(RECORD, 0, dtype="Int"), "512 bytes i32"),
    "another collective": (says(RECORD, 0, Collective_name="broadcast"), "not captured broadcast"),
    "a reduce to one rank": (says(RECORD, 1, Collective_name="reduce"), "not captured reduce"),
    "a gather to one rank": (says(RECORD, 0, Collective_name="gather"), "not captured gather"),
    "a collective of a new name": (says(RECORD, 0, Collective_name="new"), "not captured new"),
    "another product": (says("aten::mm", 0, Input_Dims=[[16, 32], [32, 9]]), "1x16x9x32"),
    "the transposed product": (says("aten::mm", 0, Input_Dims=[[8, 32], [32, 16]]), "1x8x16x32"),
    "a product of other types": (says("aten::mm", 0, Input_type=["c10::Half"] * 2), "f16"),
    "a product that is none": (says("aten::mm", 0, Input_Dims=[[16, 32], [31, 8]]), "31x8"),
    "one product untold, another one wrong": (another_size_beside_an_untold_one, "1x1000x8x16"),
    "one more product": (
        with_op("aten::mm", Input_Dims=[[2, 2], [2, 2]], Input_type=["float"] * 2), "1x2x2x2"
    ),
    "one more collective": (
        with_op(RECORD, Collective_name="allreduce", dtype="Float", In_msg_nelems=7,
                Group_size=2, Process_Group_Ranks="[0, 1]"),
        "not captured allreduce 28 bytes f32 among [0, 1]",
    ),
    "one more gather": (
        with_op(RECORD, Collective_name="gather", dtype="Float", In_msg_nelems=7), "gather"
    ),
    "one more collective that no op launched": (
        with_op(RECORD, op=False), "not captured ncclDevKernel_Generic"
    ),
    "an activation": (
        with_op("aten::relu", Input_Dims=[[16, 8]], Input_type=["float"]), "not captured aten::relu"
    ),
    "collectives in the other order": (exchanged, "but started before it"),
    "a collective before what it sends": (early, "but started before it"),
}  # fmt: skip


def changed(folder, change):
    """A trace of rank 0 with a change."""
    [path] = traces(folder, (0,), steps=(1,))
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def named(report):
    """Everything in a report that names a defect."""
    found = [f"{item.what} {item.op}" for item in report.differences if item.counts]
    return "\n".join(found + report.contradictions)


@pytest.mark.parametrize("defect", CUDA)
def test_a_defect_in_a_trace_of_a_gpu_is_named(defect, step, tmp_path):
    change, text = CUDA[defect]
    report = validate(step, [changed(tmp_path, change)])
    assert not report.ok
    assert report.verdict.startswith("differs")
    assert text in named(report)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (says(RECORD, 0, Process_Group_Ranks=None), "for 1 the traces do not record among which"),
        (says(RECORD, 0, In_msg_nelems=None), "3 have the captured sizes; 1 agree in name"),
        (says("aten::mm", 0, Input_Dims=None), "3 have the captured sizes; 1 agree in name"),
    ],
    ids=["group", "bytes", "sizes of a product"],
)
def test_a_trace_without_all_facts_is_not_full_agreement(change, text, step, tmp_path):
    report = validate(step, [changed(tmp_path, change)])
    assert report.ok
    assert report.verdict.startswith("agrees as far as the traces show")
    assert text in report.verdict


def test_a_batch_of_collectives_has_one_kernel_that_no_op_launched(step, tmp_path):
    def change(document):
        without("nccl", 0, "kernel")(document)
        with_op(RECORD, op=False)(document)

    report = validate(step, [changed(tmp_path, change)])
    assert report.ok
    assert any("issued as one batch" in reason for reason in report.explained)


CPU, GPU = {"is_cpu_op": True}, {"is_cpu_op": False}


def chakra(path, change=None):
    """The step as the converter of the Chakra tools writes it, with a change of its nodes."""
    nodes = {
        "first": node(4, "aten::mm", pb.COMP_NODE, micros=40, **CPU),
        "kernel": node(5, "void cutlass<x>(x)", pb.COMP_NODE, micros=11, after=[4], **GPU),
        "gather": node(8, "ncclDevKernel_AllGather_RING_LL(x)", pb.COMM_COLL_NODE, micros=60,
                       comm_type=2, comm_size=512, **GPU),
        "second": node(9, "aten::mm", pb.COMP_NODE, micros=40, **CPU),
        "other": node(10, "void cutlass<y>(y)", pb.COMP_NODE, micros=7, after=[9], **GPU),
        "reduce": node(12, "ncclDevKernel_AllReduce_Sum_f32(x)", pb.COMM_COLL_NODE, micros=50,
                       comm_type=0, comm_size=1024, **GPU),
    }  # fmt: skip
    if change is not None:
        change(nodes)
    return written(path, *nodes.values())


def gone(*names):
    return lambda nodes: [nodes.pop(name) for name in names]


def attribute(name, key, value):
    def change(nodes):
        next(item for item in nodes[name].attr if item.name == key).int64_val = value

    return change


def also(kind, **attributes):
    return lambda nodes: nodes.update(more=node(20, "more", kind, micros=1, **attributes, **GPU))


def other_ops_only(nodes):
    """Names of ops, and none of a product."""
    gone("first", "kernel", "second", "other")(nodes)
    nodes["add"] = node(30, "aten::add", pb.COMP_NODE, micros=4, **CPU)
    nodes["sum"] = node(31, "void add(x)", pb.COMP_NODE, micros=4, after=[30], **GPU)


def in_other_order(nodes):
    nodes["gather"], nodes["reduce"] = nodes["reduce"], nodes["gather"]


CHAKRA = {
    "no kernel": (gone("kernel"), "not executed aten.mm"),
    "no product": (gone("first", "kernel"), "not executed aten.mm"),
    "no product at all": (other_ops_only, "not executed aten.mm"),
    "no collective": (gone("gather"), "not executed all_gather"),
    "more bytes": (attribute("gather", "comm_size", 513), "513 bytes"),
    "another kind": (attribute("gather", "comm_type", 7), "not executed all_gather"),
    "one more collective": (
        also(pb.COMM_COLL_NODE, comm_type=0, comm_size=4), "not captured more 4 bytes"
    ),
    "one more message": (also(pb.COMM_SEND_NODE, comm_size=4), "not captured more 4 bytes"),
    "the other order": (in_other_order, "but started before it"),
}  # fmt: skip


@pytest.mark.parametrize("defect", CHAKRA)
def test_a_defect_in_a_chakra_trace_is_named(defect, step, tmp_path):
    change, text = CHAKRA[defect]
    assert validate(step, [chakra(tmp_path / "t.0.et")]).ok
    report = validate(step, [chakra(tmp_path / "u.0.et", change)])
    assert not report.ok
    assert text in named(report)


def test_a_chakra_trace_without_names_of_ops_compares_collectives_and_reports_it(step, tmp_path):
    path = chakra(tmp_path / "t.0.et", gone("first", "second", "kernel", "other"))
    report = validate(step, [path])
    assert report.ok
    assert report.verdict.startswith(
        "agrees as far as the traces show: of 4 collectives, GEMMs, convolutions and attentions "
        "2 have the captured sizes; for 2 the traces do not record among which ranks they ran; 2 "
        "are not compared"
    )


def observer(change=None):
    """The step as PyTorch's observer writes it on rank 0."""
    nodes = [
        ("aten::mm", [[16, 32], [32, 8]], {}),
        (RECORD, [], {"collective_name": "_allgather_base", "in_msg_nelems": 128, "pg": 1}),
        ("aten::mm", [[32, 16], [16, 8]], {}),
        (RECORD, [], {"collective_name": "allreduce", "in_msg_nelems": 256, "pg": 2}),
    ]
    if change is not None:
        change(nodes)
    document = []
    for n, (name, shapes, attrs) in enumerate(nodes):
        attrs = dict(attrs)
        stride, around = attrs.pop("pg", 0), attrs.pop("inside", 1)
        if stride:
            size = {"pg_size": 2, "global_rank_start": 0, "global_rank_stride": stride}
            attrs = {"dtype": "Float"} | size | attrs
        listed = [{"name": key, "type": "", "value": value} for key, value in attrs.items()]
        document.append(
            {
                "id": n + 2, "ctrl_deps": around, "name": name, "outputs": {},
                "inputs": {
                    "values": [], "shapes": shapes, "types": ["Tensor(float)"] * len(shapes),
                },
                "attrs": [{"name": "rf_id", "type": "uint64", "value": n}, *listed],
            }
        )  # fmt: skip
    return json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": document})


def put(number, entry):
    return lambda nodes: nodes.__setitem__(number, entry(nodes[number]))


def told(**attrs):
    return lambda item: (item[0], item[1], item[2] | attrs)


ET = {
    "no product": (lambda nodes: nodes.pop(0), "not executed aten.mm"),
    "no collective": (lambda nodes: nodes.pop(1), "not executed all_gather"),
    "another group": (put(1, told(pg=3)), "among [0, 3]"),
    "a larger group": (put(1, told(pg_size=4)), "among [0, 1, 2, 3]"),
    "more bytes": (put(1, told(in_msg_nelems=129)), "516 bytes"),
    "another type": (put(1, told(dtype="Half", in_msg_nelems=256)), "512 bytes f16"),
    "another collective": (put(1, told(collective_name="broadcast")), "not captured broadcast"),
    "another product": (
        put(0, lambda item: (item[0], [[16, 32], [32, 9]], item[2])), "1x16x9x32"
    ),
    "the transposed product": (
        put(0, lambda item: (item[0], [[8, 32], [32, 16]], item[2])), "1x8x16x32"
    ),
    "one more product": (lambda nodes: nodes.append(nodes[0]), "not captured aten::mm"),
    "one more collective": (lambda nodes: nodes.append(nodes[1]), "not captured _allgather_base"),
    "the other order": (lambda nodes: nodes.reverse(), "another order"),
    "an activation": (
        lambda nodes: nodes.extend([("aten::relu", [[16, 8]], {})] * 3), "not captured aten::relu"
    ),
}  # fmt: skip


@pytest.mark.parametrize("defect", ET)
def test_a_defect_in_an_execution_trace_is_named(defect, step, tmp_path):
    change, text = ET[defect]
    path: Path = tmp_path / "et_rank0.json"
    path.write_text(observer())
    assert validate(step, [path]).ok
    path.write_text(observer(change))
    report = validate(step, [path])
    assert not report.ok
    assert text in named(report)


def test_an_op_that_cannot_be_where_the_observer_has_it_is_put_right_and_counted(step, tmp_path):
    def change(nodes):
        nodes.insert(0, ("aten::clone", [[4, 4]], {}))
        nodes[1] = ("aten::mm", nodes[1][1], {"inside": 2})  # no copy multiplies matrices

    path = tmp_path / "et_rank0.json"
    path.write_text(observer(change))
    report = validate(step, [path])
    assert report.ok
    assert report.classes[OpClass.GEMM].matched == 2
    assert report.notes[MOVED] == 1
