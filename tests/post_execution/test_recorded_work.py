"""Work and traffic of recorded ops in workloads: what is a bound, or unknown, is said once."""

from __future__ import annotations

import json
from math import isnan

import pytest

from flint.cost.attention_work import LOWER_BOUND, UNKNOWN
from flint.cost.classes import KERNELS, kernel_classes
from flint.graph.stated import unstated_reads, unstated_traffic, unstated_work
from flint.post_execution.converting import convert_traces
from flint.workload.inspection import summarise
from tests.post_execution.traces import Profile

#: Two layers of a server's step: new keys go into a cache of 9,000 pages, which attention reads;
#: one more has its sequences in one tensor.  (name, shapes, types, values)
Q, PAGES = [4, 8, 128], [9000, 16, 8, 128]
INTO = "_C_cache_ops::reshape_and_cache_flash", [Q, Q, PAGES, PAGES, [4]], 4 * [
    "c10::BFloat16"] + ["long int"], [""] * 5  # fmt: skip
OVER = "vllm::unified_attention_with_output", [Q] * 4, 4 * ["c10::BFloat16"], [""] * 4
RAGGED = (
    "flash_attn::_flash_attn_varlen_forward",
    [Q, Q, Q, [4], [4], [], [], [], [], []],
    3 * ["c10::BFloat16"] + 2 * ["int"] + 5 * ["Scalar"],
    [""] * 5 + ["3", "3", "0.", "0.088", "True"],
)
STEP = (INTO, OVER, INTO, OVER, RAGGED)


def of_kineto(tmp_path):
    profile = Profile(0, 1)
    for number, (name, dims, types, values) in enumerate(STEP):
        args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": values}
        profile.work(100 * number, 100 * number + 10, 20, name, **args)
    return profile.write(tmp_path / "rank0.json")


def of_execution_trace(tmp_path):
    nodes = [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1,
         "inputs": {"values": [], "shapes": [], "types": []},
         "outputs": {"values": [], "shapes": [], "types": []}, "attrs": []},
    ]  # fmt: skip
    names = {"c10::BFloat16": "Tensor(c10::BFloat16)", "long int": "Tensor(long int)",
             "int": "Tensor(int)", "Scalar": "Double"}  # fmt: skip
    for number, (name, dims, types, values) in enumerate(STEP, 2):
        told = [
            json.loads(value.lower().rstrip(".")) if value
            else [number * 10 + i, number * 10 + i, 0, 1, 1, "cuda:0"]
            for i, value in enumerate(values)
        ]  # fmt: skip
        inputs = {"values": told, "shapes": dims, "types": [names[kind] for kind in types]}
        nodes.append(
            {"id": number, "name": name, "ctrl_deps": 1, "inputs": inputs,
             "outputs": {"values": [], "shapes": [], "types": []},
             "attrs": [{"name": "rf_id", "type": "uint64", "value": number},
                       {"name": "op_schema", "type": "string", "value": ""}]}
        )  # fmt: skip
    path = tmp_path / "et_0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    return path


@pytest.mark.parametrize("form", [of_kineto, of_execution_trace])
def test_a_servers_attention_is_unknown_and_its_cache_moves_what_is_new(form, tmp_path):
    """Each layer's 4 tokens of 8 x 128 keys and values in bf16 are 2 x 4 x 2048 bytes, read and
    written, and 4 slots of 8 bytes; the cache has 295 MB each.  Three sequences of 4 tokens with at
    most 3 each are two of 1 and one of 2: 1 + 1 + 3 causal pairs of 8 heads, of 4 x 128 FLOPs.
    """
    workload = convert_traces([form(tmp_path)])
    graph = workload.programs[0].graph
    moved = list(zip(graph.bytes_read.tolist(), graph.bytes_written.tolist(), strict=True))
    assert moved[:4] == [(16_384 + 32, 16_384), (0, 0)] * 2
    said = {text: n for text, n in workload.warnings.items() if text in (LOWER_BOUND, UNKNOWN)}
    assert said == {LOWER_BOUND: 1, UNKNOWN: 2}
    [*_, ragged] = graph
    assert sum(i.flops for i in ragged.work.items if i.unit.name == "MATMUL") == 5 * 8 * 4 * 128
    if form is of_kineto:
        assert unstated_work(graph).tolist() == [False, True, False, True, False]
        assert unstated_reads(graph).tolist() == [False, True, False, True, False]


def test_convolutions_without_values_have_the_work_of_their_gradients_shapes(tmp_path):
    """PyTorch before 1.10 records no strides.  A convolution of 2 images of 6 x 9 x 9 by 8 kernels
    of 3 x 3 x 3, in two groups, gives 8 x 4 x 4 results, by the shape of its gradient: 2 FLOPs for
    each of 2 x 8 x 16 x 27; so do both of its gradients.  Another one has no gradient here.
    """
    data, kernel, grad = [2, 6, 9, 9], [8, 3, 3, 3], [2, 8, 4, 4]
    profile = Profile(0, 1)

    def told(*dims):
        shapes = [*dims, [], [], [], []]
        return {"Input Dims": shapes, "Input type": ["float" if dim else "" for dim in shapes]}

    profile.work(0, 10, 20, "aten::cudnn_convolution", **told(data, kernel))
    profile.op("aten::cudnn_convolution_backward", 100, 90, **told(data, grad, kernel))
    for begin, name, dims in (
        (110, "input", ([], grad, kernel)), (140, "weight", ([], grad, data)),
    ):  # fmt: skip
        name = f"aten::cudnn_convolution_backward_{name}"
        profile.work(begin, begin + 10, 20, name, **told(*dims))
    profile.work(200, 210, 20, "aten::cudnn_convolution", **told(data, [8, 6, 3, 3]))
    graph = convert_traces([profile.write(tmp_path / "rank0.json")]).programs[0].graph
    assert graph.flops_by_node().tolist() == 3 * [2 * 2 * 8 * 16 * 27] + [0]
    assert unstated_work(graph).tolist() == [False, False, False, True]


def test_copies_of_no_op_move_the_bytes_of_the_profile(tmp_path):
    """Two copies and a fill that no op called, and a copy whose op tells its operands."""
    profile = Profile(0, 1)
    profile.kernel(None, 1, 10, 5, "Memcpy HtoD (Pinned -> Device)", bytes=4096)
    profile.kernel(None, 2, 20, 5, "Memcpy DtoD (Device -> Device)", bytes=100)
    profile.kernel(None, 3, 30, 5, "Memset (Device)", bytes=64)
    args = {"Input Dims": [[8], [8]], "Input type": ["float", "float"]}
    op = profile.op("aten::copy_", 4, 2, **args)
    profile.kernel(op, 5, 40, 5, "Memcpy DtoD (Device -> Device)", bytes=32)
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    [program] = workload.programs
    moved = [(node.work.read, node.work.written) for node in program.graph]
    assert moved[:3] == [(4096, 4096), (100, 100), (0, 64)]
    assert moved[3] == (64, 0)  # the op's operands: no result is recorded
    assert not unstated_reads(program.graph).any()
    assert unstated_traffic(program.graph).tolist() == [False, False, False, True]
    [told] = summarise(workload).programs
    assert told.bytes_read == 4096 + 100 + 64 and isnan(told.bytes_written)
    assert {KERNELS[place] for place in kernel_classes(program.graph)} == {"movement"}
