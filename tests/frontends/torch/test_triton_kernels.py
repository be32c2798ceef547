"""Kernels of a program's own, in Triton and in CUDA: what a launch reads and writes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
import torch

from flint.frontends.torch.inductor import cuda_sources, launched
from tests.frontends.torch.in_child import record_in_child

tl = SimpleNamespace()  # triton.language, which nothing here runs


def _scaled_add(x_ptr, y_ptr, out_ptr, n, scale, block):
    at = tl.program_id(0) * block + tl.arange(0, block)
    target = out_ptr + at
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(target, x + scale * y, mask=at < n)


def _gathered(index_ptr, table_ptr, count_ptr, out_ptr):
    row = tl.load(index_ptr)
    out_ptr += row
    tl.atomic_add(count_ptr + row, 1)
    tl.store(out_ptr, tl.load(table_ptr + row))


def _helped(x_ptr, out_ptr):
    _helper(x_ptr, out_ptr)


def _helper(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


@pytest.mark.parametrize(
    ("kernel", "written"),
    [
        (_scaled_add, {"out_ptr"}),
        (_gathered, {"count_ptr", "out_ptr"}),
        (_helped, {"x_ptr", "out_ptr"}),  # what a function does with its pointers is not looked at
    ],
)
def test_a_kernel_writes_what_its_source_stores_to(kernel, written):
    names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    found = launched.stored_to(kernel, names)
    assert {name for name in found if name.endswith("_ptr")} == written


def test_a_launch_is_one_op_between_what_it_reads_and_who_reads_it():
    kernel = SimpleNamespace(
        fn=_scaled_add, arg_names=["x_ptr", "y_ptr", "out_ptr", "n", "scale", "block"]
    )

    def setup(mesh):
        return [torch.ones(8, device="cuda") for _ in range(2)]

    def step(x, y):
        out = torch.empty_like(x)
        launched._launched(None, kernel, x + 1, y, out, 8, 2.0, block=8, grid=(1,), warmup=False)
        return out * 2

    first, launch, last = record_in_child(step, setup, (1,), ("dp",)).ops[-3:]
    reads, writes = (tuple(view.storage for view in launch.args[at]) for at in (0, 1))
    assert launch.name.split(".")[1] == "_scaled_add"
    assert first.results[0].storage in reads
    assert [view.storage for view in launch.writes] == [*writes]
    assert len(writes) == 1 and last.args[0].storage == writes[0]


CUDA = """
// scale(const float* x) is not it
template <typename T> __device__ T twice(T x) { return 2 * x; }
extern "C" __global__ void __launch_bounds__(256)
scale(const float* __restrict__ x, float* /* the result */ y, float const * z, int n) { }
"""


@pytest.mark.parametrize(
    ("name", "written"), [("scale", [False, True, False, False]), ("other", []), ("twice", [False])]
)
def test_a_cuda_kernel_writes_through_pointers_that_are_not_const(name, written):
    assert cuda_sources.written(CUDA, name) == written


def test_a_cuda_kernel_that_is_compiled_from_a_text_is_one_op():
    def setup(mesh):
        return [torch.ones(8, device="cuda")]

    def step(x):
        kernel = torch.cuda._compile_kernel(CUDA, "scale", compute_capability="90")
        kernel.set_shared_memory_config(1)
        out = torch.empty_like(x)
        kernel((1, 1, 1), (256, 1, 1), (x + 1, out, x, 8), shared_mem=1)
        return out * 2

    first, launch, last = record_in_child(step, setup, (1,), ("dp",)).ops[-3:]
    reads, writes = (tuple(view.storage for view in launch.args[at]) for at in (0, 1))
    assert launch.name.split(".")[1] == "scale"
    assert first.results[0].storage in reads
    assert len(writes) == 1 and last.args[0].storage == writes[0]
