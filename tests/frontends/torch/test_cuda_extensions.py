"""Extensions of C++ and CUDA sources: their host code is followed, their kernels are ops."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch

from flint.errors import FlintError
from flint.frontends.torch.cuda_extensions.expressions import Options, Scope, Unknown
from flint.frontends.torch.cuda_extensions.host_code import HostCode, _stores
from flint.frontends.torch.cuda_extensions.reading import read, split
from tests.frontends.torch.in_child import record_in_child

CPP = """
#include <torch/extension.h>
// torch::Tensor not_here(torch::Tensor x) { }
#define CHECK(x) TORCH_CHECK(x.is_cuda(), #x)
#define QUARTER (TIMES * 2)
constexpr int kTimes = 2;
template <typename T> inline T times(T n) { return (n + n - 1) / n * kTimes; }
void scan_cuda(int64_t n, const float *x, float *out);

std::vector<torch::Tensor> mixed(torch::Tensor x, torch::Tensor weight, double share = 0.5) {
    CHECK(x);
    TORCH_CHECK(x.dim() == 2 && weight.dim() == 2, "must have {", 2, "} dims");
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    auto stream = at::cuda::getCurrentCUDAStream();
    int threads = 256, dims = x.dim();
    if (const char *env = std::getenv("FLINT_NOT_SET")) { threads = std::atoi(env); }
    dim3 blocks((x.numel() + threads - 1) / threads);
    auto hidden = at::matmul(x, weight.transpose(0, 1)).contiguous();
    auto like = x.options().dtype(torch::kFloat64);
    auto out = torch::empty({x.size(0), 2 * weight.size(0) / QUARTER}, like);
    for (int i = 0; i < times(dims); i++) {
        scan_cuda(x.numel(), x.data_ptr<float>(), hidden.data_ptr<float>());
    }
    if (share > 0.25f) { return {out, hidden}; } else { return {hidden, out}; }
}

void forward(torch::Tensor &x, torch::Tensor &y) {
    scan_cuda(x.numel(), (float*) x.data_ptr(), reinterpret_cast<float*>(y.data_ptr()));
}

at::Tensor odd(at::Tensor x) { auto found = some_library::call(x); return found; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("mixed", &mixed, "a docstring, (with brackets)", py::arg("x"));
    m.def("odd", &odd);
}
TORCH_LIBRARY(flint_test_scan, m) { m.def("forward", forward); }
TORCH_LIBRARY_FRAGMENT(flint_test_scan, m) {
    m.def("stated(Tensor x, Tensor(a!) y) -> ()"); }
TORCH_LIBRARY_IMPL(flint_test_scan, CUDA, m) { m.impl("stated", &forward); }
"""

CUDA = """
typedef float * __restrict__ F;
template <typename T>
__global__ void scan_kernel(int n, const T *__restrict__ x, F read, float *out, float *also) {
    float *place = out + blockIdx.x;
    for (int i = 0; i < n; i++) { if (x[i] == read[i]) { place[i] += x[i]; } }
    atomicAdd(&also[0], 1.f);
}
void scan_cuda(int64_t n, const float *x, float *out) {
    AT_DISPATCH_FLOATING_TYPES(kind, "scan", ([&] {
        scan_kernel<scalar_t><<<dim3(n, 1), dim3(32)>>>(n, x, x, out, out);
    }));
}
"""


def _sources():
    return read({"scan.cpp": CPP, "scan.cu": CUDA}, "scan")


def test_functions_and_their_names_in_python_are_read():
    sources = _sources()
    assert [*sources.functions] == [
        "times", "mixed", "forward", "odd", "scan_kernel", "scan_cuda",
    ]  # fmt: skip
    [kernel] = sources.functions["scan_kernel"]
    assert kernel.is_kernel and (kernel.file, kernel.line) == ("scan.cu", 4)
    assert [item.name for item in kernel.parameters] == ["n", "x", "read", "out", "also"]
    assert [(item.library, item.name, item.function) for item in sources.bindings] == [
        ("", "mixed", "mixed"), ("", "odd", "odd"), ("flint_test_scan", "forward", "forward"),
        ("flint_test_scan", "stated", ""), ("flint_test_scan", "stated", "forward"),
    ]  # fmt: skip
    assert split("a, f(b, c), at::Tensor<x, y> d, {e, f}") == [
        "a", "f(b, c)", "at::Tensor<x, y> d", "{e, f}",
    ]  # fmt: skip


def test_a_kernel_writes_what_its_text_stores_to():
    [kernel] = _sources().functions["scan_kernel"]
    assert [_stores(kernel, place) for place in range(5)] == [False, False, False, True, True]


def test_expressions_are_evaluated_as_cpp():
    x = torch.ones(6, 4)
    scope = Scope({"x": x, "n": 7}, {})
    assert scope.value("n / 2 + (int64_t) x.size(0) % 4") == 3 + 2
    assert scope.value("std::max(x.sizes()[1], n) == 7 && !(n < 3)") is True
    assert scope.value("x.options().dtype(at::kHalf)") == Options(torch.float16, x.device)
    assert scope.value("torch::zeros({n, 2}, torch::kInt32)").dtype == torch.int32
    with pytest.raises(Unknown):
        scope.value("n > 3 ? n : 3")


def _steps(tmp_path):
    for name, text in (("scan.cpp", CPP), ("scan.cu", CUDA)):
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / "scan.cpp"), str(tmp_path / "scan.cu")]

    def setup(mesh):
        return [torch.ones(6, 4, device="cuda"), torch.ones(8, 4, device="cuda")]

    def step(x, weight):
        from torch.utils.cpp_extension import load

        module = load("scan", files, extra_cuda_cflags=["-DTIMES=2"], build_directory=str(tmp_path))
        out, hidden = module.mixed(x, weight)
        assert (out.shape, out.dtype, hidden.shape) == ((6, 4), torch.float64, (6, 8))
        torch.ops.flint_test_scan.forward(x, hidden)
        torch.ops.flint_test_scan.stated(x, hidden)
        return hidden * 2

    return setup, step


def test_products_and_launches_of_host_code_are_recorded(tmp_path):
    """6 x 4 by 4 x 8 is a product; two launches in a loop, and one each of the library's ops."""
    setup, step = _steps(tmp_path)
    ops = record_in_child(step, setup, (1,), ("dp",)).ops
    names = [op.name for op in ops]
    assert sum("aten.mm" in name for name in names) == 1
    launches = [op for op in ops if "scan_kernel" in op.name]
    [product] = [op for op in ops if "aten.mm" in op.name]
    assert len(launches) == 4
    for launch in launches:
        assert product.results[0].storage in {view.storage for view in launch.writes}
    assert ops[-1].args[0].storage == product.results[0].storage


def test_what_is_not_understood_is_refused_with_its_place():
    code = HostCode(_sources())
    with pytest.raises(FlintError, match=r"scan.cpp:\d+: odd is C\+\+ .* 'return found'"):
        code.functions["odd"](torch.ones(2))
