"""Products of f32: exact by default, in TF32 where the program allows it.

PyTorch's documentation of ``torch.set_float32_matmul_precision`` and of TF32 on Ampere devices: off
for matrix products, on for convolutions and recurrent layers of cuDNN. A profile of the same
encoder on an H100 (docs/accuracy/one-gpu.md) has ``..._ffma_...`` kernels by default, and
``tf32f32`` ones with ``"high"``: 71.6 and 12.2 ms for the same 3.7 TFLOP.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flint.cost.roofline import computed_as  # noqa: E402
from flint.cost.systems import load_system  # noqa: E402
from flint.graph.tensor_types import EXACT  # noqa: E402
from flint.graph.work import Unit  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def exact(module, shape=(3, 2, 8), precision="highest", dtype=torch.float32):
    """Which of a step's ops multiply exactly, by name, and whether all of a name do."""

    def given(mesh):
        torch.set_float32_matmul_precision(precision)
        data = torch.ones(shape, device=mesh.device_type, dtype=dtype, requires_grad=True)
        return module().to(mesh.device_type, dtype), data

    def step(made, data):
        out = made(data)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    return {op.name.split(".")[1]: op.exact for op in ops if op.name.startswith("aten.")}


@pytest.mark.parametrize(("precision", "expected"), [("highest", True), ("high", False)])
def test_products_are_exact_unless_the_program_allows_tf32(precision, expected):
    found = exact(lambda: torch.nn.Linear(8, 4), precision=precision)
    assert found["mm"] == expected
    assert not found["sum"]


def test_convolutions_and_recurrent_layers_have_cudnns_own_switch():
    assert not exact(lambda: torch.nn.Conv2d(8, 8, 3), (2, 8, 6, 6))["convolution"]
    found = exact(lambda: torch.nn.LSTM(8, 8))
    assert not any(found.values())
    assert {"mm", "addmm"} & set(found)


@pytest.mark.parametrize(
    ("system", "unit", "dtype"),
    [("dgx-h100", Unit.VECTOR, "f32"), ("mi300x-8", Unit.MATMUL, "f32"),
     ("tpu-v5p-pod", Unit.MATMUL, "f32")],
)  # fmt: skip
def test_exact_products_run_where_the_device_has_them(system, unit, dtype):
    """An H100's matrix units have TF32 only; an MI300X's have f32, too."""
    accelerator = load_system(system).accelerator
    found = computed_as(accelerator, Unit.MATMUL, EXACT)
    assert (found.unit, found.dtype) == (unit, dtype)
    assert found.rate <= computed_as(accelerator, Unit.MATMUL, "f32").rate
