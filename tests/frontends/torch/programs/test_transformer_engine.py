"""Programs that import Transformer Engine, of which only its own Python is there.

The idea: the real package is in ``make test-programs``.  Here is one of a few lines that loads its
extension in the same way and calls it.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from flint import load
from flint.graph.work import Unit
from tests.support.command_line import flint_with_torch as flint

#: Files of a package that is as Transformer Engine: where CUDA is not, its import ends.
PACKAGE = {
    "__init__.py": "from . import common, pytorch\n",
    "common/__init__.py": """
import os
if "NVTE_PROJECT_BUILDING" not in os.environ:
    raise RuntimeError("cudnn shared object not found.")
def load_framework_extension(framework):
    raise FileNotFoundError("Could not find shared object file for Transformer Engine torch lib.")
""",
    "pytorch/__init__.py": """
from transformer_engine.common import load_framework_extension
load_framework_extension("torch")
import transformer_engine_torch as tex
from .cpp_extensions.gemm import general_gemm
from .tensor.float8_tensor import Float8Quantizer
""",
    "pytorch/cpp_extensions/__init__.py": "from .gemm import general_gemm\n",
    "pytorch/cpp_extensions/gemm.py": """
def general_gemm(A, B, out_dtype=None, quantization_params=None, gelu=False, gelu_in=None,
                 accumulate=False, layout="TN", out=None, bias=None, grad=False):
    raise RuntimeError("this calls cuBLAS")
def general_grouped_gemm(A, B, out):
    raise RuntimeError("this calls cuBLAS")
""",
    "pytorch/tensor/__init__.py": "",
    "pytorch/tensor/float8_tensor.py": """
from transformer_engine_torch import DType
class Storage:
    def __new__(cls, *, data, fp8_scale_inv, fp8_dtype, data_transpose, quantizer):
        made = object.__new__(cls)
        made._data, made._scale_inv, made._transpose = data, fp8_scale_inv, data_transpose
        made._fp8_dtype, made._transpose_invalid, made._quantizer = fp8_dtype, True, quantizer
        made.size = lambda: data.shape
        return made
class Float8Tensor(Storage):
    pass
class Float8Quantizer:
    dtype, rowwise_usage, columnwise_usage, internal = DType.kFloat8E4M3, True, True, True
    def __init__(self, scale, amax):
        self.scale, self.amax = scale, amax
""",
}

#: 32 rows through a norm, and a product with a weight [48, 16].
PROGRAM = """
import sys, torch
import transformer_engine.pytorch as te
from transformer_engine.pytorch import tex
weight = torch.nn.Parameter(torch.ones(48, 16, device="cuda", dtype=torch.bfloat16))
scale = torch.ones(16, device="cuda", dtype=torch.bfloat16)
weight.main_grad = torch.zeros(48, 16, device="cuda")
optimizer = torch.optim.SGD([weight], lr=0.1)
def quantizer():
    return te.Float8Quantizer(torch.ones(1, device="cuda"), torch.zeros(1, device="cuda"))
for _ in range(3):
    x = torch.ones(32, 16, device="cuda", dtype=torch.bfloat16)
    y, _, _ = tex.rmsnorm_fwd(x, scale, 1e-5, None, None, tex.DType.kBFloat16, 0, False)
    if sys.argv[1] == "fp8":
        y, w = tex.quantize(y, quantizer()), tex.quantize(weight.detach(), quantizer())
        out = te.general_gemm(w, y, torch.bfloat16)[0]
    elif sys.argv[1] == "bf16":
        out = te.general_gemm(weight.detach(), y)[0]
        te.general_gemm(y, out, out=weight.main_grad, accumulate=True, layout="NT", grad=True)
    else:
        tex.ep_dispatch(y)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
"""


@pytest.fixture
def captured(tmp_path):
    """The program's graph with some type, or what ``flint run`` says where it fails."""
    for name, text in PACKAGE.items():
        path = tmp_path / "transformer_engine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "train.py").write_text(PROGRAM)

    def run(kind):
        done = flint(
            "run", "--world", 1, "-o", "out", "--", "python", "train.py", kind, cwd=tmp_path
        )
        return done.stderr if done.returncode else load(tmp_path / "out").graph

    return run


def calls_of(graph, op):
    return [node for node in graph if node.op.removesuffix(".default") == op]


def products_of(node):
    """FLOPs of the matrix unit."""
    return sum(item.flops for item in node.work.items if item.unit is Unit.MATMUL)


def test_kernels_of_the_extension_are_ops_of_their_own_operands(captured):
    graph = captured("bf16")
    (norm,) = calls_of(graph, "transformer_engine.rmsnorm")
    rows, weight = 32 * 16 * 2, 16 * 2  # bytes in bf16; 32 deviations in float32 are kept
    assert (norm.work.read, norm.work.written) == (rows + weight, rows + 32 * 4)
    (product,) = calls_of(graph, "aten.mm")
    assert products_of(product) == 2 * 32 * 16 * 48


@pytest.mark.thorough
def test_a_gradient_is_added_to_its_buffer_by_the_product(captured):
    (product,) = calls_of(captured("bf16"), "aten.addmm.dtype_out")
    assert products_of(product) == 2 * 32 * 16 * 48
    buffer = 48 * 16 * 4
    assert product.work.read == buffer + 32 * 16 * 2 + 32 * 48 * 2
    assert product.work.written == buffer


@pytest.mark.thorough
def test_a_cast_to_fp8_writes_both_copies_its_scale_and_the_largest_value(captured):
    graph = captured("fp8")
    rows, weight = calls_of(graph, "transformer_engine.quantize")
    for node, elements in ((rows, 32 * 16), (weight, 48 * 16)):
        assert node.work.read == 2 * elements + 4  # bf16, and the scale
        assert node.work.written == 2 * elements + 4 + 4  # two copies, inverse, largest value
    (product,) = calls_of(graph, "aten._scaled_mm")
    assert products_of(product) == 2 * 32 * 16 * 48
    assert any("f8E4M3" in item.dtype for item in product.work.items if item.unit is Unit.MATMUL)


@pytest.mark.thorough
def test_a_function_without_a_stand_in_is_named_with_its_line(captured):
    said = captured("other")
    assert "transformer_engine_torch.ep_dispatch at train.py:21 has no stand-in" in said
    assert said.count("\n") <= 2
