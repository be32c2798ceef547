"""FlashAttention 3, and kernels of the hub, where neither is installed."""

from __future__ import annotations

import importlib.util
from importlib import metadata

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError  # noqa: E402
from flint.frontends.torch.programs import (  # noqa: E402
    flash_attention,
    flash_attention3,
    kernel_packages,
)

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) for name in ("flash_attn_interface", "kernels")),
    reason="a package is installed",
)


@pytest.mark.parametrize(
    ("message", "kind", "package"),
    [
        ("No module named 'flash_attn'", ImportError, "flash_attn"),
        ("No module named 'flash_attn_interface'", ImportError, "flash_attn_interface"),
        ("please install flash-attn-3", ValueError, "flash_attn_interface"),
        # As transformers 5.24 says it.
        (
            "the package for FlashAttention3 doesn't seem to be installed",
            ImportError,
            "flash_attn_interface",
        ),
        ("the package for FlashAttention2 doesn't seem to be installed", ImportError, "flash_attn"),
        ("No module named 'kernels'", ImportError, "kernels"),
        ("cannot import name 'x' from 'triton_kernels'", ImportError, None),
        ("`kernels` is either not installed or too old", ImportError, None),
    ],
)
def test_a_message_means_a_package(message, kind, package):
    found = kernel_packages.needed(kind(message), ("grouped_gemm",))
    assert found == (("grouped_gemm", package) if package else ())


def test_flash_attention_3_is_a_distribution_of_another_name(package):
    """As transformers asks whether it is there."""
    kernel_packages.provide(["flash_attn_interface"])
    import flash_attn_interface as found

    assert metadata.packages_distributions()[found.__name__] == ["flash-attn-3"]
    assert metadata.version("flash_attn_3") == "3.0.0"
    q, level = torch.randn(4, 2, 5, 3, 8), torch.randn(4, 2, 5, 3)
    out, total = found.flash_attn_combine(q, level)
    weights = torch.softmax(level, 0)[..., None]
    torch.testing.assert_close(out, (q * weights).sum(0))
    torch.testing.assert_close(total, level.exp().sum(0).log())


def test_the_hubs_flash_attention_is_the_packages(package):
    kernel_packages.provide(["kernels"])
    from kernels import get_kernel

    third = get_kernel("varunneal/flash-attention-3")
    assert third.flash_attn_func is flash_attention3.flash_attn_func
    assert third.flash_attn_interface.flash_attn_func is third.flash_attn_func
    second = get_kernel("kernels-community/flash-attn2", version=4)
    assert second.flash_attn_func is flash_attention.flash_attn_func
    assert second.bert_padding.pad_input is flash_attention.pad_input
    with pytest.raises(FlintError, match="no stand-in"):
        get_kernel("kernels-community/activation")
