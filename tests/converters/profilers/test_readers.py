"""Readers of traces: what they take from each form, and what they refuse in one line.

Longer than 300 lines because each form of trace is written out by hand, event by event.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flint.converters.profilers.kineto.observe import linked as kineto_linked
from flint.converters.profilers.kineto.observe import observe as observe_kineto
from flint.converters.profilers.pytorch_et.observe import observe as observe_pytorch_et
from flint.converters.profilers.torch_ops import dtype_of
from flint.graph.tensor_types import DTYPE_BITS
from flint.observed.classes import OpClass, c10d_class, hlo_class
from flint.observed.selection import selected

DATA = Path(__file__).parents[2] / "data"


def event(name, start, length, category="cpu_op", thread=1, **args):
    return {
        "ph": "X", "cat": category, "name": name, "tid": thread, "ts": start, "dur": length,
        "args": args,
    }  # fmt: skip


def written(path, events, **rest):
    path.write_text(json.dumps({"traceEvents": events, **rest}))
    return path


RECORD = {
    "Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 12, "Group size": 2,
    "Process Group Ranks": "[3, 1]",
}  # fmt: skip


def test_ops_are_nested_by_thread_and_time_and_kernels_belong_to_their_op(tmp_path):
    path = written(
        tmp_path / "rank5.json",
        [
            event("aten::mm", 12, 5, **{"External id": 2}),
            event("aten::linear", 10, 10, **{"External id": 1}),
            event("aten::add", 13, 3, thread=2, **{"External id": 3}),
            event("gemm", 40, 7, "kernel", **{"External id": 2, "stream": 7}),
            event("gemm", 50, 2, "kernel", **{"External id": 2, "stream": 7}),
        ],
    )
    trace = observe_kineto(path)
    names = [trace.facts[number].name for number in trace.op]
    assert names == ["aten::linear", "aten::mm", "aten::add"]
    assert trace.parent.tolist() == [-1, 0, -1]
    assert trace.launches.tolist() == [0, 2, 0]
    assert (trace.start[1], trace.duration[1]) == (40_000, 9_000)  # ns, on the device
    assert trace.ranks == (5,)  # of the file's name: nothing else says
    rows, time = selected(trace, trace.rows(5, 0), {"linear"})
    assert rows.tolist() == [0]
    assert time.tolist() == [9_000]


def test_a_kernel_without_an_op_number_belongs_to_the_op_around_its_runtime_call(tmp_path):
    path = written(
        tmp_path / "t.json",
        [
            event("aten::mm", 10, 10, **{"External id": 1}),
            event("aten::view", 11, 1, **{"External id": 2}),
            event("hipLaunchKernel", 15, 1, "cuda_runtime", correlation=77),
            event("Cijk_Ailk_Bljk", 90, 4, "kernel", correlation=77, stream=0),
            event("lost", 95, 1, "kernel", correlation=78, stream=0),
        ],
    )
    trace = observe_kineto(path)
    assert trace.launches.tolist() == [1, 0]
    assert trace.alone == {(0, 0): 1}


def test_kernels_of_no_op_are_counted_in_their_steps(tmp_path):
    """By the calls that launched them, or by their own start if the trace has no call."""
    path = written(
        tmp_path / "rank3.json",
        [
            event("ProfilerStep#4", 0, 50, "user_annotation"),
            event("ProfilerStep#5", 50, 50, "user_annotation"),
            event("aten::mm", 10, 10, **{"External id": 1}),
            event("cudaLaunchKernel", 40, 1, "cuda_runtime", correlation=77),
            event("late", 60, 4, "kernel", correlation=77, stream=7),
            event("lost", 65, 1, "kernel", correlation=78, stream=7),
            event("lost", 67, 1, "kernel", correlation=79, stream=7),
        ],
    )
    assert observe_kineto(path).alone == {(3, 0): 1, (3, 1): 2}


def test_a_collective_that_is_recorded_twice_counts_once(tmp_path):
    path = written(
        tmp_path / "t.json",
        [
            event("record_param_comms", 10, 9, **RECORD),
            event("record_param_comms", 11, 5, **RECORD),
            event("record_param_comms", 30, 5, **RECORD),
        ],
    )
    trace = observe_kineto(path)
    found = [trace.facts[number] for number in trace.op]
    assert [facts.kind for facts in found] == [
        OpClass.ALL_REDUCE, OpClass.FREE, OpClass.ALL_REDUCE
    ]  # fmt: skip
    assert (found[0].parts, found[0].dtype, found[0].group) == ((24,), "bf16", (1, 3))


@pytest.mark.parametrize(
    ("args", "group"),
    [
        ({"Process Group Ranks": "[0, 1, ..., 7]", "Group size": 8}, None),
        (
            {"Process Group Ranks": "[0, 2, ...]", "Group size": 3, "Global rank start": 0,
             "Global rank stride": 2},
            (0, 2, 4),
        ),
        ({"Process Group Name": "7", "Group size": 2}, (4, 6)),
    ],
    ids=["cut short", "start and stride", "by name"],
)  # fmt: skip
def test_groups_in_the_versions_of_the_record(args, group, tmp_path):
    record = {"Collective name": "_allgather_base", "dtype": "Float", "In msg nelems": 1} | args
    path = written(
        tmp_path / "t.json",
        [event("record_param_comms", 1, 1, **record)],
        distributedInfo={"rank": 0, "pg_config": [{"pg_name": "7", "ranks": [4, 6]}]},
    )
    [facts] = observe_kineto(path).facts
    assert (facts.kind, facts.group) == (OpClass.ALL_GATHER, group)


#: Kineto writes no text of a functional op's group, and the number of its ranks as a text
#: (PyTorch 2.13: tensor, sum, number, group).
SCATTER = {
    "Input Dims": [[2, 16, 64], [], [], []], "Input type": ["c10::BFloat16", "", "Scalar", ""],
    "Concrete Inputs": ["", "", "2", ""],
}  # fmt: skip
ON_FOUR = [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "2", "ranks": [1, 3]}]


@pytest.mark.parametrize(
    ("more", "group"),
    [([], (1, 3)), ([{"pg_name": "3", "ranks": [0, 1]}], None)],
    ids=["one group of two ranks", "two such groups"],
)
def test_the_number_of_ranks_is_not_taken_for_the_name_of_a_group(more, group, tmp_path):
    path = written(
        tmp_path / "rank1.json",
        [event("_c10d_functional::reduce_scatter_tensor", 1, 5, **SCATTER)],
        distributedInfo={"rank": 1, "pg_config": ON_FOUR + more},
    )
    [facts] = observe_kineto(path).facts
    assert (facts.group, facts.members) == (group, 2)
    # Conversion concludes by itself, and counts that.
    [(told, _)] = kineto_linked(path)
    assert told.facts[0].group is None


def test_what_goes_in_and_comes_out_tells_the_number_of_ranks(tmp_path):
    gathers = event(
        "c10d::_allgather_base_", 1, 5,
        **{"Input Dims": [[8192], [4096]], "Input type": ["float", "float"]},
    )  # fmt: skip
    [facts] = observe_kineto(written(tmp_path / "rank1.json", [gathers])).facts
    assert (facts.group, facts.members) == (None, 2)


def test_records_of_older_versions_tell_their_name_among_the_inputs(tmp_path):
    args = {
        "Concrete Inputs": ["", "3", "0", "0", "all_gather", "[]"],
        "Input Dims": [[[4, 5]], [], [], [], [], []],
        "Input type": ["GenericList[Tensor(float)]", "Int", "Int", "Int", "String", "[]"],
    }
    path = written(tmp_path / "t.json", [event("record_param_comms", 1, 1, **args)])
    [facts] = observe_kineto(path).facts
    assert (facts.kind, facts.parts) == (OpClass.ALL_GATHER, (80,))


def test_gloo_tells_type_and_time_of_what_it_sends(tmp_path):
    said = {
        "Input Dims": [[[2, 8]], [[4, 8]], [], []], "Concrete Inputs": ["", "", "", "True"],
        "Input type": ["TensorList", "TensorList", "", "Scalar"],
    }  # fmt: skip
    work = {"Input type": ["c10::BFloat16"], "Input Dims": [[4, 8]]}
    path = written(
        tmp_path / "t.json",
        [
            event("c10d::reduce_scatter_tensor_coalesced_", 10, 2, **said)
            | {"args": {**said, "Record function id": 5}},
            event("gloo:all_reduce", 11, 30, "user_annotation", 2, **work)
            | {"args": {**work, "Record function id": 9}},
            event("c10d::reduce_scatter_tensor_coalesced_", 50, 2, **said)
            | {"args": {**said, "Record function id": 12}},
        ],
        baseTimeNanoseconds=7_000_000,
    )
    trace = observe_kineto(path)
    first, second = (trace.facts[number] for number in trace.op.tolist())
    assert (first.parts, first.dtype) == ((64,), "bf16")  # 4 x 8 of 2 bytes
    assert second.parts is None  # nothing says its type, and nothing is guessed
    assert trace.start.tolist() == [7_010_000, 7_050_000]
    assert trace.duration.tolist() == [30_000, 2_000]
    assert trace.end.tolist() == [7_041_000, -1]  # the host knows only when it has asked


def test_gloos_work_is_of_the_same_collective_where_several_have_as_many_elements(tmp_path):
    """A scatter's work has the root's list, which is longer; the next broadcast's is not its."""
    of_24 = {"Input type": ["TensorList"], "Input Dims": [[[4, 6]]]}
    of_48 = {"Input type": ["int"], "Input Dims": [[8, 6]]}
    events = []
    for number, (call, work, kind, name) in enumerate(
        [
            ("scatter_", of_48, "int", "scatter"),
            ("broadcast_", {"Input Dims": [[24]]}, "float", "broadcast"),
            ("allreduce_", {"Input Dims": [[24]]}, "double", "all_reduce"),
        ]
    ):
        begin = 10 + 40 * number
        events += [
            event(f"c10d::{call}", begin, 2, **of_24),
            event(
                f"gloo:{name}", begin + 5, 9, "user_annotation", 2, **work | {"Input type": [kind]}
            ),
        ]
    trace = observe_kineto(written(tmp_path / "t.json", events))
    found = {trace.facts[number].name: trace.facts[number].dtype for number in trace.op.tolist()}
    assert found["c10d::broadcast_"] == "f32" and found["c10d::allreduce_"] == "f64"


