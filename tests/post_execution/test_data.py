"""Dependencies by data: execution traces alone, and linked with a Kineto trace of the same run."""

from __future__ import annotations

import json

import pytest

from flint.errors import FlintError, UsageError
from flint.post_execution.converting import convert_traces
from flint.post_execution.edges import CONTRADICTED
from tests.post_execution.traces import Profile, edges

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
MM_OUT = "aten::mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)"


def tensor(storage, rows=4, columns=4, offset=0, step=None):
    """A float tensor: entry, shape, type, strides."""
    strides = [step or columns, 1]
    return [storage, storage, offset, rows * columns, 4, "cpu"], [rows, columns], strides


def side(tensors, strides):
    found = {
        "values": [item[0] for item in tensors],
        "shapes": [item[1] for item in tensors],
        "types": ["Tensor(float)"] * len(tensors),
    }
    return found | ({"strides": [item[2] for item in tensors]} if strides else {})


class Execution:
    """An execution trace, op by op."""

    def __init__(self, schema="1.1.1-chakra.0.0.4"):
        self.schema, self.nodes = schema, []
        self.strides = schema.startswith("1.1.1")

    def op(self, name, schema, inputs, outputs, record=None):
        number = len(self.nodes) + 2
        record = number if record is None else record
        attributes = {"rf_id": record, "tid": 1, "op_schema": schema}
        self.nodes.append(
            {
                "id": number, "name": name, "ctrl_deps": 1,
                "inputs": side(inputs, self.strides), "outputs": side(outputs, self.strides),
                "attrs": [{"name": k, "type": "", "value": v} for k, v in attributes.items()],
            }
        )  # fmt: skip

    def mm(self, a, b, c, **more):
        self.op("aten::mm", MM, [a, b], [c], **more)

    def write(self, path):
        path.write_text(json.dumps({"schema": self.schema, "nodes": self.nodes}))
        return path


def data_edges(graph):
    found = zip(graph.producer[graph.operand].tolist(), graph.consumer.tolist(), strict=True)
    return {pair for pair in found if pair[0] >= 0}


def converted(execution, tmp_path):
    return convert_traces([execution.write(tmp_path / "et_rank0.json")])


def test_what_is_read_was_written_by_the_last_writer(tmp_path):
    """c = a b; d = c b; c += d; e = c a: e reads c as node 2 left it."""
    a, b, c, d, e = (tensor(storage) for storage in range(10, 15))
    execution = Execution()
    execution.mm(a, b, c)
    execution.mm(c, b, d)
    execution.op("aten::add_", ADD_, [c, d], [c])
    execution.mm(c, a, e)
    graph = converted(execution, tmp_path).graph
    assert data_edges(graph) == {(0, 1), (0, 2), (1, 2), (2, 3)}
    # a and b come from outside: 4 x 4 floats.
    assert graph.inputs == 2 and [graph.type_of(i).bytes for i in range(2)] == [64, 64]


def test_parts_of_a_storage_are_distinguished_by_their_bytes(tmp_path):
    """Two halves of one buffer, written by 0 and 1: 2 reads the second, 3 both."""
    a = tensor(10)
    low, high, both = tensor(20), tensor(20, offset=16), tensor(20, rows=8)
    execution = Execution()
    execution.mm(a, a, low)
    execution.mm(a, a, high)
    execution.mm(high, a, tensor(30))
    execution.mm(both, a, tensor(31, rows=8))
    assert data_edges(converted(execution, tmp_path).graph) == {(1, 2), (0, 3), (1, 3)}


def test_columns_of_a_matrix_reach_from_their_first_byte_to_their_last(tmp_path):
    """The last 2 of 4 columns: elements 2, 3, 6, 7, ... 15; element 15 is the last of the buffer.

    Written by 1; 2 reads the last row only, elements 12 to 15.
    """
    a = tensor(10)
    columns = tensor(20, rows=4, columns=2, offset=2, step=4)
    execution = Execution()
    execution.mm(a, a, tensor(20))
    execution.mm(a, a, columns)
    execution.mm(tensor(20, rows=1, offset=12), a, tensor(30, rows=1))
    assert (1, 2) in data_edges(converted(execution, tmp_path).graph)


def test_without_strides_a_tensor_is_its_whole_storage(tmp_path):
    """Schema 1.0.2 has none: an edge too many (0, 2), never one too few."""
    a = tensor(10)
    execution = Execution("1.0.2-chakra.0.0.4")
    execution.mm(a, a, tensor(20))
    execution.mm(a, a, tensor(20, offset=16))
    execution.mm(tensor(20, offset=16), a, tensor(30))
    assert (1, 2) in data_edges(converted(execution, tmp_path).graph)


def test_without_strides_parts_that_are_written_leave_the_others(tmp_path):
    """Two halves of a buffer are results of 0 and 1, which read 64 bytes each; 2 reads all."""
    a, low, high = tensor(10), tensor(20), tensor(20, offset=16)
    execution = Execution("1.0.2-chakra.0.0.4")
    execution.op("aten::mm", MM_OUT, [a, a, low], [low])
    execution.op("aten::mm", MM_OUT, [a, a, high], [high])
    execution.mm(tensor(20, rows=8), a, tensor(30, rows=8))
    graph = converted(execution, tmp_path).graph
    data = data_edges(graph)
    assert (1, 2) in data and ({(0, 2), (0, 1)} & data)
    assert graph.bytes_read.tolist() == [64, 64, 192]


