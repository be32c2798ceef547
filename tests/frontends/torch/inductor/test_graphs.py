"""Which graphs compiled code becomes: as on a GPU, of the sizes of the step, or it is told."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child

pytestmark = pytest.mark.thorough


def call(function, *given):
    return function(*given)


def recorded(step, setup):
    return record_in_child(step, setup, (1,), ("dp",), compile_for="h100-sxm")


def of(function, **options):
    return lambda mesh: (torch.compile(function, **options), torch.empty(64, device="cuda"))


def kernels(found):
    """Kernels of Inductor: name and what they do."""
    named = (op for op in found.ops if op.name.startswith("inductor_kernel."))
    return [(op.name, json.loads(op.args[2])) for op in named]


def of_marked(mesh):
    """A function that has been compiled for 64 rows, marked as dynamic, and gets 16."""
    function = torch.compile(lambda x: x.exp() + 1)
    before, now = (torch.empty(rows, 32, device="cuda") for rows in (64, 16))
    torch._dynamo.mark_dynamic(before, 0)
    function(before)
    return function, now


def test_a_size_that_is_marked_as_dynamic_is_that_of_the_step():
    """Per element of 16 x 32 an exponential and a sum; 4 bytes are read and written."""
    [(_, work)] = kernels(recorded(call, of_marked))
    assert work == {
        "flops": 16 * 32, "transcendentals": 16 * 32,
        "read": [4 * 16 * 32], "written": [4 * 16 * 32],
    }  # fmt: skip


def on_its_device(x):
    """PyTorch's Dynamo takes the number for a constant."""
    number = x.exp().new_ones(4, device=torch.cuda.current_device())
    return x.exp() + number.sum()


def test_the_number_of_the_device_is_a_constant_of_one_graph():
    found = recorded(
        call, lambda mesh: (torch.compile(on_its_device), torch.empty(64, device="cuda"))
    )
    assert len(kernels(found)) == 1
    assert not found.warnings


def reads_a_value(x):
    y = x.exp()
    return y * 2 if y.sum().item() > 0 else y


def whole(function):
    return of(function, fullgraph=True)


def test_code_that_must_be_one_graph_and_is_not_is_divided_and_told():
    """PyTorch's own message for the same code on a CPU is its error."""
    with pytest.raises(torch._dynamo.exc.UserError) as error:
        torch.compile(reads_a_value, fullgraph=True, backend="eager")(torch.ones(64))
    found = recorded(call, whole(reads_a_value))
    line = reads_a_value.__code__.co_firstlineno
    (told,) = (text for text in found.warnings if "not one graph" in text)
    assert f"test_graphs.py:{line}: " in told
    assert str(error.value).splitlines()[0] in told
    assert len(kernels(found)) == 2


def test_code_that_must_be_one_graph_and_is_one_is_compiled_as_a_whole():
    found = recorded(call, whole(lambda x: nn.functional.gelu(x).exp() * 2))
    assert len(kernels(found)) == 1
    assert not found.warnings


def uses_a_value(x):
    return x.exp() * x.sum().item()


def test_a_number_read_from_a_tensor_is_part_of_one_graph():
    """One kernel, which Inductor gives the tensor instead: 63 sums or more, and 64 products."""
    found = recorded(call, whole(uses_a_value))
    [(_, work)] = kernels(found)
    assert not found.warnings
    assert work["transcendentals"] == 64 and work["flops"] == 64 + 64


def uses_a_size(number):
    return torch.arange(number.item(), device="cuda").exp()


def of_a_size(mesh):
    return torch.compile(uses_a_size, fullgraph=True), torch.tensor(5).cuda()


def test_sizes_that_depend_on_values_are_told():
    found = recorded(call, of_a_size)
    assert any("sizes depend on values" in text for text in found.warnings)


def of_settings(mesh):
    """As a program turns kernels that are chosen by timing on, for all that it compiles."""
    torch._inductor.config.coordinate_descent_tuning = True
    function = torch.compile(lambda x: x.exp(), options={"triton.cudagraphs": True})
    return function, torch.empty(64, device="cuda")


def test_settings_that_need_a_gpu_are_told():
    found = recorded(call, of_settings)
    assert [any(part in text for text in found.warnings)
            for part in ("choose by timing", "not as a CUDA graph")] == [True, True]  # fmt: skip
    assert len(kernels(found)) == 1


def of_own_settings(mesh):
    """As a program turns off what keeps the sizes of a step."""
    torch._dynamo.config.assume_static_by_default = False
    torch._dynamo.config.automatic_dynamic_shapes = True
    function = torch.compile(lambda x: x.exp())
    for rows in (64, 32):
        function(torch.empty(rows, 32, device="cuda"))
    return function, torch.empty(16, 32, device="cuda")


def test_settings_of_a_program_leave_sizes_those_of_the_step():
    [(_, work)] = kernels(recorded(call, of_own_settings))
    assert work["transcendentals"] == 16 * 32
