"""PyTorch's memory-efficient attention, which takes more sizes and masks than FlashAttention."""

from __future__ import annotations

import pytest

from flint.cost.systems import load_system
from tests.cost.test_kernels import product, seconds

NAME = "aten._scaled_dot_product_{}_attention{}.default"


@pytest.mark.parametrize("end", ["", "_backward"])
def test_it_is_as_much_slower_than_products_as_published(end):
    """TFLOP/s of xFormers' kernels, which are PyTorch's, in f16 on an A100, heads of 128: forward
    4 * 320 * 8096^2 * 128 FLOPs in 99.57 ms (facebookresearch/xformers, pull request 389), backward
    10 * 2 * 160 * 4096^2 * 128 in 93.55 ms (557); products reach 0.76 of 312 in steps."""
    forward = 4 * 320 * 8096**2 * 128 / 99.57e-3
    backward = 10 * 2 * 160 * 4096**2 * 128 / 93.55e-3
    both = 3.5 / (1 / forward + 2.5 / backward)
    system = load_system("dgx-a100")
    sizes = (1, 8192, 8192, 8192)
    names = ("aten.mm.default", NAME.format("efficient", end))
    times = [seconds(product(*sizes, name, dtype="f16"), system) for name in names]
    assert times[0] / times[1] == pytest.approx(both / (0.76 * 312e12), rel=0.03)


def test_in_f32_and_on_an_amd_device_it_is_no_other_than_flash_attention():
    """ROCm has one kernel for both; nothing was found about f32."""
    for device, dtype in (("dgx-a100", "f32"), ("mi300x-8", "bf16")):
        system = load_system(device)
        times = {
            seconds(product(1, 8192, 8192, 8192, NAME.format(kind, ""), dtype=dtype), system)
            for kind in ("efficient", "flash")
        }
        assert len(times) == 1
