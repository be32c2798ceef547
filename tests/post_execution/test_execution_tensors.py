"""Tensors of execution traces that are not one plain buffer, as torch 2.13 writes them."""

from __future__ import annotations

import pytest

from flint.converters.profilers.pytorch_et.observe import observe
from flint.errors import FlintError
from tests.post_execution.test_data import ADD_, Execution, converted, data_edges, tensor

INDEX = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"
INDEX_PUT = (
    "aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) "
    "-> Tensor(a!)"
)
COPY = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
UNDEFINED = "Tensor(nullptr (uninitialized))"
#: An entry of a tensor without a storage: sparse, or a wrapper of ``torch.func``.
SPARSE = [[90, 0, 0, 0, 0, ""], [4, 4], [0, 0]]
NONE = [[91, 0, 0, 0, 0, ""], [], []]


def listed(inputs, place, tensors, types):
    """Put a list of tensors at a place of a node's inputs."""
    parts = {
        "values": [item[0] for item in tensors], "shapes": [item[1] for item in tensors],
        "types": f"GenericList[{','.join(types)}]", "strides": [item[2] for item in tensors],
    }  # fmt: skip
    for key, part in parts.items():
        inputs[key].insert(place, part)


def test_operands_stand_in_the_order_of_the_arguments(tmp_path):
    """index_put_(self, [indices], values): a list between two tensors, each of another size."""
    execution = Execution()
    x, where, values = tensor(10), tensor(11, rows=1), tensor(12, rows=2)
    execution.op("aten::index_put_", INDEX_PUT, [x, values], [x])
    listed(execution.nodes[0]["inputs"], 1, [where], ["Tensor(float)"])
    graph = converted(execution, tmp_path).graph
    operands = [str(graph.type_of(int(value))) for value in graph.operand]
    assert operands == ["4x4xf32", "1x4xf32", "2x4xf32"]


def test_an_undefined_tensor_in_a_list_is_none_and_shifts_no_types(tmp_path):
    """x[:, i]: the list of indices is [undefined, i]; i is 1 x 4 numbers of 4 bytes."""
    execution = Execution()
    execution.op("aten::index", INDEX, [tensor(10)], [tensor(12)])
    where = tensor(11, rows=1)
    listed(execution.nodes[0]["inputs"], 1, [NONE, where], [UNDEFINED, "Tensor(int)"])
    graph = converted(execution, tmp_path).graph
    assert [str(graph.type_of(value)) for value in range(graph.inputs)] == ["4x4xf32", "1x4xi32"]
    [facts] = observe(tmp_path / "et_rank0.json").facts
    assert facts.operands == (((4, 4), "f32"), ((1, 4), "i32"))


def test_an_undefined_argument_is_not_an_operand(tmp_path):
    execution = Execution()
    execution.mm(tensor(10), NONE, tensor(12))
    execution.nodes[0]["inputs"]["types"][1] = UNDEFINED
    assert converted(execution, tmp_path).graph.inputs == 1


def test_tensors_without_a_storage_keep_their_order(tmp_path):
    """A sparse gradient is made by 0 and read by 2; the trace says neither's storage nor bytes."""
    execution = Execution()
    execution.mm(tensor(10), tensor(11), SPARSE)
    execution.mm(tensor(10), tensor(11), tensor(12))
    execution.mm(tensor(12), SPARSE, tensor(13))
    workload = converted(execution, tmp_path)
    assert data_edges(workload.graph) == {(0, 2), (1, 2)}
    assert workload.graph.bytes_read.tolist() == [128, 128, 64]
    [count] = [n for text, n in workload.warnings.items() if "without a storage" in text]
    assert count == 2


def test_what_is_overwritten_is_not_read(tmp_path):
    """copy_ reads its source only, 64 bytes, zero_ nothing; add_ reads what it adds to.

    They still follow what wrote x before: a collective may be at it.
    """
    x, y = tensor(10), tensor(11)
    execution = Execution()
    execution.mm(y, y, x)
    execution.op("aten::zero_", "aten::zero_(Tensor(a!) self) -> Tensor(a!)", [x], [x])
    execution.op("aten::copy_", COPY, [x, y], [x])
    execution.op("aten::add_", ADD_, [x, y], [x])
    graph = converted(execution, tmp_path).graph
    assert graph.bytes_read.tolist() == [64, 0, 64, 128]
    assert graph.bytes_written.tolist() == [64, 64, 64, 64]
    assert data_edges(graph) == {(0, 1), (1, 2), (2, 3)}


def test_two_nodes_of_one_id_are_refused(tmp_path):
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(12))
    execution.mm(tensor(10), tensor(11), tensor(13))
    execution.nodes[1]["id"] = execution.nodes[0]["id"]
    with pytest.raises(FlintError, match="two nodes with the id 2"):
        converted(execution, tmp_path)


def test_what_is_wrong_with_a_node_is_reported(tmp_path):
    execution = Execution()
    execution.mm(tensor(10), tensor(11), tensor(12))
    execution.nodes[0]["ctrl_deps"] = "1"
    with pytest.raises(FlintError, match=r"Expected `int`, got `str` - at `\$.ctrl_deps`"):
        converted(execution, tmp_path)