def test_a_step_on_rocm_reads_as_one_on_cuda(tmp_path):
    # RCCL's kernels have NCCL's names, HIP's calls stand under the names of CUDA's categories.
    path = written(
        tmp_path / "t.json",
        [
            event("ProfilerStep#1", 0, 500, "user_annotation"),
            event("ProfilerStep#1", 30, 400, "gpu_user_annotation", 0),
            event("aten::mm", 10, 10, **{"External id": 1}),
            event("hipExtModuleLaunchKernel", 12, 2, "cuda_runtime", correlation=9),
            event("Cijk_Ailk_Bljk_SB_MT64x64", 60, 30, "kernel", 0, correlation=9, stream=0),
            event("c10d::allreduce_", 30, 12, **{"External id": 3}),
            event("record_param_comms", 32, 8, **RECORD, **{"External id": 4}),
            event("hipLaunchKernel", 34, 1, "cuda_runtime", correlation=10),
            event("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", 90, 50, "kernel", 0,
                  correlation=10, stream=3),
            event("hipMemcpyAsync", 45, 1, "cuda_runtime", correlation=11),
            event("CopyDeviceToDevice", 150, 5, "gpu_memcpy", 0, correlation=11, stream=0),
        ],
    )  # fmt: skip
    trace = observe_kineto(path)
    rows, time = selected(trace, trace.rows(0, 0), {"mm"})
    assert [trace.facts[trace.op[row]].name for row in rows] == ["aten::mm", "allreduce"]
    assert time.tolist() == [30_000, 50_000]
    assert trace.end[rows].tolist() == [90_000, 140_000]
    assert (trace.backend, trace.steps) == ("gpu", ("ProfilerStep#1",))