def test_an_out_argument_is_written_and_not_read(tmp_path):
    a, c = tensor(10), tensor(20)
    execution = Execution()
    execution.mm(a, a, c)
    execution.op("aten::mm", MM_OUT, [a, a, c], [c])
    assert data_edges(converted(execution, tmp_path).graph) == set()


def test_work_is_counted_by_shapes(tmp_path):
    """4 x 4 x 4 multiply-adds, two operands of 64 bytes read and one result written."""
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(12))
    graph = converted(execution, tmp_path).graph
    assert graph.flops_by_node().tolist() == [128]
    assert (graph.bytes_read.tolist(), graph.bytes_written.tolist()) == ([128], [64])
    assert graph.measured_by_node().tolist() == [-1]  # no times: durations are modelled


def pair(tmp_path, records=(101, 103, 105), **info):
    """Three products on two streams, and their execution trace: 2 reads what 0 wrote."""
    profile = Profile(0, 1, **info)
    profile.work(0, 10, 5)
    profile.work(10, 20, 5, stream=8)
    profile.work(20, 31, 5, stream=9)
    execution = Execution()
    a, b = tensor(10), tensor(11)
    execution.mm(a, a, tensor(20), record=records[0])
    execution.mm(b, b, tensor(21), record=records[1])
    execution.mm(tensor(20), b, tensor(22), record=records[2])
    return profile, execution


def test_kernels_wait_for_the_data_that_their_ops_read(tmp_path):
    profile, execution = pair(tmp_path)
    workload = convert_traces(
        [profile.write(tmp_path / "k.json")],
        execution_traces=[execution.write(tmp_path / "et.json")],
    )
    assert edges(workload.graph) == {(0, 2)}
    assert workload.graph.measured_by_node().tolist() == [5000] * 3


def test_data_that_the_times_contradict_is_not_a_dependency(tmp_path):
    """Kernel 2 began at 31 while 0 ran until 90: a storage's number was given out anew."""
    profile, execution = pair(tmp_path)
    kernel = next(e for e in profile.events if e["cat"] == "kernel")
    kernel["dur"] = 80
    workload = convert_traces(
        [profile.write(tmp_path / "k.json")],
        execution_traces=[execution.write(tmp_path / "et.json")],
    )
    assert edges(workload.graph) == set()
    assert workload.warnings[CONTRADICTED] == 1


def test_traces_without_numbers_are_linked_by_the_order_of_their_ops(tmp_path):
    profile, execution = pair(tmp_path)
    for event in profile.events:
        event["args"].pop("Record function id", None)
    workload = convert_traces(
        [profile.write(tmp_path / "k.json")],
        execution_traces=[execution.write(tmp_path / "et.json")],
    )
    assert edges(workload.graph) == {(0, 2)}


def test_an_execution_trace_of_another_run_is_refused(tmp_path):
    profile, execution = pair(tmp_path, records=(1, 2, 3))
    with pytest.raises(FlintError, match=r"et.json is not from the same run .*: 0 of the 3 ops"):
        convert_traces(
            [profile.write(tmp_path / "k.json")],
            execution_traces=[execution.write(tmp_path / "et.json")],
        )


def test_an_execution_trace_of_a_rank_without_a_profile_is_refused(tmp_path):
    profile, execution = pair(tmp_path)
    with pytest.raises(UsageError, match="is of rank 3, which has no Kineto trace"):
        convert_traces(
            [profile.write(tmp_path / "k.json")],
            execution_traces=[execution.write(tmp_path / "et_rank3.json")],
        )


def test_a_folder_holds_both_of_every_rank(tmp_path):
    profile, execution = pair(tmp_path)
    profile.write(tmp_path / "kineto_rank0.json")
    execution.write(tmp_path / "et_rank0.json")
    assert edges(convert_traces([tmp_path]).graph) == {(0, 2)}


PAD = "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"


def test_a_list_of_six_numbers_is_not_a_tensor(tmp_path):
    """Pads of three dims look like a tensor's entry: [tensor, storage, offset, elements, ...]."""
    execution = Execution()
    execution.op("aten::constant_pad_nd", PAD, [tensor(10)], [tensor(11)])
    inputs = execution.nodes[0]["inputs"]
    inputs["values"].append([0, 12, 0, 16, 4, 1])
    inputs["shapes"].append([[]] * 6)
    inputs["types"].append("GenericList[Int,Int,Int,Int,Int,Int]")
    inputs["strides"].append([])
    graph = converted(execution, tmp_path).graph
    assert graph.inputs == 1
    assert graph.bytes_read.tolist() == [64]


def test_equal_shapes_in_other_storages_are_other_tensors(tmp_path):
    """What ops have in common is kept once; which storages they use is not."""
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(12))
    execution.mm(tensor(13), tensor(14), tensor(15))
    execution.mm(tensor(12), tensor(15), tensor(16))
    graph = converted(execution, tmp_path).graph
    assert graph.inputs == 4
    assert data_edges(graph) == {(0, 2), (1, 2)}


def test_what_is_changed_in_place_is_written_once(tmp_path):
    """c += d: 64 bytes each are read, and 64 written; c is an argument and the result."""
    c, d = tensor(10), tensor(11)
    execution = Execution()
    execution.op("aten::add_", ADD_, [c, d], [c])
    execution.op("aten::mm", MM_OUT, [d, d, c], [c])
    graph = converted(execution, tmp_path).graph
    assert graph.bytes_read.tolist() == [128, 64]
    assert graph.bytes_written.tolist() == [64, 64]
    assert [str(graph.type_of(value)) for value in (2, 3)] == ["4x4xf32"] * 2