def test_a_record_without_a_name_is_identified_by_its_kernel_and_only_by_that(tmp_path):
    kernels = ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclKernel_SendRecv(x)")
    path = written(
        tmp_path / "t.json",
        [
            item
            for n, kernel in enumerate(kernels)
            for item in (
                event("record_param_comms", 10 + 50 * n, 9, **{"External id": n + 1}),
                event(kernel, 30 + 50 * n, 9, "kernel", 0, **{"External id": n + 1}),
            )
        ],
    )
    trace = observe_kineto(path)
    first, second = (trace.facts[number] for number in trace.op.tolist())
    assert (first.kind, first.parts, first.group) == (OpClass.ALL_REDUCE, None, None)
    assert second.kind == OpClass.FREE
    assert trace.notes == {
        "no ProfilerStep in the trace: all of it is treated as one step": 1,
        "the trace does not name its rank: rank 0 is assumed": 1,
        "collectives known only from the names of their kernels, without sizes and groups": 1,
        "NCCL kernels whose collective the trace does not record": 1,
    }


def test_element_types_have_the_sizes_that_pytorch_gives_them():
    torch = pytest.importorskip("torch")
    known = {}
    for name in dir(torch):
        dtype = getattr(torch, name)
        if isinstance(dtype, torch.dtype) and dtype_of(_scalar_type(torch, dtype)):
            known[name] = DTYPE_BITS[dtype_of(_scalar_type(torch, dtype))] // 8 == dtype.itemsize
    assert all(known.values())
    # What collectives send: floats, brain floats, the eight-bit floats, all integers.
    assert known.keys() >= {
        "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
        "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "int8", "uint8", "int16", "uint16",
        "int32", "uint32", "int64", "uint64", "bool", "complex64", "complex128",
    }  # fmt: skip


def _scalar_type(torch, dtype):
    """``c10::ScalarType`` in words, as ``record_param_comms`` has it."""
    plain = {
        torch.float32: "Float", torch.float64: "Double", torch.float16: "Half",
        torch.bfloat16: "BFloat16", torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short",
        torch.int32: "Int", torch.int64: "Long", torch.bool: "Bool",
        torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
    }  # fmt: skip
    name = str(dtype).removeprefix("torch.")
    return plain.get(dtype) or name.replace("uint", "UInt").replace("float8", "Float8")


def test_steps_are_distinguished_and_what_is_outside_belongs_to_none(tmp_path):
    path = written(
        tmp_path / "t.json",
        [
            event("ProfilerStep#4", 10, 9, "user_annotation"),
            event("ProfilerStep#5", 20, 9, "user_annotation"),
            *(event("aten::mm", start, 1) for start in (5, 12, 22, 24, 40)),
        ],
    )
    trace = observe_kineto(path)
    assert trace.steps == ("ProfilerStep#4", "ProfilerStep#5")
    assert trace.step.tolist() == [-1, 0, 1, 1, -1]


def test_an_op_that_only_calls_others_is_not_a_kernel_where_its_parts_are_listed_elsewhere(
    tmp_path,
):
    # Execution traces lose the parent of an op where another thread's op ends at the same moment.
    path = written(
        tmp_path / "t.json",
        [
            event("aten::linear", 10, 2),
            event("aten::view", 11, 1),
            event("aten::matmul", 13, 1),
            event("aten::mm", 15, 5),
        ],
    )
    trace = observe_kineto(path)
    rows, _ = selected(trace, trace.rows(0, 0), {"mm"})
    assert [trace.facts[trace.op[row]].name for row in rows] == ["aten::mm"]


def test_the_real_execution_trace_of_ten_all_gathers():
    trace = observe_pytorch_et(DATA / "traces/et_1.0.2_rank0.json.gz")
    found = [trace.facts[number] for number in trace.op]
    told = [facts for facts in found if facts.kind == OpClass.ALL_GATHER]
    # Each is a c10d op with its record inside.
    assert len(told) == 20
    assert {facts.parts for facts in told} == {(4,)}
    rows, _ = selected(trace, trace.rows(0, 0), set())
    chosen = [found[row] for row in rows.tolist()]
    assert sum(facts.kind.collective for facts in chosen) == 10
    assert {facts.group for facts in chosen if facts.kind.collective} == {(0, 1)}
    assert (trace.world, trace.backend) == (2, "gpu")


@pytest.mark.parametrize(("tensors", "parts"), [(3, (8, 8, 8)), (4097, None)])
def test_lists_that_the_observer_cuts_have_no_size(tensors, parts, tmp_path):
    node = {
        "id": 2, "name": "c10d::allreduce_", "ctrl_deps": 1, "outputs": {}, "attrs": [],
        "inputs": {
            "values": [[]], "shapes": [[[2]] * tensors],
            "types": [f"GenericList[{','.join(['Tensor(float)'] * tensors)}]"],
        },
    }  # fmt: skip
    path = tmp_path / "et_rank0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": [node]}))
    [facts] = observe_pytorch_et(path).facts
    assert (facts.kind, facts.parts) == (OpClass.ALL_REDUCE, parts)


def test_classes_of_collectives_by_all_their_names():
    assert c10d_class("_reduce_scatter_base") == OpClass.REDUCE_SCATTER
    assert c10d_class("all_to_allv") == OpClass.ALL_TO_ALL
    assert c10d_class("broadcast_") == OpClass.BROADCAST
    assert c10d_class("barrier") is None
    assert hlo_class("all-gather-start") == OpClass.ALL_GATHER
    assert hlo_class("all-gather-done") == OpClass.FREE
